package s3

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// openScratch opens a file without a name: a kill leaves nothing. Its pages seldom reach
// the disk, because each part is written over the one before.
func openScratch(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}

	f, err := os.CreateTemp(dir, ".scratch-*") // a file system without such files
	if err != nil {
		return nil, blobs.FullError(fmt.Errorf("open scratch file in %s: %w", dir, err))
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, fmt.Errorf("hide scratch file: %w", err)
	}

	return f, nil
}
