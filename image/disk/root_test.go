package disk_test

import (
	"archive/tar"
	"bytes"
	"context"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"os/exec"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/disk/mkfs"
)

var stamp = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func someTar(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "etc/shadow", Typeflag: tar.TypeReg, Mode: 0o640, Gid: 42, Size: 1000},
		{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "etc/shadow", Mode: 0o777},
		{Name: "null", Typeflag: tar.TypeChar, Mode: 0o666, Devmajor: 1, Devminor: 3},
	} {
		h.ModTime = stamp
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write(make([]byte, h.Size))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestSquashfsKeepsOwnersAndIsReproducible(t *testing.T) {
	tool := mkfs.Tool{program(t, "mksquashfs")}
	dir := t.TempDir()
	made := func(name string) []byte {
		path := filepath.Join(dir, name)
		require.NoError(t, mkfs.Squashfs(context.Background(), tool, bytes.NewReader(someTar(t)), path, stamp))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return b
	}
	first := made("a")
	time.Sleep(1100 * time.Millisecond) // squashfs counts whole seconds
	t.Setenv("SOURCE_DATE_EPOCH", "999")
	t.Setenv("TZ", "Asia/Tokyo")
	assert.True(t, bytes.Equal(first, made("b")), "time, time zone and environment must not matter")
	listing := output(t, program(t, "unsquashfs"), "-lln", filepath.Join(dir, "a"))
	assert.Regexp(t, `drwxr-xr-x\s+0/0\s+\d+ 2025-01-01 00:00 squashfs-root\n`, listing)
	assert.Regexp(t, `-rw-r-----\s+0/42\s+1000 2025-01-01 00:00 squashfs-root/etc/shadow`, listing)
	assert.Regexp(t, `crw-rw-rw-\s+0/0\s+1,\s+3 2025-01-01 00:00 squashfs-root/null`, listing)
	assert.Contains(t, listing, "squashfs-root/link -> etc/shadow")
}

// TestAppend holds what a build relies on: what was there stays, what is added is root's and of
// the given age, and the bytes depend on nothing else.
func TestAppend(t *testing.T) {
	tool := mkfs.Tool{program(t, "mksquashfs")}
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	require.NoError(t, mkfs.Squashfs(context.Background(), tool, bytes.NewReader(someTar(t)), base, stamp))
	before, err := os.ReadFile(base)
	require.NoError(t, err)
	made := func(name string) []byte {
		path, own := filepath.Join(dir, name), filepath.Join(dir, name+".d", "own")
		require.NoError(t, os.WriteFile(path, append(make([]byte, 1<<20), before...), 0o644))
		require.NoError(t, os.MkdirAll(filepath.Join(own, "bin"), 0o755))
		noise := make([]byte, 300<<10)
		rand.New(rand.NewSource(1)).Read(noise)
		require.NoError(t, os.WriteFile(filepath.Join(own, "bin", "daemon"), noise, 0o755))
		require.NoError(t, mkfs.Append(context.Background(), tool, own, path, 1<<20, stamp))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 1<<20), b[:1<<20], "what lies before it")
		return b
	}
	first := made("a")
	time.Sleep(1100 * time.Millisecond) // squashfs counts whole seconds
	t.Setenv("TZ", "Asia/Tokyo")
	assert.True(t, bytes.Equal(first, made("b")), "time and time zone must not matter")
	listing := output(t, program(t, "unsquashfs"), "-offset", "1M", "-lln", filepath.Join(dir, "a"))
	assert.Regexp(t, `drwxr-xr-x\s+0/0\s+\d+ 2025-01-01 00:00 squashfs-root\n`, listing)
	assert.Regexp(t, `-rwxr-xr-x\s+0/0\s+307200 2025-01-01 00:00 squashfs-root/own/bin/daemon`, listing)
	assert.Regexp(t, `-rw-r-----\s+0/42\s+1000 2025-01-01 00:00 squashfs-root/etc/shadow`, listing)
	assert.Regexp(t, `crw-rw-rw-\s+0/0\s+1,\s+3 2025-01-01 00:00 squashfs-root/null`, listing)
}

// TestTakeBack: an image that is made again in the file of the one before has the same bytes as one
// that is made from nothing.
func TestTakeBack(t *testing.T) {
	const at = 1 << 20
	tool := mkfs.Tool{program(t, "mksquashfs")}
	dir := t.TempDir()
	noise := make([]byte, 3<<20)
	rand.New(rand.NewSource(1)).Read(noise)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: stamp}))
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: stamp, Size: 900_000}))
		n := copy(noise, noise[900_000:])
		_, err := w.Write(noise[:900_000])
		require.NoError(t, err)
		noise = noise[:n]
	}
	require.NoError(t, w.Close())
	base := filepath.Join(dir, "base")
	require.NoError(t, mkfs.Squashfs(context.Background(), tool, &archive, base, stamp))
	before, err := os.ReadFile(base)
	require.NoError(t, err)
	placed := append(make([]byte, at), before...)
	// finish is a build from the placed base on: own programs, hash tree, something before it and behind it.
	finish := func(path, program string, known verity.Known) (string, []byte) {
		own := filepath.Join(dir, "own")
		require.NoError(t, os.RemoveAll(own))
		require.NoError(t, os.Mkdir(own, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(own, "daemon"), []byte(program), 0o755))
		require.NoError(t, mkfs.Append(context.Background(), tool, own, disk.PartPath(path), at, stamp))
		hash, _, err := disk.Seal(context.Background(), disk.PartPath(path), at, known)
		require.NoError(t, err)
		f, err := os.OpenFile(disk.PartPath(path), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte("root "+hash), at/2)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(16<<20))
		require.NoError(t, os.Rename(disk.PartPath(path), path))
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		return hash, b
	}
	fresh, again := filepath.Join(dir, "fresh.img"), filepath.Join(dir, "again.img")
	second := strings.Repeat("another, longer program\n", 100_000)
	require.NoError(t, os.WriteFile(disk.PartPath(fresh), placed, 0o644))
	wantHash, want := finish(fresh, second, verity.Known{})
	require.NoError(t, os.WriteFile(disk.PartPath(again), placed, 0o644))
	_, first := finish(again, "a program", verity.Known{})

	open, err := os.Open(again)
	require.NoError(t, err)
	_, err = disk.ReuseImage(again, base, at)
	require.ErrorContains(t, err, "somebody has it open")
	now, err := os.ReadFile(again)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, now))
	require.NoError(t, open.Close())

	// A rack that is down has its stick's image under a name of its own.
	assert.True(t, disk.IsUnused(again))
	stick := filepath.Join(dir, "stick.img")
	require.NoError(t, os.Link(again, stick))
	assert.False(t, disk.IsUnused(again))
	_, err = disk.ReuseImage(again, base, at)
	require.ErrorContains(t, err, "keeps it under another name")
	now, err = os.ReadFile(stick)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, now), "the rack's stick was written over")
	assert.FileExists(t, again)
	require.NoError(t, os.Remove(stick))

	kept, err := disk.ReuseImage(again, base, at)
	require.NoError(t, err)
	assert.NoFileExists(t, again)
	now, err = os.ReadFile(disk.PartPath(again))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(placed, now), "only the base")
	assert.EqualValues(t, at+96, kept.From)
	assert.Greater(t, kept.To, int64(at+2_500_000), "most of what there is")
	assert.Greater(t, kept.Hashes.End, uint64(600))
	gotHash, got := finish(again, second, kept.Hashes)
	assert.Equal(t, wantHash, gotHash)
	assert.True(t, bytes.Equal(want, got))
}

func TestSealAppendsTheTree(t *testing.T) {
	path := rootFile(t, 9999)
	first, size, err := disk.Seal(context.Background(), path, 0, verity.Known{})
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.EqualValues(t, len(b), size)
	damage, err := verity.Check(context.Background(), bytes.NewReader(b), 3*verity.BlockSize, first)
	require.NoError(t, err)
	assert.Empty(t, damage)

	within := rootFile(t, 9999)
	text, err := os.ReadFile(within)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(within, append(make([]byte, 1000), text...), 0o644))
	again, size, err := disk.Seal(context.Background(), within, 1000, verity.Known{})
	require.NoError(t, err)
	assert.Equal(t, first, again, "wherever it lies")
	text, err = os.ReadFile(within)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(b, text[1000:]))
	assert.EqualValues(t, len(b), size)
}

func TestToolErrorsSayWhatRan(t *testing.T) {
	err := mkfs.Squashfs(context.Background(), mkfs.Tool{"/bin/sh", "-c", "echo no such option; exit 3"}, nil, filepath.Join(t.TempDir(), "x"), stamp)
	assert.ErrorContains(t, err, "exit status 3: no such option")
	assert.ErrorContains(t, err, "make squashfs: run /bin/sh -c")
	err = mkfs.Squashfs(context.Background(), nil, nil, filepath.Join(t.TempDir(), "x"), stamp)
	assert.ErrorContains(t, err, "no program given")
}

func TestExt4FromTar(t *testing.T) {
	tool := program(t, "mke2fs")
	said, err := exec.Command(tool, "-V").CombinedOutput()
	require.NoError(t, err)
	m := regexp.MustCompile(`mke2fs 1\.(\d+)(?:\.(\d+))?`).FindStringSubmatch(string(said))
	require.NotNil(t, m, "%s", said)
	minor, _ := strconv.Atoi(m[1])
	patch, _ := strconv.Atoi(m[2])
	if minor < 47 || minor == 47 && patch < 1 {
		t.Skipf("%s: a tar needs 1.47.1 or later", strings.SplitN(string(said), "\n", 2)[0])
	}
	dir := t.TempDir()
	tarPath := filepath.Join(dir, "tar")
	require.NoError(t, os.WriteFile(tarPath, someTar(t), 0o644))
	o := mkfs.Ext4Options{Label: "ROOT", UUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c2ff", HashSeed: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c2fe", Size: 16 << 20, Stamp: stamp}
	var made [2][]byte
	for i := range made {
		path := filepath.Join(dir, strconv.Itoa(i))
		require.NoError(t, mkfs.Ext4(context.Background(), mkfs.Tool{tool}, tarPath, path, o))
		made[i], err = os.ReadFile(path)
		require.NoError(t, err)
	}
	assert.True(t, bytes.Equal(made[0], made[1]))
	output(t, program(t, "e2fsck"), "-fn", filepath.Join(dir, "0"))
}

func TestGrubCoreOfRealModules(t *testing.T) {
	loaders := disk.BootLoaders{Dir: "/", Mkimage: mkfs.Tool{program(t, "grub-mkimage")}}
	if _, err := os.Stat("/usr/lib/grub/i386-pc/boot.img"); err != nil {
		t.Skipf("grub-pc-bin is not installed: %v", err)
	}
	boot, core, err := loaders.BIOS(context.Background())
	require.NoError(t, err)
	assert.Less(t, len(core), disk.Align, "it must fit the BIOS partition")
	_, again, err := loaders.BIOS(context.Background())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(core, again))
	code, image, err := disk.PatchGrub(boot, core, 2048)
	require.NoError(t, err)
	goldentest.Check(t, "testdata/grub-boot-code.txt", changes(boot, code))
	assert.NotEmpty(t, changes(core, image))
}
