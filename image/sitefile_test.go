package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/disk"
)

// TestAnImageWithASiteIsForItsOwnerAlone from its first byte on, whatever lies there already.
func TestAnImageWithASiteIsForItsOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	require.NoError(t, os.WriteFile(base, []byte("root"), 0o644))
	for site, want := range map[string]os.FileMode{"": 0o644, "site.yaml": 0o600} {
		b := &build{Builder: &Builder{Out: filepath.Join(dir, "x.img"), Site: site}}
		part := disk.PartPath(b.Out)
		for _, left := range []os.FileMode{0o644, 0o600} {
			require.NoError(t, os.WriteFile(part, []byte("left"), left))
			require.NoError(t, b.placeBase(base, part, 0))
			info, err := os.Stat(part)
			require.NoError(t, err)
			assert.Equal(t, want, info.Mode().Perm(), "site %q over %s", site, left)

			require.NoError(t, os.WriteFile(b.Out, nil, left))
			require.NoError(t, os.Chmod(b.Out, left))
			assert.Equal(t, left == want, b.samePerm(), "site %q, an image of %s", site, left)
			require.NoError(t, os.Remove(part))
		}
	}
}
