// Package ownertest makes owners for tests, and images that they have signed.
package ownertest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/owner"
)

// NewKeys are keys that no machine has.
func NewKeys(t testing.TB) owner.Keys {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, owner.MakeKeys(dir, time.Now()))
	keys, err := owner.ReadKeys(dir)
	require.NoError(t, err)
	return keys
}

// Sign signs what an image starts, as `firstlight sign --secure-boot` does, and returns the path of the result.
func Sign(t testing.TB, keys owner.Keys, image string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "signed.img")
	require.NoError(t, owner.SignImage(t.Context(), image, out, keys))
	return out
}
