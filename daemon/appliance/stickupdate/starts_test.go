package stickupdate

import (
	"bytes"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/owner/ownertest"
)

// TestWhatTheMachineWouldNotStartIsRefused, also with --unsigned, which is about updates.keys: it would be tried in vain.
func TestWhatTheMachineWouldNotStartIsRefused(t *testing.T) {
	owner, err := secureboot.NewKey("The owner's db", time.Now())
	require.NoError(t, err)
	path, next := disktest.CopyImage(t, makeImage(t, "1.0.0", 70)), makeImage(t, "1.1.0", 60)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	u := newUpdater(t, path, "1.0.0", stick.SlotA, false, t.TempDir(), "1")

	u.Owners = func() ([]*x509.Certificate, error) { return []*x509.Certificate{owner.Certificate}, nil }
	_, err = u.Update(t.Context(), next, Options{Unsigned: true}, func(string, int64, int64) {})
	require.ErrorContains(t, err, next+" is refused: this machine starts only what The owner's db has signed: slot.cfg")
	require.ErrorContains(t, err, "sign it with firstlight sign --secure-boot; nothing is written")

	u.Owners = func() ([]*x509.Certificate, error) { return nil, errors.New("db is torn") }
	_, err = u.Update(t.Context(), next, Options{}, func(string, int64, int64) {})
	require.ErrorContains(t, err, "which images this machine starts is not known: db is torn")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "a refusal writes nothing")

	u.Owners = func() ([]*x509.Certificate, error) { return nil, nil }
	_, err = u.Update(t.Context(), next, Options{}, func(string, int64, int64) {})
	require.NoError(t, err)
}

// bootInfo has the partitions of an image that is started, each in a file.
func bootInfo(t *testing.T, image string) stick.BootInfo {
	t.Helper()
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	boot := stick.BootInfo{Slot: stick.SlotA}
	for _, name := range []string{stick.PartitionESP, stick.PartitionBootA} {
		p, ok := table.Find(name)
		require.True(t, ok, name)
		content := make([]byte, p.Size())
		_, err := f.ReadAt(content, p.Offset())
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		boot.Partitions = append(boot.Partitions, stick.Partition{Name: name, Path: path})
	}
	return boot
}

// enforcing is where firmware that enforces Secure Boot has its variables.
func enforcing(t *testing.T, db string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for v, content := range map[secureboot.Variable]string{
		secureboot.Enforced: "\x01", secureboot.SetupMode: "\x00", secureboot.DB: db,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, v.FileName()), []byte("\x06\x00\x00\x00"+content), 0o600))
	}
	return dir
}

// TestFirmwareDoesNotHinderUpdatesOfAStickThatNobodySigned, whatever is in its variables.
func TestFirmwareDoesNotHinderUpdatesOfAStickThatNobodySigned(t *testing.T) {
	owners, err := bootOwners(bootInfo(t, makeImage(t, "1.0.0", 70)), enforcing(t, "no list of keys"))
	require.NoError(t, err)
	assert.Empty(t, owners)
}

// bootFile is where a file of an image's boot partition is in it.
func bootFile(t *testing.T, image, name string) (at int64, content []byte) {
	t.Helper()
	i, err := Open(image)
	require.NoError(t, err)
	defer i.Close()
	volume, err := fat.Open(i.boot)
	require.NoError(t, err)
	at, err = volume.Offset(name)
	require.NoError(t, err)
	content, err = volume.ReadFile(name)
	require.NoError(t, err)
	return at, content
}

// TestASignedStickIsUpdatedToWhatItsOwnerSigned: what firmware and GRUB check of the slot that is started next is by the
// key that they check the running one with. Anything else is refused, each changed file by its name, and nothing is
// written.
func TestASignedStickIsUpdatedToWhatItsOwnerSigned(t *testing.T) {
	keys, others := ownertest.NewKeys(t), ownertest.NewKeys(t)
	old := ownertest.Sign(t, keys, makeImage(t, "1.0.0", 70, withPlace))
	unsigned := makeImage(t, "1.1.0", 60, withPlace)
	next := ownertest.Sign(t, keys, unsigned)
	path, boot := disktest.CopyImage(t, old), bootInfo(t, old)
	firmware := enforcing(t, string(secureboot.List(keys.DB.Certificate)))
	before, err := os.ReadFile(path)
	require.NoError(t, err)

	u := newUpdater(t, path, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
	u.Owners = func() ([]*x509.Certificate, error) { return bootOwners(boot, firmware) }
	const says = " is refused: this machine starts only what Firstlight owner's db has signed: "
	refused := map[string]string{
		unsigned:                            unsigned + says + "slot.cfg has no signature for GRUB",
		ownertest.Sign(t, others, unsigned): says + "slot.cfg: its signature for GRUB is by none of these keys",
	}
	for _, file := range secureboot.SignedFiles {
		for _, name := range []string{file, file + secureboot.Suffix} {
			changed := disktest.CopyImage(t, next)
			at, content := bootFile(t, changed, name)
			at += int64(len(content)) - 2 // of slot.cfg, the end of the initramfs's digest
			writeToBoot(t, changed, at, []byte{content[len(content)-2] ^ 1})
			refused[changed] = says + file
		}
	}
	for image, why := range refused {
		_, err := u.Update(t.Context(), image, Options{Unsigned: true}, func(string, int64, int64) {})
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "sign it with firstlight sign --secure-boot; nothing is written")
		require.NotContains(t, err.Error(), "\n")
	}
	_, err = u.Update(t.Context(), unsigned, Options{}, func(string, int64, int64) {})
	require.Error(t, err)
	page, failed := os.ReadFile("../../../docs/disk.md")
	require.NoError(t, failed)
	assert.Contains(t, string(page), "\n"+strings.ReplaceAll(err.Error(), filepath.Dir(unsigned)+"/", "")+"\n")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "a refusal writes nothing")
	t.Logf("%d images refused", len(refused))

	_, err = u.Update(t.Context(), next, Options{}, func(string, int64, int64) {})
	require.NoError(t, err)
	versionOf["1.0.0"], versionOf["1.1.0"] = old, next
	slot, isTrial := bootOnce(t, path)
	require.Equal(t, stick.SlotB, slot)
	require.True(t, isTrial)
	writes := endless
	s := openFile(t, path, &writes)
	volume, err := fat.Open(s.Slots[slot].Boot)
	require.NoError(t, err)
	require.NoError(t, secureboot.CheckSlot(volume.ReadFile, []*x509.Certificate{keys.DB.Certificate}))

	// GRUB is the one that the firmware started before, with the key by which that slot is checked.
	esp, err := fat.Open(s.ESP)
	require.NoError(t, err)
	grub, err := esp.ReadFile(stick.LoaderPath[1:])
	require.NoError(t, err)
	require.NoError(t, secureboot.Verify(stick.LoaderPath, grub, []*x509.Certificate{keys.DB.Certificate}))
	assert.Contains(t, string(grub), string(secureboot.GRUBKey(&keys.DB.Private.PublicKey)))

	// By BIOS the same stick starts any image, since nothing there checks one.
	owners, err := bootOwners(boot, filepath.Join(t.TempDir(), "efi", "efivars"))
	require.NoError(t, err)
	assert.Empty(t, owners)
}
