package fat_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
)

// made returns a FAT32 file system with a directory, a file of three clusters and one
// more.
func made(t testing.TB) []byte {
	t.Helper()
	file := func(path, content string) disk.File {
		return disk.File{Path: path, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
	}
	path := filepath.Join(t.TempDir(), "image")
	l := disk.Layout{GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0ff00", Partitions: []disk.Partition{{
		Name: "ESP", Type: gpt.TypeESP, GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0ff01", Size: 34 << 20,
		Content: disk.FAT{Label: "ESP", VolumeID: 0x12345678, Files: []disk.File{
			file("dir/three", strings.Repeat("3", 1200)), file("dir/sub/deep", "deep"), file("uno", "1"), file("void", ""),
		}},
	}}}
	require.NoError(t, disk.Write(context.Background(), path, l))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b[1<<20 : 35<<20]
}

func TestMadeIsSound(t *testing.T) {
	v, err := fat.Open(bytes.NewReader(made(t)))
	require.NoError(t, err)
	assert.Empty(t, v.Check())
	assert.EqualValues(t, 0x12345678, v.ID)
	got, err := v.ReadFile("/DIR/Three")
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("3", 1200), string(got))
	_, err = v.ReadFile("dir/four")
	assert.EqualError(t, err, "read /dir/four: there is no such file")
}

func TestCheckFindsDamage(t *testing.T) {
	sound := made(t)
	le := binary.LittleEndian
	fatAt := int(le.Uint16(sound[14:])) * 512
	fatSize := int(le.Uint32(sound[36:])) * 512
	dataAt := fatAt + 2*fatSize
	entry := func(b []byte, short string) []byte {
		i := bytes.Index(b[dataAt:], []byte(short))
		require.GreaterOrEqual(t, i, 0, short)
		return b[dataAt+i:]
	}
	both := func(b []byte, cluster int, value uint32) {
		le.PutUint32(b[fatAt+4*cluster:], value)
		le.PutUint32(b[fatAt+fatSize+4*cluster:], value)
	}
	for _, c := range []struct {
		name   string
		damage func(b []byte)
		want   string
	}{
		{"second FAT", func(b []byte) { b[fatAt+fatSize+4*5] ^= 1 }, "the FATs differ for cluster 5"},
		{"boot sector copy", func(b []byte) { b[6*512+71] = 'X' }, "boot sector and its copy in sector 6 differ"},
		{"counter", func(b []byte) { b[512+488]++ }, "clusters are free"},
		{"counter signature", func(b []byte) { b[512] = 0 }, "the counter sector 1 has no signature"},
		{"lost cluster", func(b []byte) { both(b, 1000, 0x0fffffff) }, "cluster 1000 is in use by no file"},
		{"size", func(b []byte) { entry(b, "THREE   ")[29] = 40 }, "/dir/three: 10416 bytes need 21 clusters, it has 3"},
		{"chain into nowhere", func(b []byte) {
			both(b, int(le.Uint16(entry(b, "THREE   ")[26:])), 0x0ff0000)
		}, "cluster 16711680 does not exist"},
		{"loop", func(b []byte) {
			c := int(le.Uint16(entry(b, "THREE   ")[26:]))
			both(b, c, uint32(c))
		}, "it has a loop"},
		{"shared cluster", func(b []byte) {
			copy(entry(b, "UNO     ")[26:28], entry(b, "THREE   ")[26:28])
		}, "is also in /"},
		{"directory in itself", func(b []byte) {
			copy(entry(b, "SUB     ")[26:28], entry(b, "DIR     ")[26:28])
		}, "belongs to another directory"},
		{"dot dot", func(b []byte) { entry(b, "..      ")[26] = 2 }, `/dir: ".." says cluster 2, the parent is 0`},
		{"long name of another entry", func(b []byte) {
			copy(entry(b, "THREE   "), "VMLINUZ ")
		}, "/dir/three: its long name is not that of its entry"},
		{"empty file with a cluster", func(b []byte) { entry(b, "UNO     ")[28] = 0 }, "/uno: 0 bytes need 0 clusters, it has 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bytes.Clone(sound)
			c.damage(b)
			v, err := fat.Open(bytes.NewReader(b))
			require.NoError(t, err)
			assert.Contains(t, strings.Join(v.Check(), "\n"), c.want)
		})
	}
}

// TestWhatAnImageMayAskFor: one that nobody has signed yet costs neither memory nor time without end.
func TestWhatAnImageMayAskFor(t *testing.T) {
	le := binary.LittleEndian
	b := made(t)
	fatAt, fatSize := int(le.Uint16(b[14:]))*512, int(le.Uint32(b[36:]))*512
	dataAt := fatAt + 2*fatSize
	size := int(b[13]) * 512
	root := dataAt + int(le.Uint32(b[44:])-2)*size
	entry := func(at int, name string, attributes byte, cluster int) {
		clear(b[at : at+32])
		copy(b[at:], name)
		b[at+11] = attributes
		le.PutUint16(b[at+20:], uint16(cluster>>16))
		le.PutUint16(b[at+26:], uint16(cluster))
	}
	link := func(first, n int) (at int) {
		for i := range n {
			next := uint32(first + i + 1)
			if i == n-1 {
				next = 0x0fffffff
			}
			le.PutUint32(b[fatAt+4*(first+i):], next)
		}
		return dataAt + (first-2)*size
	}
	open := func(b []byte) *fat.Volume {
		v, err := fat.Open(bytes.NewReader(b))
		require.NoError(t, err)
		return v
	}

	// A file with more clusters than it needs: they are not read, and no memory is for them.
	uno := bytes.Index(b[dataAt:], []byte("UNO     ")) + dataAt
	first := int(le.Uint16(b[uno+26:]))
	le.PutUint32(b[fatAt+4*first:], 60000)
	le.PutUint32(b[fatAt+4*60000:], 0x0fffffff)
	content, err := open(b[:dataAt+50000*size]).ReadFile("uno")
	require.NoError(t, err)
	assert.Equal(t, "1", string(content))
	le.PutUint32(b[fatAt+4*first:], 0x0fffffff)

	// A name of more parts than there can be.
	end := root
	for b[end] != 0 {
		end += 32
	}
	require.Less(t, end+32, root+size)
	long := link(2000, 4)
	entry(end, "LONG       ", 0x10, 2000)
	for i := range 60 {
		at := long + i*32
		entry(at, "\x01a\x00a\x00a\x00a\x00a\x00", 0x0f, 0)
	}
	entry(long+60*32, "FILE       ", 0, 0)
	all, err := open(b).List()
	require.NoError(t, err)
	for _, e := range all {
		assert.Less(t, len(e.Path), 300, e.Path)
	}

	// Directories that share their clusters, so that few of them are many.
	const n = 4000
	shared, folders := link(10000, n), link(20000, n*32/size+1)
	for i := range n * size / 32 {
		entry(shared+i*32, "FILE       ", 0, 0)
	}
	entry(end, "MANY       ", 0x10, 20000)
	for i := range n {
		entry(folders+i*32, fmt.Sprintf("D%-10d", i), 0x10, 10000+i)
	}
	_, err = open(b).List()
	require.ErrorContains(t, err, "with the others it is larger than all of any stick")
}

// FuzzOpen holds that no bytes make the reader hang or panic. The input replaces the
// start of a small file system.
func FuzzOpen(f *testing.F) {
	sound := made(f)
	f.Add(sound[:512], uint16(0))
	f.Add([]byte{1, 2, 3, 4}, uint16(0x4000/16))
	f.Fuzz(func(t *testing.T, patch []byte, at uint16) {
		b := bytes.Clone(sound[:2<<20])
		copy(b[min(int(at)*16, len(b)):], patch)
		v, err := fat.Open(bytes.NewReader(b))
		if err != nil {
			return
		}
		v.Check()
		_, _ = v.List()
		_, _ = v.ReadFile("dir/three")
	})
}
