package disc

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat12"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files of a disc; none has a size that fills its last sector.
var (
	loaders = Loaders{Shim: bytes.Repeat([]byte("shim"), 250_001), GRUB: bytes.Repeat([]byte("grub"), 580_003)}
	kernel  = bytes.Repeat([]byte("kernel"), 10_007)
	ramdisk = bytes.Repeat([]byte("ramdisk"), 30_011)
	args    = []string{"console=ttyS0,115200", "ipa-api-url=https://172.22.0.1:6385/b/a-B_9", "address=172.22.0.50/24"}
)

// write makes a disc and writes it to a file.
func write(t *testing.T) (name string, whole []byte) {
	t.Helper()
	l, err := NewLayout(loaders, int64(len(kernel)), int64(len(ramdisk)))
	require.NoError(t, err)
	d, err := l.Disc(bytes.NewReader(kernel), bytes.NewReader(ramdisk), args)
	require.NoError(t, err)
	whole, err = io.ReadAll(d)
	require.NoError(t, err)
	assert.Zero(t, len(whole)%sector)
	assert.EqualValues(t, len(whole), d.Size())
	name = filepath.Join(t.TempDir(), "disc.iso")
	require.NoError(t, os.WriteFile(name, whole, 0o644))
	return name, whole
}

// wantedConfig is what GRUB is to do first.
const wantedConfig = "if linux /vmlinuz console=ttyS0,115200 ipa-api-url=https://172.22.0.1:6385/b/a-B_9 address=172.22.0.50/24; then\n"

func TestADiscHasItsFiles(t *testing.T) {
	name, whole := write(t)
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	volume, err := iso9660.Read(file.New(f, true), int64(len(whole)), 0, sector)
	require.NoError(t, err)
	assert.Equal(t, "FIRSTLIGHT", strings.TrimRight(volume.Label(), " \x00"))
	for name, want := range map[string][]byte{"vmlinuz": kernel, "initrd": ramdisk} {
		got, err := volume.ReadFile(name)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), name)
	}
	checkLoaders(t, firmwareImage(t, whole))
}

func checkLoaders(t *testing.T, efi []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "efi.img")
	require.NoError(t, os.WriteFile(name, efi, 0o644))
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	volume, err := fat12.Read(file.New(f, true), int64(len(efi)), 0, 512)
	require.NoError(t, err)
	for name, want := range map[string][]byte{"BOOTX64.EFI": loaders.Shim, "grubx64.efi": loaders.GRUB} {
		got, err := volume.ReadFile("/EFI/BOOT/" + name)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), name)
	}

	out, err := exec.Command("fsck.vfat", "-n", name).CombinedOutput()
	if _, missing := err.(*exec.Error); missing {
		t.Log("fsck.vfat is not installed")
		return
	}
	assert.NotContains(t, string(out), "differ", "%s", out)
	assert.Contains(t, string(out), "5 files", "%s", out)
}

// firmwareImage is what a firmware starts of a disc: the image of the first entry of the catalog that the boot record
// names (El Torito, version 1.0).
func firmwareImage(t *testing.T, whole []byte) []byte {
	t.Helper()
	record := whole[17*sector:]
	if record[0] != 0 {
		record = whole[18*sector:]
	}
	require.Equal(t, "\x00CD001\x01EL TORITO SPECIFICATION", string(record[:30]))
	catalog := whole[int(record[0x47])*sector:]
	var sum uint16
	for i := 0; i < 0x20; i += 2 {
		sum += uint16(catalog[i]) | uint16(catalog[i+1])<<8
	}
	assert.Zero(t, sum)
	assert.Equal(t, []byte{1, 0xef}, catalog[:2], "not for UEFI")
	assert.Equal(t, []byte{0x55, 0xaa}, catalog[0x1e:0x20])
	entry := catalog[0x20:]
	assert.Equal(t, []byte{0x88, 0}, entry[:2], "it does not boot, or emulates another medium")
	sectors := int(entry[6]) | int(entry[7])<<8
	at := int(entry[8]) | int(entry[9])<<8 | int(entry[10])<<16
	return whole[at*sector:][:sectors*512]
}

// TestOtherProgramsReadADisc: GRUB's own code, and that of mkisofs.
func TestOtherProgramsReadADisc(t *testing.T) {
	name, _ := write(t)
	for _, x := range []struct {
		program []string
		want    string
	}{
		{[]string{"grub-fstest", name, "cat", "(loop0)/" + infoFile}, "boots the deploy ramdisk"},
		{[]string{"grub-fstest", name, "cat", "(loop0)/" + configFile}, wantedConfig},
		{[]string{"grub-fstest", name, "cat", "(loop0)/vmlinuz"}, string(kernel)},
		{[]string{"grub-fstest", name, "cat", "(loop0)/initrd"}, string(ramdisk)},
		{[]string{"isoinfo", "-d", "-i", name}, "Eltorito defaultboot header:\n        Bootid 88 (bootable)"},
		{[]string{"isoinfo", "-R", "-i", name, "-x", "/" + configFile}, wantedConfig},
		{[]string{"isoinfo", "-R", "-i", name, "-x", "/" + loadersFile}, string(loaders.Shim)},
		{[]string{"isoinfo", "-R", "-i", name, "-x", "/initrd"}, string(ramdisk)},
	} {
		t.Run(filepath.Base(x.program[0])+" "+filepath.Base(x.program[len(x.program)-1]), func(t *testing.T) {
			if _, err := exec.LookPath(x.program[0]); err != nil {
				t.Skip(x.program[0], "is not installed")
			}
			out, err := exec.Command(x.program[0], x.program[1:]...).CombinedOutput()
			require.NoError(t, err, "%.300s", out)
			assert.True(t, bytes.Contains(out, []byte(x.want)), "%.300s", out)
		})
	}
}

func TestADiscIsReadFromAnyPlace(t *testing.T) {
	_, whole := write(t)
	l, err := NewLayout(loaders, int64(len(kernel)), int64(len(ramdisk)))
	require.NoError(t, err)
	d, err := l.Disc(bytes.NewReader(kernel), bytes.NewReader(ramdisk), args)
	require.NoError(t, err)
	again, err := io.ReadAll(iotest.HalfReader(d))
	require.NoError(t, err)
	assert.Len(t, again, len(whole))
	for _, h := range l.holes {
		for _, at := range []int64{h.at - 5, h.at, h.at + h.size - 5, h.at + h.size} {
			_, err := d.Seek(at, io.SeekStart)
			require.NoError(t, err)
			var some bytes.Buffer
			_, err = d.WriteN(&some, 10)
			require.NoError(t, err)
			assert.Equal(t, again[at:min(at+10, int64(len(again)))], some.Bytes(), "byte %d", at)
		}
	}
}

func TestArgumentsAreNothingElseToGRUB(t *testing.T) {
	l, err := NewLayout(Loaders{Shim: []byte("shim"), GRUB: []byte("grub")}, 100, 100)
	require.NoError(t, err)
	for _, arg := range []string{"", "a b", "a;reboot", "$root", "a\nb", `"a"`, "{a}", "ä", strings.Repeat("a", configSize)} {
		_, err := l.Disc(bytes.NewReader(nil), bytes.NewReader(nil), []string{arg})
		assert.ErrorIs(t, err, ErrArguments, "%q", arg)
	}
}
