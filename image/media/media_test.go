package media_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/media"
)

// image makes a disk with a FAT file system that ends in zeros, a squashfs that has zeros
// in its middle, an unknown content, and an empty slot.
func image(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	root := make([]byte, 5<<20)
	rand.New(rand.NewSource(2)).Read(root)
	copy(root, "hsqs")
	copy(root[28:], []byte{4, 0, 0, 0})
	clear(root[1<<20 : 2<<20])
	copy(root[40:48], []byte{0, 0, 0x50, 0, 0, 0, 0, 0})
	squash := filepath.Join(dir, "root")
	require.NoError(t, os.WriteFile(squash, root, 0o644))
	_, _, err := disk.Seal(context.Background(), squash, 0, verity.Known{})
	require.NoError(t, err)
	guid := func(n int) string { return fmt.Sprintf("6f1f5d0e-94a1-4c54-9c6a-3b1f52a0fe%02d", n) }
	files := []disk.File{
		{Path: "a", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("a")), nil }},
		{Path: "zeros", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(make([]byte, 3<<20))), nil }},
	}
	l := disk.Layout{GUID: guid(0), BootCode: []byte("boot"), Partitions: []disk.Partition{
		{Name: "ESP", Type: gpt.TypeESP, GUID: guid(1), Size: 64 << 20, Content: disk.FAT{Label: "ESP", Files: files}},
		{Name: "ROOT-A", Type: gpt.TypeLinuxRoot, GUID: guid(2), Size: 8 << 20, Content: disk.Image(squash)},
		{Name: "OTHER", Type: gpt.TypeLinux, GUID: guid(3), Size: 1 << 20, Content: disk.Bytes("x")},
		{Name: "ROOT-B", Type: gpt.TypeLinuxRoot, GUID: guid(4), Size: 8 << 20, Content: disk.Empty{}},
	}}
	path := filepath.Join(dir, "x.img")
	require.NoError(t, disk.Write(context.Background(), path, l))
	return path
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// published makes an image and what lies beside it.
func published(t testing.TB) (path string, sums map[string]string) {
	path = image(t)
	p, err := media.Publish(context.Background(), path, nil)
	require.NoError(t, err)
	return path, p.Sums
}

// TestWhatLiesBesideIsForTheSameEyes: an image with passwords inside tells them compressed as well, and
// what a killed build left is not written into.
func TestWhatLiesBesideIsForTheSameEyes(t *testing.T) {
	path := image(t)
	for _, perm := range []os.FileMode{0o600, 0o644} {
		require.NoError(t, os.Chmod(path, perm))
		for _, suffix := range []string{media.SuffixZstd, media.SuffixBmap} {
			require.NoError(t, os.WriteFile(path+suffix+".part", []byte("left"), 0o666))
		}
		_, err := media.Publish(t.Context(), path, nil)
		require.NoError(t, err)
		for _, suffix := range []string{media.SuffixZstd, media.SuffixBmap} {
			info, err := os.Stat(path + suffix)
			require.NoError(t, err)
			assert.Equal(t, perm, info.Mode().Perm(), suffix)
		}
	}
}

// counted counts what is read.
type counted struct {
	io.ReaderAt
	bytes atomic.Int64
}

func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	c.bytes.Add(int64(len(b)))
	return c.ReaderAt.ReadAt(b, at)
}

// TestWhatIsInCommonIsTakenOver publishes an image beside its next version: equal bytes with
// the earlier one and without, and the frames of the earlier one are used for what did not change.
func TestWhatIsInCommonIsTakenOver(t *testing.T) {
	open := func(path string) *os.File {
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	path := image(t)
	first, err := media.Publish(context.Background(), path, nil)
	require.NoError(t, err)
	b, err := media.ParseBmap(read(t, path+media.SuffixBmap))
	require.NoError(t, err)
	changed := read(t, path)
	changed[70<<20]++ // in ROOT-A
	for name, next := range map[string][]byte{
		"nothing changed":   read(t, path),
		"a byte changed":    changed,
		"something at end":  append(bytes.Clone(changed), make([]byte, 5<<20)...),
		"a short last part": bytes.Clone(changed[:len(changed)-1<<20]),
	} {
		t.Run(name, func(t *testing.T) {
			packed := &counted{ReaderAt: open(path + media.SuffixZstd)}
			earlier := &media.PreviousImage{Image: open(path), Packed: packed, Bmap: b, Frames: first.Frames}
			dir := t.TempDir()
			var sums []map[string]string
			for i, e := range []*media.PreviousImage{nil, earlier} {
				at := filepath.Join(dir, fmt.Sprint(i), "x.img")
				require.NoError(t, os.Mkdir(filepath.Dir(at), 0o755))
				require.NoError(t, os.WriteFile(at, next, 0o644))
				p, err := media.Publish(context.Background(), at, e)
				require.NoError(t, err)
				sums = append(sums, p.Sums)
				assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(read(t, at+media.SuffixZstd))), p.Sums["x.img.zst"])
				var all int64
				for _, n := range p.Frames {
					all += n
				}
				assert.EqualValues(t, len(read(t, at+media.SuffixZstd)), all)
			}
			assert.Equal(t, sums[0], sums[1])
			assert.Positive(t, packed.bytes.Load(), "nothing was taken over")

			told := &media.PreviousImage{Reused: media.Extent{Start: 71 << 20, End: int64(len(next))}, Packed: packed, Bmap: b, Frames: first.Frames}
			packed.bytes.Store(0)
			at := filepath.Join(dir, "x.img")
			require.NoError(t, os.WriteFile(at, next, 0o644))
			p, err := media.Publish(context.Background(), at, told)
			require.NoError(t, err)
			assert.Equal(t, sums[0], p.Sums, "told instead of compared")
		})
	}
}

// TestPublish holds what one pass writes to other readers: the block map to the one that is
// made from the file alone, digests to the files.
func TestPublish(t *testing.T) {
	path, sums := published(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	b, err := media.MakeBmap(context.Background(), f, int64(len(read(t, path))))
	require.NoError(t, err)
	assert.Equal(t, string(b.Encode()), string(read(t, path+media.SuffixBmap)))
	require.Len(t, sums, 3)
	for name, sum := range sums {
		assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(filepath.Dir(path), name)))), sum, name)
	}
}

func TestCompressedOpensAsTheSameImage(t *testing.T) {
	path, _ := published(t)
	for _, p := range []string{path, path + media.SuffixZstd} {
		m, err := media.Open(context.Background(), p)
		require.NoError(t, err)
		defer m.Close()
		got, err := io.ReadAll(io.NewSectionReader(m, 0, m.Size))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(read(t, path), got), p)
	}
	info, err := os.Stat(path + media.SuffixZstd)
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(6<<20))
	if zstd, err := exec.LookPath("zstd"); err == nil {
		out, err := exec.Command(zstd, "-dc", path+media.SuffixZstd).Output()
		require.NoError(t, err)
		assert.True(t, bytes.Equal(read(t, path), out), "zstd must read it too")
	}
}

func TestBytesDoNotDependOnProcessors(t *testing.T) {
	was := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(was)
	one, first := published(t)
	runtime.GOMAXPROCS(7)
	seven, second := published(t)
	assert.Equal(t, first, second)
	assert.True(t, bytes.Equal(read(t, one+media.SuffixZstd), read(t, seven+media.SuffixZstd)))
	assert.Equal(t, string(read(t, one+media.SuffixBmap)), string(read(t, seven+media.SuffixBmap)))
}

func TestPublishStopsWithItsContext(t *testing.T) {
	path := image(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := media.Publish(ctx, path, nil)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = os.Stat(path + ".zst")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestMappedBlocksAreEnough writes only the mapped blocks over old content and looks at
// every file system's bytes.
func TestMappedBlocksAreEnough(t *testing.T) {
	path := image(t)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	want := read(t, path)
	b, err := media.MakeBmap(context.Background(), f, int64(len(want)))
	require.NoError(t, err)
	got := bytes.Repeat([]byte{0xff}, len(want))
	for _, r := range b.Ranges {
		e := b.Extent(r)
		copy(got[e.Start:e.End], want[e.Start:e.End])
	}
	assert.True(t, bytes.Equal(want[:34*512], got[:34*512]), "primary table")
	assert.True(t, bytes.Equal(want[len(want)-33*512:], got[len(got)-33*512:]), "backup table")
	assert.True(t, bytes.Equal(want[1<<20:5<<20], got[1<<20:5<<20]), "FAT: tables and the file of zeros")
	assert.True(t, bytes.Equal(want[65<<20:70<<20], got[65<<20:70<<20]), "squashfs with zeros in its middle")
	assert.True(t, bytes.Equal(want[73<<20:74<<20], got[73<<20:74<<20]), "unknown content")
	assert.EqualValues(t, 0xff, got[30<<20], "free clusters need not be written")
	assert.EqualValues(t, 0xff, got[75<<20], "an empty slot need not be written")
}

func TestBmapRoundTripAndCheck(t *testing.T) {
	path, _ := published(t)
	b, err := media.ParseBmap(read(t, path+media.SuffixBmap))
	require.NoError(t, err)
	assert.Equal(t, string(read(t, path+media.SuffixBmap)), string(b.Encode()[:]))
	data := read(t, path)
	bad, err := b.Check(context.Background(), bytes.NewReader(data))
	require.NoError(t, err)
	assert.Empty(t, bad)
	data[66<<20] ^= 1
	bad, err = b.Check(context.Background(), bytes.NewReader(data))
	require.NoError(t, err)
	require.Len(t, bad, 1)
	e := b.Extent(bad[0])
	assert.True(t, e.Start <= 66<<20 && 66<<20 < e.End)
}

func TestBmaptoolAccepts(t *testing.T) {
	tool, err := exec.LookPath("bmaptool")
	if err != nil {
		t.Skip("bmaptool is not installed; it is the reference reader of block maps")
	}
	path, _ := published(t)
	out, err := exec.Command(tool, "copy", "--bmap", path+media.SuffixBmap, path, path+".out").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.True(t, bytes.Equal(read(t, path), read(t, path+".out")))
	corrupt := read(t, path)
	corrupt[66<<20] ^= 1
	require.NoError(t, os.WriteFile(path, corrupt, 0o644))
	out, err = exec.Command(tool, "copy", "--bmap", path+media.SuffixBmap, path, path+".out").CombinedOutput()
	assert.Error(t, err, "bmaptool checks our digests: %s", out)
}

func TestParseBmapRefusals(t *testing.T) {
	b := media.Bmap{ImageSize: 10000, BlockSize: 4096, Ranges: []media.Range{{First: 0, Last: 1, SHA256: strings.Repeat("ab", 32)}}}
	_, err := media.ParseBmap(b.Encode())
	require.NoError(t, err)
	flipped := bytes.Replace(b.Encode(), []byte("10000"), []byte("10001"), 1)
	_, err = media.ParseBmap(flipped)
	assert.EqualError(t, err, "read block map: its own checksum is wrong")
	for _, c := range []struct {
		change func(*media.Bmap)
		want   string
	}{
		{func(b *media.Bmap) { b.Ranges[0].Last = 3 }, `range "0-3" is not in order within 3 blocks`},
		{func(b *media.Bmap) { b.Ranges = append(b.Ranges, b.Ranges[0]) }, "is not in order"},
		{func(b *media.Bmap) { b.Ranges[0].SHA256 = "12" }, "has no sha256"},
		{func(b *media.Bmap) { b.ImageSize = 0 }, `ImageSize "0" is not a positive number`},
	} {
		bad := media.Bmap{ImageSize: 10000, BlockSize: 4096, Ranges: []media.Range{b.Ranges[0]}}
		c.change(&bad)
		_, err := media.ParseBmap(bad.Encode())
		assert.ErrorContains(t, err, c.want)
	}
}

func TestSums(t *testing.T) {
	dir := t.TempDir()
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-2, B.1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o644))
	sum, err := media.DigestFile(context.Background(), filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.NoError(t, media.WriteSums(dir, []string{"a"}, map[string]string{"a": sum}))
	assert.Equal(t, abc+"  a\n", string(read(t, filepath.Join(dir, "SHA256SUMS"))))
	assert.EqualError(t, media.WriteSums(dir, []string{"b"}, map[string]string{"a": sum}), "write SHA256SUMS: b has no digest")
	sums, err := media.ParseSums(abc + "  a\n")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": abc}, sums)
	_, err = media.ParseSums("abc  a\n")
	assert.ErrorContains(t, err, "SHA256SUMS:1: want 64 hexadecimal digits")
}

func FuzzParseBmap(f *testing.F) {
	f.Add(media.Bmap{ImageSize: 10000, BlockSize: 4096, Ranges: []media.Range{{First: 0, Last: 1, SHA256: strings.Repeat("ab", 32)}}}.Encode())
	f.Add([]byte("<bmap version=\"2.0\"/>"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := media.ParseBmap(text)
		if err != nil {
			return
		}
		for _, r := range b.Ranges {
			if e := b.Extent(r); e.Start < 0 || e.End > b.ImageSize || e.Start >= e.End {
				t.Fatalf("accepted %+v in an image of %d bytes", e, b.ImageSize)
			}
		}
	})
}

// TestWhatWasCheckedIsWhatIsRead: the file at the path may become another one meanwhile, and may be read only once.
func TestWhatWasCheckedIsWhatIsRead(t *testing.T) {
	text := strings.Repeat("signed ", 1000)
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for suffix, content := range map[string][]byte{
		"":               []byte(text),
		media.SuffixZstd: encoder.EncodeAll([]byte(text), nil),
	} {
		path := filepath.Join(t.TempDir(), "x.img"+suffix)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		image, err := media.OpenChecked(t.Context(), path, func(r io.Reader) error {
			have, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Equal(t, content, have, "the file as it is")
			return os.WriteFile(path, []byte("another one"), 0o600)
		})
		require.NoError(t, err)
		got, err := io.ReadAll(io.NewSectionReader(image, 0, image.Size))
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		require.NoError(t, image.Close())

		no := errors.New("not signed")
		_, err = media.OpenChecked(t.Context(), path, func(io.Reader) error { return no })
		require.Equal(t, no, err)
	}

	pipe := filepath.Join(t.TempDir(), "x.img")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	go func() { _ = os.WriteFile(pipe, []byte(text), 0o600) }()
	image, err := media.OpenChecked(t.Context(), pipe, func(io.Reader) error { return nil })
	require.NoError(t, err)
	defer image.Close()
	assert.EqualValues(t, len(text), image.Size)
}
