package lab_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
)

// What tests do to an image before they boot it.

// needKind skips unless FIRSTLIGHT_TEST names the kind.
func needKind(t testing.TB, kind string) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), kind) {
		t.Skipf("boots machines in QEMU; run with FIRSTLIGHT_TEST=%s", kind)
	}
}

func tableOf(t *testing.T, image string) *gpt.Table {
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	return table
}

func partition(t *testing.T, image, name string) gpt.Partition {
	p, ok := tableOf(t, image).Find(name)
	require.True(t, ok, "partition %s", name)
	return p
}

func flipByte(t *testing.T, path string, at int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// rootData is where the squashfs of ROOT-A lies in the image, and its length.
func rootData(t *testing.T, image string) (at, size int64) {
	p := partition(t, image, stick.PartitionRootA)
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	head := make([]byte, 96)
	_, err = f.ReadAt(head, p.Offset())
	require.NoError(t, err)
	require.Equal(t, "hsqs", string(head[:4]))
	return p.Offset(), int64(binary.LittleEndian.Uint64(head[40:]))
}

// inodeTable is where a squashfs's inodes begin, in the image (byte 64 of the superblock says
// where). Right before it lie the last bytes of the file that was appended last: the variables
// of the daemon's program.
func inodeTable(t *testing.T, image string) int64 {
	p := partition(t, image, stick.PartitionRootA)
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	head := make([]byte, 96)
	_, err = f.ReadAt(head, p.Offset())
	require.NoError(t, err)
	return p.Offset() + int64(binary.LittleEndian.Uint64(head[64:]))
}

// inBoot returns the image's offset of text in slot a's boot partition, where is agrees; files there are
// contiguous.
func inBoot(t *testing.T, image, text string, is func(boot []byte, at int) bool) int64 {
	p := partition(t, image, stick.PartitionBootA)
	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	all, err := io.ReadAll(io.NewSectionReader(f, p.Offset(), p.Size()))
	require.NoError(t, err)
	for at := 0; ; at++ {
		i := bytes.Index(all[at:], []byte(text))
		require.GreaterOrEqual(t, i, 0, "%q in %s", text, p.Name)
		if at += i; is(all, at) {
			return p.Offset() + int64(at)
		}
	}
}

// kernelOffset finds the kernel by the magic of its setup header, 0x202 bytes into it
// and right behind its boot sector (Documentation/arch/x86/boot.rst). GRUB knows the
// magic, too, but has no boot sector before it.
func kernelOffset(t *testing.T, image string) int64 {
	return inBoot(t, image, "HdrS", func(boot []byte, at int) bool {
		return at >= 0x202 && boot[at-4] == 0x55 && boot[at-3] == 0xaa
	}) - 0x202
}

// giveOwnGUIDs does what flash does to each stick it writes.
func giveOwnGUIDs(t *testing.T, image string) {
	table := tableOf(t, image)
	own := func(g *gpt.GUID) {
		_, err := rand.Read(g[:])
		require.NoError(t, err)
	}
	own(&table.GUID)
	for i := range table.Partitions {
		own(&table.Partitions[i].GUID)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	table, err = table.Resize(info.Size())
	require.NoError(t, err)
	start, end, err := table.Encode()
	require.NoError(t, err)
	_, err = f.WriteAt(start, gpt.SectorSize)
	require.NoError(t, err)
	_, err = f.WriteAt(end, info.Size()-int64(len(end)))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// foreignDisk is another disk with partitions named as ours: a trap for whatever goes by
// names. Returns its path and digest.
func foreignDisk(t *testing.T) (path, sum string) {
	path = filepath.Join(t.TempDir(), "foreign.img")
	f, err := os.Create(path)
	require.NoError(t, err)
	noise := make([]byte, 8<<20)
	_, err = rand.Read(noise)
	require.NoError(t, err)
	const size = 1 << 30
	require.NoError(t, f.Truncate(size))
	_, err = f.WriteAt(noise, 64<<20)
	require.NoError(t, err)
	table, err := (&gpt.Table{}).Resize(size)
	require.NoError(t, err)
	for i, name := range []string{stick.PartitionESP, stick.PartitionSite, stick.PartitionRootA} {
		p := gpt.Partition{Index: i + 1, Name: name, First: uint64(2048 + i*65536), Last: uint64(2048 + (i+1)*65536 - 1)}
		p.GUID[15], p.Type[15] = byte(i+1), 9
		table.Partitions = append(table.Partitions, p)
	}
	table.GUID[15] = 7
	start, end, err := table.Encode()
	require.NoError(t, err)
	_, err = f.WriteAt(start, gpt.SectorSize)
	require.NoError(t, err)
	_, err = f.WriteAt(end, size-int64(len(end)))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return path, digest(t, path)
}
