package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
)

func TestPruneKeepsWhatIsUsed(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	t.Setenv("FIRSTLIGHT_CACHE", store.Dir)
	for _, key := range []string{"old", "used"} {
		_, err := store.Do("deb", key, func(path string) error { return os.WriteFile(path, nil, 0o644) })
		require.NoError(t, err)
	}
	then := time.Now().Add(-8 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(store.Dir, "deb", "old.sum"), then, then))
	assert.Zero(t, run(t.Context(), []string{"prune"}))
	_, there := store.Lookup("deb", "old")
	assert.False(t, there)
	_, there = store.Lookup("deb", "used")
	assert.True(t, there)
	assert.Equal(t, 2, run(t.Context(), []string{"prune", "--unused-for", "-1h"}))
}
