package image

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/disk"
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

// TestGrubConfigIsFilledIn: each placeholder must be there once, whatever else the file says.
func TestGrubConfigIsFilledIn(t *testing.T) {
	fill := func(path, text string) (string, error) {
		esp := []disk.File{{Path: path, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}
		if err := fillGrubConfig(esp, map[string]string{stick.VerityPlaceholder: "hash", stick.VersionPlaceholder: "1-dev+x"}); err != nil {
			return "", err
		}
		r, err := esp[0].Open()
		require.NoError(t, err)
		filled, err := io.ReadAll(r)
		require.NoError(t, err)
		return string(filled), nil
	}
	at := strings.TrimPrefix(stick.GrubConfigPath, "/")
	got, err := fill(at, "linux version=@VERSION@ verity=@VERITY@\n")
	require.NoError(t, err)
	assert.Equal(t, "linux version=1-dev+x verity=hash\n", got)

	_, err = fill(at, "linux verity=@VERITY@\n")
	assert.ErrorContains(t, err, "@VERSION@ is there 0 times and not once")
	_, err = fill(at, "linux version=@VERSION@ verity=@VERITY@ @VERITY@\n")
	assert.ErrorContains(t, err, "@VERITY@ is there 2 times and not once")
	_, err = fill("x", "")
	assert.ErrorContains(t, err, "overlays/esp has no such file")
}
