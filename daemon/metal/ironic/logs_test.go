package ironic

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheNewestLogsAreKept(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"c", "a", "d", "b"} { // c is the oldest
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(int64(1000+i), 0)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.NoError(t, PruneOldest(dir, 4))
	assert.Equal(t, []string{"a", "b", "c", "d", "folder"}, left())
	require.NoError(t, PruneOldest(dir, 2))
	assert.Equal(t, []string{"b", "d", "folder"}, left())
	assert.NoError(t, PruneOldest(filepath.Join(dir, "absent"), 2))
}
