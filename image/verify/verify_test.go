package verify_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/mkfs"
	"firstlight.dev/firstlight/image/media"
	"firstlight.dev/firstlight/image/verify"
)

// rootTar is a root with one unit; program says what the unit starts.
func rootTar(t *testing.T, program string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	noise := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(noise)
	for _, f := range []struct {
		name, data string
		mode       int64
	}{
		{"./", "", 0o755}, {"usr/", "", 0o755}, {"usr/bin/", "", 0o755}, {"usr/bin/firstlightd", "\x7fELF" + string(noise), 0o755},
		{"usr/lib/", "", 0o755}, {"usr/lib/systemd/", "", 0o755}, {"usr/lib/systemd/system/", "", 0o755},
		{"usr/lib/systemd/system/firstlightd.service", "[Service]\nExecStart=" + program + "\n", 0o644},
		{"secret/", "", 0o000},
	} {
		h := tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: time.Unix(1, 0), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, f.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func file(name, content string) disk.File {
	return disk.File{Path: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

// made builds a small stick; change may spoil it before it is written.
func made(t *testing.T, program string, change func(*disk.Stick)) string {
	t.Helper()
	tool, err := exec.LookPath("mksquashfs")
	if err != nil {
		t.Skip("mksquashfs (squashfs-tools) is not installed; it makes the root that is checked")
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	require.NoError(t, mkfs.Squashfs(context.Background(), mkfs.Tool{tool}, rootTar(t, program), root, time.Unix(1, 0)))
	hash, _, err := disk.Seal(context.Background(), root, 0, verity.Known{})
	require.NoError(t, err)
	boot := bytes.Repeat([]byte{0xcc}, 512)
	boot[510], boot[511] = 0x55, 0xaa
	core := bytes.Repeat([]byte{0xc0}, 20*512)
	binary.LittleEndian.PutUint16(core[0x1fc:], 19)
	kernel := strings.Repeat("kernel", 200_000)
	config := stick.SlotConfig{
		Version: "1", RootHash: hash, Kernel: fmt.Sprintf("%x", sha256.Sum256([]byte(kernel))),
		Initramfs: fmt.Sprintf("%x", sha256.Sum256([]byte("initramfs"))),
	}
	s := disk.Stick{
		ESP: []disk.File{
			file("EFI/BOOT/BOOTX64.EFI", "MZ shim"), file("EFI/BOOT/grubx64.efi", "MZ grub"),
			file("EFI/debian/grub.cfg", "load_env --file /EFI/debian/grubenv slot try\nsource $boot/slot.cfg\n"+
				"if linux $boot/vmlinuz quiet firstlight.verity=$verity\nthen\n  initrd $boot/initramfs.img\nfi\n"),
			file("EFI/debian/grubenv", string(stick.Environment{Slot: stick.SlotA}.Encode())),
		},
		Slot: []disk.File{file("vmlinuz", kernel), file("initramfs.img", "initramfs"), file("slot.cfg", string(config.Encode()))},
		Site: []disk.File{file("README.txt", "hello")},
		Root: disk.Image(root), Boot: boot, Core: core,
	}
	if change != nil {
		change(&s)
	}
	l, err := s.Layout()
	require.NoError(t, err)
	path := filepath.Join(dir, "x.img")
	require.NoError(t, disk.Write(context.Background(), path, l))
	return path
}

func run(t *testing.T, path string) []verify.Finding {
	t.Helper()
	if _, err := exec.LookPath("unsquashfs"); err != nil {
		t.Skip("unsquashfs (squashfs-tools) is not installed; it unpacks the root")
	}
	report, err := verify.Run(context.Background(), path, verify.Options{})
	require.NoError(t, err)
	return report.Findings
}

func handOut(t *testing.T, path string) {
	t.Helper()
	p, err := media.Publish(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, media.WriteSums(filepath.Dir(path), []string{"x.img", "x.img.zst", "x.img.bmap"}, p.Sums))
}

func TestSoundImageHasNoFinding(t *testing.T) {
	path := made(t, "/usr/bin/firstlightd", nil)
	assert.Empty(t, run(t, path), "raw, alone")
	handOut(t, path)
	assert.Empty(t, run(t, path), "raw, with digests")
	assert.Empty(t, run(t, path+media.SuffixZstd), "compressed")
}

func TestMissOfTheRootIsNamed(t *testing.T) {
	findings := run(t, made(t, "/usr/bin/firstlightq", nil))
	require.NotEmpty(t, findings)
	assert.Equal(t, "closure: ROOT-A: /usr/lib/systemd/system/firstlightd.service:2: ExecStart=/usr/bin/firstlightq: no such program", findings[0].String())
}

// flip changes one byte of the image; doing it twice changes nothing.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 0x20
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}

// TestFlippedByteIsNamed needs nothing but the image itself.
func TestFlippedByteIsNamed(t *testing.T) {
	path := made(t, "/usr/bin/firstlightd", nil)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	at := func(name string, offset int64) int64 {
		p, ok := table.Find(name)
		require.True(t, ok)
		return p.Offset() + offset
	}
	root, _ := table.Find("ROOT-A")
	data, err := media.SquashfsSize(io.NewSectionReader(f, root.Offset(), root.Size()))
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		at   int64
		want string
	}{
		{"protective MBR", 450, "table: disk at byte 0: no protective MBR"},
		{"boot code", 0x5d, "boot: disk at byte 93: boot code is not patched for a core at sector 2048"},
		{"primary header", 512 + 30, "table: disk at byte 512: primary table: GPT header at sector 1: checksum"},
		{"primary entries", 1024 + 40, "primary table: GPT entries at sector 2: checksum"},
		{"backup header", info.Size() - 500, fmt.Sprintf("table: disk at byte %d: backup table", info.Size()-512)},
		{"core.img", at("BIOS", 0x1f5), "boot: BIOS at byte 501: core.img is not patched"},
		{"FAT of ESP", at("ESP", 32*512+4*3), "fat: ESP: the FATs differ for cluster 3"},
		{"boot sector of SITE", at("SITE", 0x43), "fat: SITE: boot sector and its copy in sector 6 differ"},
		{"root superblock", at("ROOT-A", 1), "root: ROOT-A at byte 0: no squashfs superblock"},
		{"root data", at("ROOT-A", 1<<20+77), "root: ROOT-A at byte 1048576: this block differs from its hash"},
		{"verity superblock", at("ROOT-A", data), fmt.Sprintf("root: ROOT-A at byte %d: no verity superblock", data)},
		{"hash tree top", at("ROOT-A", data+4096+3), "the top of the hash tree does not give the root hash"},
		{"hash tree leaf", at("ROOT-A", data+2*4096+3), fmt.Sprintf("root: ROOT-A at byte %d: this block of the hash tree differs", data+2*4096)},
	} {
		t.Run(c.name, func(t *testing.T) {
			flip(t, path, c.at)
			defer flip(t, path, c.at)
			var all []string
			for _, f := range run(t, path) {
				all = append(all, f.String())
			}
			assert.Contains(t, strings.Join(all, "\n"), c.want)
		})
	}
}

// TestAnyByteThatMattersIsFoundByTheBlockMap flips bytes at random places in use.
func TestAnyByteThatMattersIsFoundByTheBlockMap(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the image once for each of its extents, which takes long: leave out -short")
	}
	path := made(t, "/usr/bin/firstlightd", nil)
	_, err := media.Publish(context.Background(), path, nil)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path+media.SuffixZstd))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	used, err := media.UsedExtents(f, info.Size())
	require.NoError(t, err)
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	random := rand.New(rand.NewSource(5))
	for _, e := range used {
		at := e.Start + random.Int63n(e.End-e.Start)
		found := false
		flip(t, path, at)
		for _, one := range run(t, path) {
			base := int64(0)
			if p, ok := table.Find(one.Partition); ok {
				base = p.Offset()
			}
			found = found || one.Check == "digests" && base+one.Offset <= at && at < base+one.Offset+1<<20
		}
		assert.True(t, found, "byte %d of the disk", at)
		flip(t, path, at)
	}
}

func TestSpoiledSticks(t *testing.T) {
	drop := func(name string) func(*disk.Stick) {
		return func(s *disk.Stick) {
			named := func(f disk.File) bool { return f.Path == name }
			s.ESP, s.Slot = slices.DeleteFunc(s.ESP, named), slices.DeleteFunc(s.Slot, named)
		}
	}
	replace := func(name, text string) func(*disk.Stick) {
		return func(s *disk.Stick) {
			drop(name)(s)
			if strings.Contains(name, "/") {
				s.ESP = append(s.ESP, file(name, text))
			} else {
				s.Slot = append(s.Slot, file(name, text))
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*disk.Stick)
		want   string
	}{
		{"no kernel", drop("vmlinuz"), "boot: BOOT-A: /EFI/debian/grub.cfg names /vmlinuz, which is not there or empty"},
		{"another kernel", replace("vmlinuz", "other"), "boot: BOOT-A: vmlinuz differs from its digest in slot.cfg"},
		{"no slot.cfg", drop("slot.cfg"), "boot: BOOT-A: /EFI/debian/grub.cfg names /slot.cfg, which is not there or empty"},
		{"an empty slot.cfg", replace("slot.cfg", "#"), "boot: BOOT-A: slot.cfg does not say what initramfs is"},
		{"no grubenv", drop("EFI/debian/grubenv"), "boot: ESP: /EFI/debian/grub.cfg names /EFI/debian/grubenv, which is not there or empty"},
		{"a short grubenv", replace("EFI/debian/grubenv", "slot=a"), "boot: ESP: /EFI/debian/grubenv: no environment block of GRUB, which has 1024 bytes"},
		{"an empty slot", replace("EFI/debian/grubenv", string(stick.Environment{Slot: stick.SlotB}.Encode())), "boot: ESP: /EFI/debian/grubenv names slot b, which is empty"},
		{"no shim", drop("EFI/BOOT/BOOTX64.EFI"), "boot: ESP: /EFI/BOOT/BOOTX64.EFI is not there or no EFI program"},
		{"no grub.cfg", drop("EFI/debian/grub.cfg"), "boot: ESP: /EFI/debian/grub.cfg is not there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all []string
			for _, f := range run(t, made(t, "/usr/bin/firstlightd", c.change)) {
				all = append(all, f.String())
			}
			assert.Contains(t, all, c.want)
		})
	}
}

func TestDigestsBeside(t *testing.T) {
	path := made(t, "/usr/bin/firstlightd", nil)
	handOut(t, path)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(path), "SHA256SUMS"))
	require.NoError(t, err)
	wrong := "0" + string(text[1:])
	if text[0] == '0' {
		wrong = "1" + string(text[1:])
	}
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "SHA256SUMS"), []byte(wrong), 0o644))
	findings := run(t, path)
	require.Len(t, findings, 1)
	assert.Contains(t, findings[0].String(), "digests: disk: x.img has sha256 ")
}

func TestWhatCannotBeOpenedIsAnError(t *testing.T) {
	_, err := verify.Run(context.Background(), "/nonexistent.img", verify.Options{})
	assert.ErrorContains(t, err, "open image: open /nonexistent.img")
	empty := filepath.Join(t.TempDir(), "empty.img")
	require.NoError(t, os.WriteFile(empty, make([]byte, 1<<20), 0o644))
	_, err = verify.Run(context.Background(), empty, verify.Options{})
	assert.ErrorContains(t, err, "is no image of a stick", "an image of zeros is not sound")
}
