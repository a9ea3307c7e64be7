package containers

import (
	"context"
	"fmt"
	"io"
	"os"

	"firstlight.dev/firstlight/assets/excerpt"
)

// file is an archive that is read no further when its context has ended: hashing ten gigabytes takes
// minutes, and an agent that is stopped has seconds.
type file struct {
	ctx  context.Context
	file *os.File
}

func openFile(ctx context.Context, path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	return &file{ctx, f}, nil
}

// length is how long it is.
func (f *file) length() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("read archive: %w", err)
	}
	return info.Size(), nil
}

func (f *file) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.file.Read(p)
}

func (f *file) ReadAt(p []byte, at int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, at)
}

func (f *file) Seek(offset int64, whence int) (int64, error) { return f.file.Seek(offset, whence) }
func (f *file) Close() error                                 { return f.file.Close() }

var _ io.ReadSeekCloser = (*file)(nil)

// shorten is the beginning of a text that somebody else wrote.
func shorten(text string) string { return excerpt.Start(text, 200) }
