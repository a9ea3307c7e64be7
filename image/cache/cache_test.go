package cache_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
)

func write(text string) func(string) error {
	return func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }
}

func TestAnEntryIsMadeOnce(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	first, err := store.Do("kind", "key", write("hello"))
	require.NoError(t, err)
	assert.True(t, first.Made)
	assert.Equal(t, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", first.Digest)
	second, err := store.Do("kind", "key", func(string) error { return errors.New("made again") })
	require.NoError(t, err)
	assert.False(t, second.Made)
	assert.Equal(t, first.Path, second.Path)
	assert.Equal(t, first.Digest, second.Digest)
}

func TestAFailureLeavesNothing(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	broken := errors.New("broken")
	_, err := store.Do("kind", "key", func(path string) error {
		require.NoError(t, os.MkdirAll(filepath.Join(path, "sub"), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(path, "sub"), 0o500))
		return broken
	})
	assert.ErrorIs(t, err, broken)
	left, err := os.ReadDir(filepath.Join(store.Dir, "kind"))
	require.NoError(t, err)
	assert.Empty(t, left)
	_, found := store.Lookup("kind", "key")
	assert.False(t, found)
	_, err = store.Do("kind", "key", func(string) error { return nil })
	assert.ErrorContains(t, err, "keep kind", "a maker that made nothing")
}

func TestAnEntryThatWasCutOffIsMadeAgain(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	// The entry is renamed into place before its digest: a power cut in between.
	require.NoError(t, os.MkdirAll(filepath.Join(store.Dir, "kind", "key"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(store.Dir, "kind", "file"), []byte("old"), 0o644))
	item, err := store.Do("kind", "file", write("new"))
	require.NoError(t, err)
	text, err := os.ReadFile(item.Path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
}

func TestTwoBuildsAtOnceAgree(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	var group sync.WaitGroup
	var failed atomic.Int32
	for range 8 {
		group.Go(func() {
			if _, err := store.Do("kind", "key", func(path string) error {
				if err := os.Mkdir(path, 0o755); err != nil {
					return err
				}
				return os.WriteFile(filepath.Join(path, "file"), []byte("x"), 0o644)
			}); err != nil {
				failed.Add(1)
				t.Log(err)
			}
		})
	}
	group.Wait()
	assert.Zero(t, failed.Load())
	item, ok := store.Lookup("kind", "key")
	require.True(t, ok)
	assert.FileExists(t, filepath.Join(item.Path, "file"))
}

func TestKeysOfDifferentListsDiffer(t *testing.T) {
	lists := [][]string{{}, {""}, {"", ""}, {"a", "b"}, {"ab"}, {"a,1:b"}, {"b", "a"}}
	seen := map[string][]string{}
	for _, list := range lists {
		key := cache.Key(list...)
		assert.Len(t, key, 64)
		assert.NotContains(t, seen, key, "%q", list)
		seen[key] = list
	}
}

func TestPruneRemovesWhatIsUnused(t *testing.T) {
	store := cache.Store{Dir: t.TempDir()}
	for _, key := range []string{"old", "new"} {
		_, err := store.Do("kind", key, write(key))
		require.NoError(t, err)
	}
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(store.Dir, "kind", "old.sum"), past, past))
	removed, err := store.Prune(time.Now().Add(-time.Minute))
	require.NoError(t, err)
	assert.Equal(t, 1, removed)
	_, found := store.Lookup("kind", "old")
	assert.False(t, found)
	_, found = store.Lookup("kind", "new")
	assert.True(t, found)
}
