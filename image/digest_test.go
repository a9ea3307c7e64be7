package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/recipe"
)

// TestAFetchedArtifactOfAnotherDigestIsRefused, and one that the recipe gives no digest is not.
func TestAFetchedArtifactOfAnotherDigestIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "artifact")
	require.NoError(t, os.WriteFile(file, []byte("content"), 0o600))
	const sum = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
	require.NoError(t, checkDigest(&recipe.Artifact{SHA256: sum}, file, "here"))
	require.NoError(t, checkDigest(&recipe.Artifact{}, file, "here"))
	err := checkDigest(&recipe.Artifact{SHA256: "00"}, file, "here")
	assert.ErrorContains(t, err, "sha256 of here is "+sum+" and not 00")
}
