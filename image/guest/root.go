package guest

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
)

// WithRoot mounts the root of an image where nobody else sees it and calls do with where it is; do may start no other
// goroutine that reads it. The mount ends with it, also when the program is killed.
func WithRoot(image string, do func(root string) error) error {
	if os.Geteuid() != 0 {
		return errors.New("the root of an image is mounted to be read, which needs root; run this with sudo")
	}
	file, offset, err := container.FindRoot(image)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "firstlight-root-")
	if err != nil {
		return err
	}
	defer os.Remove(dir) // it is empty

	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends, and with it its mounts
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("make mount namespace: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return fmt.Errorf("make mounts private: %w", err)
			}
			if err := container.MountRoot(file, offset, dir); err != nil {
				return err
			}
			return errors.Join(do(dir), unix.Unmount(dir, unix.MNT_DETACH))
		}()
	}()
	return <-result
}
