package atomicfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// names are what a folder holds.
func names(t *testing.T, dir string) (all []string) {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

func TestWriteReplacesWithTheModeAsked(t *testing.T) {
	for _, umask := range []int{0o000, 0o022, 0o077} {
		old := syscall.Umask(umask)
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		for _, mode := range []os.FileMode{0o644, 0o600, 0o444, 0o666} {
			require.NoError(t, Write(path, []byte(mode.String()), mode))
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, mode.String(), string(text))
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, mode, info.Mode().Perm(), "umask %o", umask)
		}
		assert.Equal(t, []string{"file"}, names(t, dir))
		syscall.Umask(old)
	}
}

func TestOnlyWhatDiffersIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file")
	inode := func() uint64 {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	write := func(text string, mode os.FileMode) uint64 {
		require.NoError(t, WriteChanged(path, []byte(text), mode))
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(have))
		return inode()
	}

	first := write("a", 0o600)
	assert.Equal(t, first, write("a", 0o600))
	for _, change := range []func() uint64{
		func() uint64 { return write("b", 0o600) },
		func() uint64 { return write("b", 0o644) },
		func() uint64 {
			require.NoError(t, os.Rename(path, path+"2"))
			require.NoError(t, os.Symlink(path+"2", path))
			return write("b", 0o644)
		},
	} {
		before := first
		first = change()
		assert.NotEqual(t, before, first)
	}
}

func TestAReaderOfTheOldFileKeepsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Write(path, []byte("old"), 0o644))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, Write(path, []byte("new, and longer"), 0o644))
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Equal(t, "old", string(text))
}

func TestWhatFailsLeavesTheOldFileAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, Write(path, []byte("old"), 0o644))
	broken := errors.New("read error")
	err := Copy(path, io.MultiReader(bytes.NewReader([]byte("half")), iotest.ErrReader(broken)), 0o644)
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "write "+path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(text))
	assert.Equal(t, []string{"file"}, names(t, dir), "the temporary file stays")

	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.Error(t, Write(filepath.Join(dir, "folder"), nil, 0o644))
	require.Error(t, Write(filepath.Join(dir, "absent", "file"), nil, 0o644))
	assert.Equal(t, []string{"file", "folder"}, names(t, dir), "the temporary file stays")
}

// TestTheNewFileIsOnTheMediumBeforeItHasItsName: one that cannot be brought there never gets it.
func TestTheNewFileIsOnTheMediumBeforeItHasItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Write(path, []byte("old"), 0o644))
	full := errors.New("no room")
	err := replace(path, bytes.NewReader([]byte("new")), 0o644, func(f *os.File) error {
		temporary, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		assert.Equal(t, "new", string(temporary), "it is synced before it is written")
		return full
	})
	require.ErrorIs(t, err, full)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(text))
}

// What a cut left is overwritten, and neither followed nor as open as it was.
func TestWhatACutLeft(t *testing.T) {
	dir := t.TempDir()
	path, left := filepath.Join(dir, "secret"), filepath.Join(dir, ".secret.new")
	require.NoError(t, os.WriteFile(left, []byte("much longer than what comes"), 0o644))
	require.NoError(t, Write(path, []byte("new"), 0o600))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(text))
	assert.Equal(t, []string{"secret"}, names(t, dir))

	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("another's"), 0o644))
	require.NoError(t, os.Symlink(other, left))
	require.Error(t, Write(path, []byte("newer"), 0o600))
	text, err = os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, "another's", string(text))
}

func TestWritersOfOneFileDoNotTearIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 20 {
				assert.NoError(t, Write(path, bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1)), 0o644))
				text, err := os.ReadFile(path)
				if assert.NoError(t, err) && assert.NotEmpty(t, text) {
					assert.Equal(t, bytes.Repeat(text[:1], 1000*int(text[0]-'a'+1)), text)
				}
			}
		})
	}
	writers.Wait()
	assert.Equal(t, []string{"file"}, names(t, dir))
}
