package registry

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/layer"
)

// TestWhatRootAloneReadsStaysOpen: an image has files that the process may not open once it serves.
func TestWhatRootAloneReadsStaysOpen(t *testing.T) {
	files := []struct {
		name    string
		mode    os.FileMode
		private bool
	}{
		{"etc/passwd", 0o644, false},
		{"etc/shadow", 0o640, true},
		{"root/.profile", 0o644, true}, // nobody else may enter its directory
		{"root/deep/er", 0o644, true},
		{"usr/bin/sudo", 0o755, false},
	}
	dir := t.TempDir()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range files {
		at := filepath.Join(dir, layer.Files, f.name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte("text of "+f.name), 0o600))
		require.NoError(t, os.Chmod(at, f.mode))
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len("text of " + f.name))}))
		_, err := w.Write([]byte("text of " + f.name))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	headers, contents, err := layer.Split(bytes.NewReader(archive.Bytes()))
	require.NoError(t, err)
	require.NoError(t, errors.Join(
		os.WriteFile(filepath.Join(dir, layer.Headers), headers, 0o644),
		os.WriteFile(filepath.Join(dir, layer.Contents), contents, 0o644),
		os.Chmod(filepath.Join(dir, layer.Files, "root"), 0o700),
	))

	d, size, err := openLayer(dir)
	require.NoError(t, err)
	assert.EqualValues(t, archive.Len(), size)
	for _, f := range files {
		assert.Equal(t, f.private, d.private[layer.Files+"/"+f.name] != nil, f.name)
	}

	// What was opened is read whole, from any place, by two at once, and when it cannot be opened any more.
	require.NoError(t, os.RemoveAll(filepath.Join(dir, layer.Files, "root")))
	l, err := layer.Open(d)
	require.NoError(t, err)
	first, second := l.Reader(0), l.Reader(700)
	head := make([]byte, 2000)
	_, err = io.ReadFull(first, head)
	require.NoError(t, err)
	rest, err := io.ReadAll(second)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(archive.Bytes()[700:], rest))
	tail, err := io.ReadAll(first)
	require.NoError(t, errors.Join(err, first.Close(), second.Close()))
	assert.True(t, bytes.Equal(archive.Bytes(), append(head, tail...)))
}
