package stickupdate

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/media"
)

// TestACompressedImage is read as it is: what the builder writes, but not what one frame holds.
func TestACompressedImage(t *testing.T) {
	path := makeImage(t, "1.1.0", 3000)
	_, err := media.Publish(t.Context(), path, nil)
	require.NoError(t, err)
	packed, err := Open(path + media.SuffixZstd)
	require.NoError(t, err)
	defer packed.Close()
	require.NoError(t, packed.Check(t.Context()))
	raw, err := Open(path)
	require.NoError(t, err)
	defer raw.Close()
	want, err := io.ReadAll(raw.root)
	require.NoError(t, err)
	got, err := io.ReadAll(packed.root)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))

	text, err := os.ReadFile(path + media.SuffixZstd)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"cut":         {text[:len(text)-9], "compressed frame at byte"},
		"another way": {encodeOneFrame(t, want), "it is not compressed as `firstlight build` does; decompress it first (zstd -d)"},
	} {
		bad := filepath.Join(t.TempDir(), "bad")
		require.NoError(t, os.WriteFile(bad, c.bytes, 0o600))
		_, err := Open(bad)
		assert.ErrorContains(t, err, c.want, name)
	}
}

func encodeOneFrame(t *testing.T, content []byte) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// FuzzFrames: whatever a file holds, it is refused or has frames that end.
func FuzzFrames(f *testing.F) {
	encoder, err := zstd.NewWriter(nil)
	require.NoError(f, err)
	f.Add(encoder.EncodeAll([]byte("content"), nil))
	f.Add([]byte("(\xb5/\xfd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		frames, err := newFrames(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		_, _ = frames.ReadAt(make([]byte, 100), 0)
	})
}
