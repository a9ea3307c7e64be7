package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
)

func TestCopyFAT(t *testing.T) {
	s := someStick(t)
	s.Site = append(s.Site, text("site.yaml", "old"), text("notes/rack.txt", "left of the door"))
	l, err := s.Layout()
	require.NoError(t, err)
	image, _ := written(t, l)
	before, err := os.ReadFile(image)
	require.NoError(t, err)
	in := opened(t, image)
	f, err := os.Create(filepath.Join(t.TempDir(), "site.fat"))
	require.NoError(t, err)
	defer f.Close()
	at, err := disk.CopyFAT(t.Context(), in, "SITE", f, text("site.yaml", "name: new\n"))
	require.NoError(t, err)

	table, err := gpt.ReadPrimary(in)
	require.NoError(t, err)
	p, _ := table.Find("SITE")
	assert.Equal(t, p.Offset(), at)
	info, err := f.Stat()
	require.NoError(t, err)
	assert.Equal(t, p.Size(), info.Size())
	volume, err := fat.Open(f)
	require.NoError(t, err)
	assert.Empty(t, volume.Check())
	for name, want := range map[string]string{"site.yaml": "name: new\n", "README.txt": "hello", "site.example.yaml": "a: b\n", "notes/rack.txt": "left of the door"} {
		got, err := volume.ReadFile(name)
		require.NoError(t, err, name)
		assert.Equal(t, want, string(got), name)
	}
	after, err := os.ReadFile(image)
	require.NoError(t, err)
	assert.Equal(t, before, after, "the image was written to")

	_, err = disk.CopyFAT(t.Context(), in, "DATA", f, text("x", ""))
	assert.ErrorContains(t, err, "none of that name")
	_, err = disk.CopyFAT(t.Context(), in, "ROOT-A", f, text("x", ""))
	assert.Error(t, err)
}
