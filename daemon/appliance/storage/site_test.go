package storage

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestTheSiteIsReplacedOnAReadOnlyMount: it is written, and read-only again.
func TestTheSiteIsReplacedOnAReadOnlyMount(t *testing.T) {
	dir := t.TempDir()
	allow := func() error { return nil }
	require.ErrorContains(t, ReplaceSite(dir, "site.yaml", nil, allow), "SITE is not mounted")
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Getuid() != 0 {
		t.Skip("mounts in a namespace of its own: needs root and FIRSTLIGHT_TEST=ns")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	require.NoError(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", siteFlags, ""))

	path := filepath.Join(dir, "site.yaml")
	for _, text := range []string{"name: first\n", "name: second\n"} {
		require.NoError(t, ReplaceSite(dir, "site.yaml", []byte(text), allow))
		is, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(is))
		assert.ErrorIs(t, os.WriteFile(path, nil, 0o600), unix.EROFS)
		var s unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &s))
		assert.EqualValues(t, siteFlags, s.Flags&siteFlags, "it may run or make devices now")
	}
	refuse := func() error { return errors.New("another one") }
	require.EqualError(t, ReplaceSite(dir, "site.yaml", []byte("name: third\n"), refuse), "another one")
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "name: second\n", string(is))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1)
	require.NoError(t, unix.Unmount(dir, 0))
}

// TestTheFileSystemOfASiteInATryStaysWritable: SITE is bound there from a directory of the machine.
func TestTheFileSystemOfASiteInATryStaysWritable(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Getuid() != 0 {
		t.Skip("mounts in a namespace of its own: needs root and FIRSTLIGHT_TEST=ns")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	machine, dir := t.TempDir(), t.TempDir()
	require.NoError(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("tmpfs", machine, "tmpfs", 0, ""))
	require.NoError(t, os.Mkdir(filepath.Join(machine, "site"), 0o700))
	require.NoError(t, unix.Mount(filepath.Join(machine, "site"), dir, "", unix.MS_BIND, ""))
	require.NoError(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))

	allow := func() error { return nil }
	for _, isBusy := range []bool{true, false} { // a file that is open keeps a file system from becoming read-only
		other := filepath.Join(machine, "console.log")
		f, err := os.Create(other)
		require.NoError(t, err)
		if !isBusy {
			require.NoError(t, f.Close())
		}
		require.NoError(t, ReplaceSite(dir, "site.yaml", []byte("name: try\n"), allow))
		assert.ErrorIs(t, os.WriteFile(filepath.Join(dir, "site.yaml"), nil, 0o600), unix.EROFS)
		assert.NoError(t, os.WriteFile(other, nil, 0o600), "the machine's file system is read-only now")
		_ = f.Close()
	}
	require.NoError(t, unix.Unmount(dir, 0))
	require.NoError(t, unix.Unmount(machine, 0))
}
