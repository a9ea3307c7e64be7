package container

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAProgramMayBeWhereNothingIsRun: a daemon that was just compiled is in a directory for temporary files, which may
// be mounted so.
func TestAProgramMayBeWhereNothingIsRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}

	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "program")
	done := make(chan error)
	var fs unix.Statfs_t
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its mounts with it
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "program"), nil, 0o755); err != nil {
				return err
			}
			if err := Bind(filepath.Join(dir, "program"), target, unix.MS_RDONLY); err != nil {
				return err
			}
			return unix.Statfs(target, &fs)
		}()
	}()
	require.NoError(t, <-done)
	assert.NotZero(t, fs.Flags&unix.ST_RDONLY)
	assert.Zero(t, fs.Flags&unix.ST_NOEXEC)
}
