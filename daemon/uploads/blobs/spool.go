package blobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
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
		return nil, fullError(fmt.Errorf("open scratch file in %s: %w", dir, err))
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Close()
		return nil, fmt.Errorf("hide scratch file: %w", err)
	}
	return f, nil
}

// fullError makes ErrFull of a full scratch file system: to the client there is no
// difference.
func fullError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", s3.ErrFull, err)
	}
	return err
}

// offsetReader is the rest of a file from an offset on, for readers that take their own.
type offsetReader struct {
	io.ReaderAt
	from int64
}

func (r offsetReader) ReadAt(p []byte, off int64) (int, error) {
	return r.ReaderAt.ReadAt(p, r.from+off)
}
