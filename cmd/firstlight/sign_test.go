package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// slottedImage is an image with a slot, compressed as well, in a directory of its own.
func slottedImage(t *testing.T) string {
	t.Helper()
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fa%02d", n) }
	config := stick.SlotConfig{Version: "1.2.3", RootHash: "aa", Kernel: "bb", Initramfs: "cc"}
	path := filepath.Join(t.TempDir(), "firstlight.img")
	require.NoError(t, disk.Write(t.Context(), path, disk.Layout{GUID: guid(0), Partitions: []disk.Partition{
		{Name: "BIOS", Type: gpt.TypeBIOSBoot, GUID: guid(1), Size: 1 << 20, Content: disk.Bytes("core")},
		{Name: "BOOT-A", Type: gpt.TypeLinuxBoot, GUID: guid(2), Size: 34 << 20, Content: disk.FAT{
			Label: "BOOT-A", Files: []disk.File{
				disk.TextFile(stick.SlotConfigName, config.Encode()),
				disk.TextFile(stick.SignatureName, stick.PadSignature(nil)),
			},
		}},
	}}))
	_, err := media.Publish(t.Context(), path, nil)
	require.NoError(t, err)
	return path
}

// newSigningKey makes a key by the command, and returns its file.
func newSigningKey(t *testing.T) (path string, key signature.PublicKey) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "signing.key")
	out, _, err := command(t, "", "keys", "new", "--signing", path)
	require.NoError(t, err)
	key, err = signature.ParsePublicKey(out)
	require.NoError(t, err)
	return path, key
}

func TestASigningKeyIsMadeOnce(t *testing.T) {
	path, key := newSigningKey(t)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	trusted, err := readTrust([]string{path + ".pub"})
	require.NoError(t, err)
	assert.Equal(t, signature.Keys{key}, trusted)

	_, _, err = command(t, "", "keys", "new", "--signing", path)
	require.ErrorContains(t, err, "file exists")
	_, err = readTrust([]string{path})
	require.ErrorContains(t, err, "this is a signing key, which must stay with who signs")
	_, _, err = command(t, "", "sign", path, "--key", path+".pub")
	require.ErrorContains(t, err, "it is no signing key")
}

func TestAnImageIsSigned(t *testing.T) {
	image := slottedImage(t)
	key, public := newSigningKey(t)
	out, _, err := command(t, "", "sign", image, image+".zst", "--key", key)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("%s.minisig: signed by the key %s\n%s.zst.minisig: signed by the key %s\n",
		image, public.ID(), image, public.ID()), out)

	var slots []string
	for _, path := range []string{image, image + ".zst"} {
		says, _, err := signature.Keys{public}.CheckFile(t.Context(), path)
		require.NoError(t, err)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(content)), says.SHA256)
		slots = append(slots, says.Slot)
	}
	want, err := bootVolume(t, image).Digest(stick.SignatureName)
	require.NoError(t, err)
	assert.Equal(t, []string{want, want}, slots)

	other := filepath.Join(t.TempDir(), "debian.qcow2")
	require.NoError(t, os.WriteFile(other, []byte("QFI\xfb and so on"), 0o600))
	_, _, err = command(t, "", "sign", other, "--key", key)
	require.NoError(t, err)
	says, _, err := signature.Keys{public}.CheckFile(t.Context(), other)
	require.NoError(t, err)
	assert.Empty(t, says.Slot)
}

// TestFlashTakesWhatATrustedKeySigned, and puts the signature onto the stick; else nothing is written.
func TestFlashTakesWhatATrustedKeySigned(t *testing.T) {
	image, target := slottedImage(t), filepath.Join(t.TempDir(), "stick")
	key, public := newSigningKey(t)
	other, _ := newSigningKey(t)
	blank := func() {
		emptyFile(t, target, 50<<20)
	}
	isBlank := func() bool {
		b, err := os.ReadFile(target)
		require.NoError(t, err)
		return len(bytes.Trim(b, "\x00")) == 0
	}
	site := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(site, []byte("updates: {keys: ["+public.String()+"]}\n"), 0o600))

	blank()
	for _, c := range []struct {
		name   string
		change func()
		by     []string // options
		says   string
	}{
		{"unsigned", func() {}, []string{"--trust", key + ".pub"},
			"refused: " + image + ": it is not signed: there is no file " + image + ".minisig; nothing is written"},
		{"unsigned, key of the site", func() {}, []string{"--site", site}, "it is not signed"},
		{"wrong key", func() {
			_, _, err := command(t, "", "sign", image, "--key", other)
			require.NoError(t, err)
		}, []string{"--trust", key + ".pub"}, "which is not known here; known: " + public.ID() + "; nothing is written"},
		{"changed", func() {
			_, _, err := command(t, "", "sign", image, "--key", key)
			require.NoError(t, err)
			f, err := os.OpenFile(image, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			_, err = f.WriteAt([]byte("x"), 1<<20)
			require.NoError(t, err)
		}, []string{"--trust", key + ".pub"}, "it is not what was signed with the key " + public.ID()},
		{"the private half", func() {}, []string{"--trust", key}, "this is a signing key"},
	} {
		c.change()
		_, _, err := command(t, "", append([]string{"flash", image, target, "--force-device", target}, c.by...)...)
		require.ErrorContains(t, err, c.says, c.name)
		require.True(t, isBlank(), c.name)
	}

	require.NoError(t, os.Remove(image+".bmap")) // of before the change
	_, _, err := command(t, "", "sign", image, "--key", key)
	require.NoError(t, err)
	for _, by := range [][]string{{"--trust", other + ".pub", "--trust", key + ".pub"}, nil} {
		blank()
		out, _, err := command(t, "", append([]string{"flash", image, target, "--force-device", target}, by...)...)
		require.NoError(t, err)
		if by != nil {
			assert.Contains(t, out, image+" is signed by the key "+public.ID()+"\n")
		}
		want, err := os.ReadFile(image + ".minisig")
		require.NoError(t, err)
		assert.Equal(t, string(stick.PadSignature(want)), embedded(t, target))
		signed, err := bootVolume(t, image).Digest(stick.SignatureName)
		require.NoError(t, err)
		written, err := bootVolume(t, target).Digest(stick.SignatureName)
		require.NoError(t, err)
		assert.Equal(t, signed, written, "the signature is that of the stick, too")
	}
	assert.Equal(t, string(stick.PadSignature(nil)), embedded(t, image), "the image stays as it is")

	require.NoError(t, os.WriteFile(image+".minisig", []byte("nonsense"), 0o600))
	blank()
	out, _, err := command(t, "", "flash", image, target, "--force-device", target)
	require.NoError(t, err, "no one asked for a signature")
	assert.Contains(t, out, "the stick gets no signature: read signature "+image+".minisig: it is no signature of minisign\n")
	assert.Equal(t, string(stick.PadSignature(nil)), embedded(t, target))
}

// bootVolume is the boot partition of slot a of a stick.
func bootVolume(t *testing.T, path string) *fat.Volume {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	boot, ok := table.Find("BOOT-A")
	require.True(t, ok)
	volume, err := fat.Open(io.NewSectionReader(f, boot.Offset(), boot.Size()))
	require.NoError(t, err)
	return volume
}

// embedded is the signature in slot a of a stick.
func embedded(t *testing.T, path string) string {
	t.Helper()
	volume := bootVolume(t, path)
	assert.Empty(t, volume.Check())
	text, err := volume.ReadFile(stick.SignatureName)
	require.NoError(t, err)
	return string(text)
}
