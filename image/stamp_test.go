package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
)

// TestOutputsAreLookedAtAfterAStart: what a power failure left of an image is not taken for it, although
// name, size and time are right.
func TestOutputsAreLookedAtAfterAStart(t *testing.T) {
	b := &build{Builder: &Builder{Out: filepath.Join(t.TempDir(), "x.img")}}
	then := time.Unix(1_700_000_000, 0)
	write := func(text string) {
		require.NoError(t, os.WriteFile(b.Out, []byte(text), 0o644))
		require.NoError(t, os.Chtimes(b.Out, then, then))
	}
	write("content")
	digest, err := cache.FileDigest(b.Out)
	require.NoError(t, err)
	s := stamp{Key: "k", Files: []File{{Path: b.Out, Bytes: 7, SHA256: digest}}, Times: []time.Time{then}, Boot: "an earlier one"}
	require.NoError(t, s.write(b.stampPath()))
	s, ok := b.readStamp()
	require.True(t, ok)
	assert.Equal(t, bootID(), s.Boot)
	write("\x00\x00\x00\x00\x00\x00\x00")
	_, ok = b.readStamp()
	assert.True(t, ok, "looked at once")
	s.Boot = "an earlier one"
	require.NoError(t, s.write(b.stampPath()))
	_, ok = b.readStamp()
	assert.False(t, ok)
}
