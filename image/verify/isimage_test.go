package verify_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/verify"
)

// TestWhatIsNoImageIsSaidToBeNone: in one sentence, without findings.
func TestWhatIsNoImageIsSaidToBeNone(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte("not an image\n"), 0o600))
	zeros := filepath.Join(dir, "zeros.img")
	require.NoError(t, os.WriteFile(zeros, make([]byte, 1<<20), 0o600))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for path, says := range map[string]string{
		text:  text + " is no image of a stick: it has no partition table",
		zeros: "is no image of a stick",
		empty: "is no image of a stick",
		dir:   dir + " is a folder; name an image",
	} {
		report, err := verify.Run(t.Context(), path, verify.Options{})
		assert.ErrorContains(t, err, says)
		assert.Empty(t, report.Findings, path)
	}
}
