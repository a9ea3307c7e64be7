package disk_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	diskgpt "github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
)

// program finds an independent reader or skips.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/sbin", "/usr/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed; it is an independent reader of what we write", name)
	return ""
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "MTOOLS_SKIP_CHECK=1"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
	return string(out)
}

func text(path, content string) disk.File {
	return disk.File{Path: path, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}
}

// bootImg and coreImg have GRUB's sizes, signature and block list, and nothing to run.
func bootImg() []byte {
	b := bytes.Repeat([]byte{0xcc}, 512)
	b[510], b[511] = 0x55, 0xaa
	return b
}

func coreImg(sectors int) []byte {
	b := bytes.Repeat([]byte{0xc0}, sectors*512-100)
	binary.LittleEndian.PutUint64(b[0x1f4:], 1)
	binary.LittleEndian.PutUint16(b[0x1fc:], uint16(sectors-1))
	return b
}

func rootFile(t *testing.T, size int) string {
	t.Helper()
	b := make([]byte, size)
	for i := 0; i < size/3; i += 7 {
		b[i] = byte(i)
	}
	b[size-1] = 1
	path := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	return path
}

func someStick(t *testing.T) disk.Stick {
	return disk.Stick{
		ESP: []disk.File{
			text("firstlight/large", strings.Repeat("kernel", 500_000)),
			text("EFI/debian/grub.cfg", "set timeout=0\n"),
			text("EFI/BOOT/BOOTX64.EFI", "shim"),
			text("EFI/BOOT/a much longer name, with blanks.efi", "long"),
			text("empty", ""),
			text("loader/entries/", ""),
		},
		Slot: []disk.File{text("vmlinuz", strings.Repeat("kernel", 500_000))},
		Site: []disk.File{text("README.txt", "hello"), text("site.example.yaml", "a: b\n")},
		Root: disk.Image(rootFile(t, 3<<20+5)), Boot: bootImg(), Core: coreImg(20),
		Sizes: map[string]int64{"ESP": 64 << 20},
	}
}

func written(t *testing.T, l disk.Layout) (path string, size int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "image")
	require.NoError(t, disk.Write(context.Background(), path, l))
	return path, l.End()
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestFinishAroundARootInItsPlace makes the root where it belongs before the rest is there: the
// bytes are those of a layout that copies it.
func TestFinishAroundARootInItsPlace(t *testing.T) {
	s := someStick(t)
	l, err := s.Layout()
	require.NoError(t, err)
	copied, _ := written(t, l)
	root, err := os.ReadFile(string(s.Root.(disk.Image)))
	require.NoError(t, err)
	at, err := s.RootOffset()
	require.NoError(t, err)

	path := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(disk.PartPath(path), append(make([]byte, at), root...), 0o600))
	s.Root = disk.InPlace(len(root))
	l, err = s.Layout()
	require.NoError(t, err)
	require.NoError(t, disk.Finish(context.Background(), path, l))
	want, err := os.ReadFile(copied)
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	assert.NoFileExists(t, disk.PartPath(path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "who may read it was said before")
}

// describe shows a table, one line for each partition.
func describe(t *gpt.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "disk %s sectors %d-%d\n", t.GUID, t.FirstLBA, t.LastLBA)
	for _, p := range t.Partitions {
		fmt.Fprintf(&b, "%d %-7s first %8d sectors %8d type %s guid %s attributes %016x\n",
			p.Index, p.Name, p.First, p.Last-p.First+1, p.Type, p.GUID, p.Attributes)
	}

	return b.String()
}

func TestStickLayout(t *testing.T) {
	l, err := someStick(t).Layout()
	require.NoError(t, err)
	path, size := written(t, l)
	f := opened(t, path)
	primary, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/stick.txt", describe(primary))
	backup, err := gpt.ReadBackup(f, size)
	require.NoError(t, err)
	assert.Equal(t, primary.Partitions, backup.Partitions)
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, size, info.Size())
}

func TestNodeLayoutEndsWithRoot(t *testing.T) {
	n := disk.Node{ESP: []disk.File{text("EFI/BOOT/BOOTX64.EFI", "shim")}, Root: rootFile(t, 2<<20), Boot: bootImg(), Core: coreImg(9), Size: 50 << 20}
	l, err := n.Layout()
	require.NoError(t, err)
	path, size := written(t, l)
	assert.EqualValues(t, 50<<20, size)
	table, err := gpt.ReadPrimary(opened(t, path))
	require.NoError(t, err)
	goldentest.Check(t, "testdata/node.txt", describe(table))
}

func TestSameInputsSameBytes(t *testing.T) {
	sum := func(s disk.Stick) string {
		l, err := s.Layout()
		require.NoError(t, err)
		path, _ := written(t, l)
		h := sha256.New()
		_, err = io.Copy(h, opened(t, path))
		require.NoError(t, err)
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	first := sum(someStick(t))
	t.Setenv("SOURCE_DATE_EPOCH", "12345")
	t.Setenv("TZ", "Asia/Tokyo")
	turned := someStick(t)
	for i, j := 0, len(turned.ESP)-1; i < j; i, j = i+1, j-1 {
		turned.ESP[i], turned.ESP[j] = turned.ESP[j], turned.ESP[i]
	}
	assert.Equal(t, first, sum(turned), "order of the files, time and environment must not matter")
	turned.ESP[0] = text("other", "")
	assert.NotEqual(t, first, sum(turned))
}

func TestContentIsInItsPartition(t *testing.T) {
	s := someStick(t)
	l, err := s.Layout()
	require.NoError(t, err)
	path, _ := written(t, l)
	f := opened(t, path)
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)

	root, ok := table.Find("ROOT-A")
	require.True(t, ok)
	want, err := os.ReadFile(string(s.Root.(disk.Image)))
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = f.ReadAt(got, root.Offset())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "ROOT-A must hold the root file")

	esp, _ := table.Find("ESP")
	volume, err := fat.Open(io.NewSectionReader(f, esp.Offset(), esp.Size()))
	require.NoError(t, err)
	assert.Empty(t, volume.Check())
	for _, one := range s.ESP {
		if strings.HasSuffix(one.Path, "/") {
			continue
		}
		r, _ := one.Open()
		want, _ := io.ReadAll(r)
		got, err := volume.ReadFile(one.Path)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), one.Path)
	}
	list, err := volume.List()
	require.NoError(t, err)
	var names strings.Builder
	for _, e := range list {
		fmt.Fprintf(&names, "%s %v %d\n", e.Path, e.Dir, e.Size)
	}
	goldentest.Check(t, "testdata/esp.txt", names.String())
}

func TestLayoutRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		stick func(*disk.Stick)
		want  string
	}{
		{"boot.img", func(s *disk.Stick) { s.Boot = s.Boot[:500] }, "patch boot.img: 500 bytes are not a boot sector"},
		{"core.img", func(s *disk.Stick) { s.Core = s.Core[:2000] }, "patch core.img: its block list says 19 sectors, the file has 3"},
		{"no root", func(s *disk.Stick) { s.Root = disk.Image("/nonexistent") }, "size partition ROOT-A: stat /nonexistent"},
		{"unknown partition", func(s *disk.Stick) { s.Sizes = map[string]int64{"ROOT-C": 1} }, "size partition ROOT-C: the layout has no partition of that name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := someStick(t)
			c.stick(&s)
			_, err := s.Layout()
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
		})
	}
}

func TestWriteRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		stick func(*disk.Stick)
		want  string
	}{
		{"two names", func(s *disk.Stick) { s.Site = append(s.Site, text("readme.TXT", "")) }, "partition SITE: files README.txt and readme.TXT have one name on FAT"},
		{"unclean", func(s *disk.Stick) { s.Site = append(s.Site, text("a/../b", "")) }, `file "a/../b": want a clean path`},
		{"too much", func(s *disk.Stick) { s.Site = append(s.Site, text("big", strings.Repeat("x", 40<<20))) }, "write big"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := someStick(t)
			c.stick(&s)
			l, err := s.Layout()
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "image")
			err = disk.Write(context.Background(), path, l)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
			left, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			assert.Empty(t, left, "a half-written image must not stay")
		})
	}
}

func TestGrubPatch(t *testing.T) {
	boot, core := bootImg(), coreImg(20)
	code, image, err := disk.PatchGrub(boot, core, 2048)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/grub.txt", "boot code "+fmt.Sprint(len(code))+" bytes\n"+changes(boot, code)+"core.img\n"+changes(core, image))
	assert.Equal(t, bootImg(), boot, "the inputs are not changed")
}

func changes(was, is []byte) string {
	var b strings.Builder
	for i := range is {
		if was[i] != is[i] {
			fmt.Fprintf(&b, "%03x: %02x -> %02x\n", i, was[i], is[i])
		}
	}
	return b.String()
}

func TestReadByOthers(t *testing.T) {
	l, err := someStick(t).Layout()
	require.NoError(t, err)
	path, size := written(t, l)
	table, err := gpt.ReadPrimary(opened(t, path))
	require.NoError(t, err)

	t.Run("go-diskfs", func(t *testing.T) {
		theirs, err := diskgpt.Read(file.New(opened(t, path), true), 512, 512)
		require.NoError(t, err)
		assert.NoError(t, theirs.Verify(file.New(opened(t, path), true), uint64(size)))
	})
	t.Run("sfdisk", func(t *testing.T) {
		assert.Contains(t, output(t, program(t, "sfdisk"), "--verify", path), "No errors detected")
	})
	t.Run("sgdisk", func(t *testing.T) {
		assert.Contains(t, output(t, program(t, "sgdisk"), "-v", path), "No problems found")
	})
	for _, name := range []string{"ESP", "SITE"} {
		p, _ := table.Find(name)
		t.Run("fsck.vfat "+name, func(t *testing.T) {
			fsck := program(t, "fsck.vfat")
			part := filepath.Join(t.TempDir(), name)
			w, err := os.Create(part)
			require.NoError(t, err)
			_, err = io.Copy(w, io.NewSectionReader(opened(t, path), p.Offset(), p.Size()))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			said := output(t, fsck, "-n", "-v", part)
			assert.NotRegexp(t, "(?i)wrong|differ|dirty|auto-correct|truncat|bad", said)
		})
	}
	t.Run("mtools", func(t *testing.T) {
		esp, _ := table.Find("ESP")
		assert.Equal(t, "set timeout=0\n", output(t, program(t, "mtype"), "-i", fmt.Sprintf("%s@@%d", path, esp.Offset()), "::/EFI/debian/grub.cfg"))
		assert.Contains(t, output(t, program(t, "mdir"), "-i", fmt.Sprintf("%s@@%d", path, esp.Offset()), "::/EFI/BOOT"), "a much longer name, with blanks.efi")
	})
}
