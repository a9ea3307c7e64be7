// Package concat reads several files as one, whatever part of it is asked for: what is served is put together while it
// is sent, and is nowhere as a whole.
package concat

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
)

// Part is one of the files. It is read from its beginning.
type Part struct {
	io.ReadSeeker
	Size int64 // in bytes; what it has beyond is not read, and less is an error
}

// Bytes is a part in memory.
func Bytes(b []byte) Part { return Part{ReadSeeker: bytes.NewReader(b), Size: int64(len(b))} }

// File is several parts as one. It is for one reader at a time.
type File struct {
	parts []Part
	size  int64
	at    int64
}

// New is a file made of parts, in their order. Close closes those that can be.
func New(parts ...Part) *File {
	f := &File{parts: parts}
	for _, p := range parts {
		f.size += p.Size
	}
	return f
}

// Size is that of all parts, in bytes.
func (f *File) Size() int64 { return f.size }

// Close implements io.Closer.
func (f *File) Close() error {
	var errs []error
	for _, p := range f.parts {
		if c, ok := p.ReadSeeker.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.size
	}

	if offset < 0 {
		return f.at, fs.ErrInvalid
	}

	f.at = offset
	return offset, nil
}

// Read implements io.Reader.
func (f *File) Read(b []byte) (int, error) {
	part, left, err := f.seekPart()
	if err != nil {
		return 0, err
	}

	n, err := part.Read(b[:min(int64(len(b)), left)])
	f.at += int64(n)
	if errors.Is(err, io.EOF) {
		err = endWithin(int64(n), left)
	}
	return n, err
}

// WriteN writes the next n bytes, or what is left, to w: of each part as it does itself, so that a socket takes a file
// by sendfile.
func (f *File) WriteN(w io.Writer, n int64) (int64, error) {
	var done int64
	for done < n {
		part, left, err := f.seekPart()
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}

		want := min(n-done, left)
		wrote, err := writeN(w, part, want)
		done += wrote
		f.at += wrote
		if err != nil {
			return done, err
		}
		if wrote < want {
			return done, io.ErrUnexpectedEOF
		}
	}
	return done, nil
}

func writeN(w io.Writer, from io.Reader, n int64) (int64, error) {
	if file, ok := from.(interface {
		WriteN(w io.Writer, n int64) (int64, error)
	}); ok {
		return file.WriteN(w, n)
	}
	return io.Copy(w, &io.LimitedReader{R: from, N: n})
}

// seekPart is the part that has the next byte, at its place, and how many bytes of it are left. The error is io.EOF at
// the end of the last one.
func (f *File) seekPart() (part io.ReadSeeker, left int64, err error) {
	within := f.at
	for _, p := range f.parts {
		if within >= p.Size {
			within -= p.Size
			continue
		}
		_, err := p.Seek(within, io.SeekStart)
		return p.ReadSeeker, p.Size - within, err
	}
	return nil, 0, io.EOF
}

// endWithin is the error of a part that ended after n bytes, of which it was to have left more.
func endWithin(n, left int64) error {
	if n < left {
		return io.ErrUnexpectedEOF
	}
	return nil
}
