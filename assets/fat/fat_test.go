package fat_test

import (
	"bytes"
	"context"
	"encoding/binary"
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
