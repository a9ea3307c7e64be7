package try

import (
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestAnotherUsersSocketIsNoRack: whoever takes the name of root's lock could send root to a directory of his, or let
// everything wait that asks whether a rack runs.
func TestAnotherUsersSocketIsNoRack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be another user")
	}

	inOwnNetwork(t, func() {
		const unchanged = ^uintptr(0)
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, 65534, unchanged)
		assert.Zero(t, errno)
		foreign, err := net.Listen("unix", lockName0)
		_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, unchanged, 0, unchanged)
		assert.Zero(t, errno)
		if !assert.NoError(t, err) {
			return
		}

		assert.Empty(t, RunningDir(), "it never answers")
		_, err = acquireLock("/rack")
		assert.ErrorContains(t, err, "the socket "+lockName0+" is of another user")
		assert.NoError(t, foreign.Close())

		lock, err := acquireLock("/rack")
		if assert.NoError(t, err) {
			assert.Equal(t, "/rack", RunningDir())
			_, err = acquireLock("/other")
			assert.ErrorContains(t, err, "another rack of yours runs on this machine, in /rack")
			assert.NoError(t, lock.Close())
		}
	})
}

// lockName0 is root's.
const lockName0 = "@firstlight-try"

// inOwnNetwork calls do on a thread in a network namespace of its own, in which nobody else has sockets.
func inOwnNetwork(t *testing.T, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		if err == nil {
			do()
		}
		done <- err
	}()
	require.NoError(t, <-done)
}
