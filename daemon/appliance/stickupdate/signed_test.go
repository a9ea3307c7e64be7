package stickupdate

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/disktest"
	"firstlight.dev/firstlight/image/media"
)

// withPlace adds the place for a signature to the slot.
func withPlace(s *disk.Stick) {
	s.Slot = append(s.Slot, disk.TextFile(stick.SignatureName, stick.PadSignature(nil)))
}

// signImage signs an image as `firstlight sign` does.
func signImage(t *testing.T, key signature.PrivateKey, path string) signature.Signature {
	t.Helper()
	slot, err := media.SlotDigest(t.Context(), path)
	require.NoError(t, err)
	require.NotEmpty(t, slot)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s, err := key.Sign(t.Context(), f, path, slot)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+signature.Suffix, []byte(s.Text()), 0o600))
	return s
}

func newKey(t *testing.T) signature.PrivateKey {
	t.Helper()
	key, err := signature.NewPrivateKey()
	require.NoError(t, err)
	return key
}

// rewrite replaces bytes of a file's first place where they are.
func rewrite(t *testing.T, path string, old, new []byte) {
	t.Helper()
	all, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(all, old)
	require.Positive(t, at)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(new, int64(at))
	require.NoError(t, errors.Join(err, f.Close()))
}

// writeToBoot writes bytes at a place of the boot partition in an image.
func writeToBoot(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(stick.PartitionBootA)
	require.True(t, ok)
	_, err = f.WriteAt(b, p.Offset()+at)
	require.NoError(t, err)
}

// TestWithAKeyKnownOnlyASignedImageIsTaken: what is refused is refused in one line, and the stick is as it was.
func TestWithAKeyKnownOnlyASignedImageIsTaken(t *testing.T) {
	key, other := newKey(t), newKey(t)
	id := key.Public().ID()
	stickPath := disktest.CopyImage(t, makeImage(t, "1.0.0", 70))
	before, err := os.ReadFile(stickPath)
	require.NoError(t, err)

	unsigned := makeImage(t, "1.1.0", 60)
	foreign := makeImage(t, "1.1.0", 60)
	signImage(t, other, foreign)
	second := makeImage(t, "1.2.0", 60)
	swapped := makeImage(t, "1.1.0", 60)
	require.NoError(t, os.WriteFile(swapped+signature.Suffix, []byte(signImage(t, key, second).Text()), 0o600))
	added := makeImage(t, "1.1.0", 60) // GRUB would run it
	signImage(t, key, added)
	rewrite(t, added, []byte("# What this slot starts; grub.cfg"), []byte("insmod evil\n# at this slot starts"))
	kernel := makeImage(t, "1.1.0", 60)
	signImage(t, key, kernel)
	rewrite(t, kernel, []byte("kernel of"), []byte("evil   of"))
	twofold := makeImage(t, "1.1.0", 60) // GRUB looks for HFS+ and others before it does for FAT
	signImage(t, key, twofold)
	writeToBoot(t, twofold, 1024, []byte("H+\x00\x04"))
	plain := makeImage(t, "1.1.0", 60)
	s, err := key.Sign(t.Context(), bytes.NewReader([]byte("debian")), "debian.qcow2", "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(plain+signature.Suffix, []byte(s.Text()), 0o600))

	trusted := func() (signature.Keys, error) { return signature.Keys{key.Public()}, nil }
	unknown := func() (signature.Keys, error) { return nil, errors.New("site.yaml:3: nodes is torn") }
	none := func() (signature.Keys, error) { return nil, nil }
	for _, c := range []struct {
		name string
		path string
		keys func() (signature.Keys, error)
		o    Options
		says string
	}{
		{"unsigned", unsigned, trusted, Options{},
			unsigned + " is refused: it is not signed: there is no file " + unsigned + ".minisig; nothing is written"},
		{"signed by another", foreign, trusted, Options{}, "which is not known here; known: " + id + "; nothing is written"},
		{"signature of another image", swapped, trusted, Options{}, "is that of another image, or the image was changed"},
		{"changed configuration", added, trusted, Options{}, "is that of another image, or the image was changed"},
		{"changed kernel", kernel, trusted, Options{}, "is that of another image, or the image was changed"},
		{"another file system beside the signed one", twofold, trusted, Options{}, "is that of another image, or the image was changed"},
		{"changed kernel, unsigned", kernel, trusted, Options{Unsigned: true}, "is damaged: vmlinuz differs from its digest"},
		{"signature of no stick", plain, trusted, Options{}, "its signature is that of debian.qcow2, which is no image of a stick"},
		{"named signature is not there", second, trusted, Options{Signature: "/none"}, "it is not signed: there is no file /none"},
		{"site cannot be read", second, unknown, Options{}, "which keys sign updates is not known: site.yaml:3: nodes is torn"},
		{"signature without a key", second, none, Options{Signature: second + signature.Suffix}, "name it in updates.keys of site.yaml"},
	} {
		u := newUpdater(t, stickPath, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
		u.Keys = c.keys
		_, err := u.Update(t.Context(), c.path, c.o, func(string, int64, int64) {})
		require.ErrorContains(t, err, c.says, c.name)
		require.NotContains(t, err.Error(), "\n", c.name)
	}

	u := newUpdater(t, stickPath, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
	u.Keys = trusted
	_, err = u.Update(t.Context(), unsigned, Options{}, func(string, int64, int64) {})
	require.Error(t, err)
	page, failed := os.ReadFile("../../../docs/disk.md")
	require.NoError(t, failed)
	assert.Contains(t, string(page), "\n"+strings.ReplaceAll(err.Error(), filepath.Dir(unsigned)+"/", "")+"\n")

	u = newUpdater(t, stickPath, "2.0.0", stick.SlotA, false, t.TempDir(), "1")
	u.Keys = trusted
	_, err = u.Update(t.Context(), second, Options{}, func(string, int64, int64) {})
	require.ErrorContains(t, err, "1.2.0 is older than the running 2.0.0", "a signature is no consent to that")
	after, err := os.ReadFile(stickPath)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "a refusal writes nothing")
}

// TestABootPartitionThatCanBeReadInTwoWaysIsRefused: GRUB might start the other kernel.
func TestABootPartitionThatCanBeReadInTwoWaysIsRefused(t *testing.T) {
	for name, says := range map[string]string{
		"vmlinux": "its boot partition: /vmlinux: its long name is not that of its entry",
		"VMLINUX": "its boot partition has two files vmlinuz",
	} {
		path := makeImage(t, "1.1.0", 60, func(s *disk.Stick) {
			s.Slot = append(s.Slot, disk.TextFile(name, []byte("evil")))
		})
		rewrite(t, path, []byte("VMLINUX "), []byte("VMLINUZ "))
		i, err := Open(path)
		require.NoError(t, err)
		require.ErrorContains(t, i.Check(t.Context()), says, name)
		require.NoError(t, i.Close())
	}
}

// TestASignatureTravels from a file next to an image to the slot, and from there to the next appliance.
func TestASignatureTravels(t *testing.T) {
	key := newKey(t)
	old, image := makeImage(t, "1.0.0", 70, withPlace), makeImage(t, "1.1.0", 60, withPlace)
	signed := signImage(t, key, image)
	nothing := func(string, int64, int64) {}
	trusted := func() (signature.Keys, error) { return signature.Keys{key.Public()}, nil }

	first := disktest.CopyImage(t, old)
	u := newUpdater(t, first, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
	u.Keys = trusted
	r, err := u.Update(t.Context(), image, Options{}, nothing)
	require.NoError(t, err)
	assert.Equal(t, key.Public().ID(), r.SignedBy)
	assert.Empty(t, r.Unsigned)
	writes := endless
	boot := openFile(t, first, &writes).Slots[stick.SlotB].Boot
	volume, err := fat.Open(boot)
	require.NoError(t, err)
	text, err := volume.ReadFile(stick.SignatureName)
	require.NoError(t, err)
	assert.Equal(t, stick.PadSignature([]byte(signed.Text())), text)

	// A stick that was written with the signature is an image without a file next to it.
	second := disktest.CopyImage(t, image)
	f, err := os.OpenFile(second, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(stick.PartitionBootA)
	require.True(t, ok)
	require.NoError(t, putSignature(Partition{region{f, p.Offset(), &writes}, p.Size()}, []byte(signed.Text())))
	third := disktest.CopyImage(t, old)
	u = newUpdater(t, third, "1.0.0", stick.SlotA, false, t.TempDir(), "1")
	u.Keys = trusted
	r, err = u.Update(t.Context(), second, Options{}, nothing)
	require.NoError(t, err)
	assert.Equal(t, key.Public().ID(), r.SignedBy)

	rewrite(t, second, []byte("trusted comment: file:"), []byte("trusted comment: fire:"))
	_, err = u.Update(t.Context(), second, Options{}, nothing)
	require.ErrorContains(t, err, "was changed, or is not by that key; nothing is written")
}

// TestWhatWasTakenUnsignedIsSaid as long as it runs.
func TestWhatWasTakenUnsignedIsSaid(t *testing.T) {
	key := newKey(t)
	old, image := makeImage(t, "1.0.0", 70), makeImage(t, "1.1.0", 60)
	versionOf["1.0.0"], versionOf["1.1.0"] = old, image
	path, dir := disktest.CopyImage(t, old), t.TempDir()
	u := newUpdater(t, path, "1.0.0", stick.SlotA, false, dir, "boot 1")
	u.Keys = func() (signature.Keys, error) { return signature.Keys{key.Public()}, nil }
	_, err := u.Update(t.Context(), image, Options{Unsigned: true}, func(string, int64, int64) {})
	require.NoError(t, err)
	const said = "; it was taken with --unsigned: it is not signed: there is no file "
	require.NoError(t, u.follow(true, ""))
	assert.Contains(t, u.Note(), "version 1.1.0 is written to slot b and is tried at the next start: systemctl reboot"+said)

	slot, trial := bootOnce(t, path)
	u = newUpdater(t, path, "1.1.0", slot, trial, dir, "boot 2")
	require.NoError(t, u.follow(false, "links-up: waits"))
	require.NoError(t, u.follow(true, "ready"))
	require.NoError(t, u.follow(true, "ready"))
	assert.Contains(t, u.Note(), "version 1.1.0 is kept; 1.0.0 was before it"+said)
	u = newUpdater(t, path, "1.1.0", slot, false, dir, "boot 3")
	require.NoError(t, u.follow(true, "ready"))
	assert.Contains(t, u.Note(), said)
}
