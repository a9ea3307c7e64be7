package bootserver

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// content is what is sent for a file.
type content struct {
	io.ReadSeeker
	size    int64 // bytes
	changed time.Time
}

// content is a file with its tail. Without one it is the file itself, which the kernel can send.
func (m *Mount) content(name string, file *os.File, info fs.FileInfo) (content, error) {
	alone := content{file, info.Size(), info.ModTime()}
	if m.Tail == nil {
		return alone, nil
	}
	tail, err := m.Tail(name, info.Size())
	if err != nil || len(tail) == 0 {
		return alone, err
	}

	size := info.Size() + int64(len(tail))
	return content{io.NewSectionReader(joint{file, info.Size(), tail}, 0, size), size, m.Since}, nil
}

// joint reads a file of a size in bytes, then its tail.
type joint struct {
	file io.ReaderAt
	size int64
	tail []byte
}

// ReadAt implements io.ReaderAt. A file that became shorter is an error, not a tail in the wrong place.
func (j joint) ReadAt(p []byte, offset int64) (int, error) {
	n := 0
	if offset < j.size {
		head := p[:min(int64(len(p)), j.size-offset)]
		var err error
		if n, err = j.file.ReadAt(head, offset); n < len(head) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
	}

	if from := offset + int64(n) - j.size; from >= 0 && from < int64(len(j.tail)) {
		n += copy(p[n:], j.tail[from:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
