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
	prune := func(n int) {
		tooLarge, err := PruneLogs(dir, LogLimits{Files: n, File: 10, All: 100})
		require.NoError(t, err)
		assert.Empty(t, tooLarge)
	}
	prune(4)
	assert.Equal(t, []string{"a", "b", "c", "d", "folder"}, left())
	prune(2)
	assert.Equal(t, []string{"b", "d", "folder"}, left())
	_, err := PruneLogs(filepath.Join(dir, "absent"), LogLimits{})
	assert.NoError(t, err)
}

// TestAnAgentDoesNotFillDATA: what it says of itself is as long as it likes.
func TestAnAgentDoesNotFillDATA(t *testing.T) {
	dir := t.TempDir()
	for i, size := range []int64{40, 40, 40, 2000, 90} { // the last is the newest
		path := filepath.Join(dir, string(rune('a'+i)))
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		require.NoError(t, os.Truncate(path, size))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(int64(1000+i), 0)))
	}
	tooLarge, err := PruneLogs(dir, LogLimits{Files: 100, File: 100, All: 150})
	require.NoError(t, err)
	assert.Equal(t, []string{"d"}, tooLarge)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.Equal(t, "c", entries[0].Name())
	assert.Equal(t, "e", entries[1].Name())
}
