// Package netns reaches into other network namespaces: those of sandboxes and of switches. A socket
// stays in the namespace that it was made in, so a program needs to be there only to make it.
package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// PathOf is the file that stands for the network of a process.
func PathOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// Do runs do in the network namespace that the file at path stands for. It needs root. A thread
// that cannot come back ends.
func Do(path string, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- func() error {
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return fmt.Errorf("enter network: %w", err)
			}
			defer own.Close()

			other, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("enter network: %w", err)
			}
			defer other.Close()

			if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network %s: %w", path, err)
			}

			err = do()
			if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}

			return err
		}()
	}()
	return <-result
}
