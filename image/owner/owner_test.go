package owner_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/secureboot/secureboottest"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/owner"
	"firstlight.dev/firstlight/image/owner/ownertest"
)

// newImage is one that an owner can sign, with other files beside what is signed.
func newImage(t *testing.T, grub []byte) string {
	t.Helper()
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fa%02d", n) }
	config := stick.SlotConfig{Version: "1.2.3", RootHash: "aa", Kernel: "bb", Initramfs: "cc"}
	esp := []disk.File{
		disk.TextFile(stick.LoaderPath, []byte("shim")), disk.TextFile(stick.GrubConfigPath, []byte("set timeout=0\n")),
	}
	if grub != nil {
		esp = append(esp, disk.TextFile(stick.OwnedGRUBPath, grub))
	}
	path := filepath.Join(t.TempDir(), "firstlight.img")
	require.NoError(t, disk.Write(t.Context(), path, disk.Layout{GUID: guid(0), Partitions: []disk.Partition{
		{Name: stick.PartitionESP, Type: gpt.TypeESP, GUID: guid(1), Size: 34 << 20, Content: disk.FAT{
			Label: "ESP", VolumeID: 7, Files: esp,
		}},
		{Name: stick.PartitionSite, Type: gpt.TypeBasicData, GUID: guid(2), Size: 1 << 20, Content: disk.Bytes("site")},
		{Name: stick.PartitionBootA, Type: gpt.TypeLinuxBoot, GUID: guid(3), Size: 34 << 20, Content: disk.FAT{
			Label: "BOOT-A", VolumeID: 8, Files: []disk.File{
				disk.TextFile(stick.SlotConfigName, config.Encode()),
				disk.TextFile(stick.KernelName, secureboottest.Program([]byte("kernel"))),
				disk.TextFile(stick.InitramfsName, []byte("initramfs")),
				disk.TextFile(stick.SignatureName, stick.PadSignature([]byte("of the image before"))),
			},
		}},
	}}))
	return path
}

// reader reads files of a partition.
func reader(t *testing.T, image, name string) func(string) ([]byte, error) {
	t.Helper()
	f, err := os.Open(image)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	p, ok := table.Find(name)
	require.True(t, ok, name)
	volume, err := fat.Open(io.NewSectionReader(f, p.Offset(), p.Size()))
	require.NoError(t, err)
	assert.Empty(t, volume.Check())
	return volume.ReadFile
}

func TestAnImageIsSigned(t *testing.T) {
	keys := ownertest.NewKeys(t)
	image := newImage(t, secureboottest.Program(secureboot.PlaceholderKey()))
	out := filepath.Join(t.TempDir(), "signed.img")
	require.NoError(t, owner.SignImage(t.Context(), image, out, keys))

	trusted := []*x509.Certificate{keys.DB.Certificate}
	esp, boot := reader(t, out, stick.PartitionESP), reader(t, out, stick.PartitionBootA)
	loader, err := esp(stick.LoaderPath[1:])
	require.NoError(t, err)
	require.NoError(t, secureboot.Verify("loader", loader, trusted))
	assert.Contains(t, string(loader), string(secureboot.GRUBKey(&keys.DB.Private.PublicKey)))
	require.NoError(t, secureboot.CheckSlot(boot, trusted))
	require.Error(t, secureboot.CheckSlot(boot, []*x509.Certificate{ownertest.NewKeys(t).DB.Certificate}))
	require.ErrorContains(t, secureboot.CheckSlot(reader(t, image, stick.PartitionBootA), trusted), "slot.cfg")

	text, err := boot(stick.SlotConfigName)
	require.NoError(t, err)
	config, err := stick.ParseSlotConfig(text)
	require.NoError(t, err)
	assert.Equal(t, "aa", config.RootHash)
	assert.NotEqual(t, "bb", config.Kernel, "the signed kernel has another digest")
	place, err := boot(stick.SignatureName)
	require.NoError(t, err)
	assert.Equal(t, stick.PadSignature(nil), place, "the signature was of the image before")

	update, err := esp(stick.KeysDir[1:] + "/db.auth")
	require.NoError(t, err)
	content, err := secureboot.Content(update)
	require.NoError(t, err)
	assert.Equal(t, secureboot.List(keys.DB.Certificate), content)
	grubConfig, err := esp(stick.GrubConfigPath[1:])
	require.NoError(t, err)
	assert.Equal(t, "set timeout=0\n", string(grubConfig), "for BIOS all is as before")

	require.ErrorContains(t, owner.SignImage(t.Context(), image, out, keys), "file exists")
	left, err := filepath.Glob(filepath.Join(filepath.Dir(out), "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{out}, left)
	again := filepath.Join(t.TempDir(), "again.img")
	require.NoError(t, owner.SignImage(t.Context(), out, again, ownertest.NewKeys(t)), "another owner signs a signed image")
}

// TestAChangedSlotIsRefused with the file by name: one bit of each file, and of each signature.
func TestAChangedSlotIsRefused(t *testing.T) {
	keys := ownertest.NewKeys(t)
	out := filepath.Join(t.TempDir(), "signed.img")
	require.NoError(t, owner.SignImage(t.Context(), newImage(t, secureboottest.Program(secureboot.PlaceholderKey())), out, keys))
	boot := reader(t, out, stick.PartitionBootA)
	for _, name := range secureboot.SignedFiles {
		for _, changed := range []string{name, name + secureboot.Suffix} {
			read := func(n string) ([]byte, error) {
				b, err := boot(n)
				if err == nil && n == changed {
					b[len(b)/2] ^= 1
				}
				return b, err
			}
			require.ErrorContains(t, secureboot.CheckSlot(read, []*x509.Certificate{keys.DB.Certificate}), name, changed)
		}
	}
}

func TestAnImageWithoutAGRUBForOwnersIsRefused(t *testing.T) {
	out := filepath.Join(t.TempDir(), "signed.img")
	err := owner.SignImage(t.Context(), newImage(t, nil), out, ownertest.NewKeys(t))
	require.ErrorContains(t, err, "no GRUB that an owner could sign")
	assert.NoFileExists(t, out)
}

func TestKeysAreMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, owner.MakeKeys(dir, time.Now()))
	for _, name := range []string{"PK.key", "KEK.key", "db.key"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	require.ErrorContains(t, owner.MakeKeys(dir, time.Now()), "file exists")

	// What signs images needs no private half of PK and KEK: they can be kept elsewhere.
	require.NoError(t, os.Remove(filepath.Join(dir, "PK.key")))
	require.NoError(t, os.Remove(filepath.Join(dir, "KEK.key")))
	_, err := owner.ReadKeys(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "db.crt"), []byte("x"), 0o600))
	_, err = owner.ReadKeys(dir)
	require.ErrorContains(t, err, "no certificate in PEM")
}
