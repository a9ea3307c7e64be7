package extent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// File is a file that is read whole. It is for one reader at a time.
type File struct {
	root    fs.FS
	own     fs.File
	info    fs.FileInfo
	extents []Extent
	at      int64

	source     fs.File // the one that was read last
	sourceName string
}

// Size is how many bytes the file of that name has, a path from the top of root. It reads no extents.
func Size(root fs.FS, name string) (int64, error) {
	info, err := fs.Stat(root, name+SuffixOwn)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = fs.Stat(root, name)
	}

	if err != nil {
		return 0, err
	}

	return info.Size(), nil
}

// Open opens the file of that name, a path from the top of root, whether it is kept whole or without
// its shared extents. The error is fs.ErrNotExist where neither is there, fs.ErrInvalid where something
// else is than a regular file.
func Open(root fs.FS, name string) (*File, error) {
	f := &File{root: root}
	own, err := root.Open(name + SuffixOwn)
	shared := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		own, err = root.Open(name)
	}

	if err != nil {
		return nil, err
	}

	f.own = own
	if f.info, err = own.Stat(); err == nil && !f.info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a regular file: %w", fs.ErrInvalid)}
	}

	if err == nil && shared {
		err = f.openExtents(name + SuffixExtents)
	}

	if err != nil {
		return nil, errors.Join(err, own.Close())
	}

	return f, nil
}

func (f *File) openExtents(name string) error {
	list, err := f.root.Open(name)
	if err != nil {
		return err
	}
	defer list.Close()

	if f.extents, err = Decode(list, f.info.Size()); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}

	return nil
}

// Stat is about what is kept of the file: its size and time are the file's, its name is not.
func (f *File) Stat() (fs.FileInfo, error) { return f.info, nil }

// Extents are the shared ones, in order.
func (f *File) Extents() []Extent { return slices.Clone(f.extents) }

// Close closes what is open.
func (f *File) Close() error {
	err := f.own.Close()
	if f.source != nil {
		err = errors.Join(err, f.source.Close())
	}
	return err
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.info.Size()
	}

	if offset < 0 {
		return f.at, fs.ErrInvalid
	}

	f.at = offset
	return offset, nil
}

// Read implements io.Reader. It fills b unless the file ends or an error comes before.
func (f *File) Read(b []byte) (int, error) {
	if f.at >= f.info.Size() {
		return 0, io.EOF
	}

	b = b[:min(int64(len(b)), f.info.Size()-f.at)]
	done := 0
	for done < len(b) {
		n, err := f.readPiece(b[done:])
		done += n
		f.at += int64(n)
		if err != nil {
			return done, err
		}
	}

	return done, nil
}

// WriteN writes the next n bytes, or what is left, to w: each stretch out of the file that holds it, so that a
// socket takes it by sendfile.
func (f *File) WriteN(w io.Writer, n int64) (int64, error) {
	n = min(n, max(0, f.info.Size()-f.at))
	var done int64
	for done < n {
		file, at, size, err := f.stretch()
		if err != nil {
			return done, err
		}

		size = min(size, n-done)
		seeker, ok := file.(io.Seeker)
		if !ok {
			return done, errors.ErrUnsupported
		}
		if _, err := seeker.Seek(at, io.SeekStart); err != nil {
			return done, err
		}

		wrote, err := io.Copy(w, &io.LimitedReader{R: file, N: size})
		done += wrote
		f.at += wrote
		if err == nil && wrote < size {
			err = f.short()
		}

		if err != nil {
			return done, err
		}
	}

	return done, nil
}

// readPiece reads up to the next end of a stretch. A file that is too short is an error.
func (f *File) readPiece(b []byte) (int, error) {
	file, at, size, err := f.stretch()
	if err != nil {
		return 0, err
	}

	r, ok := file.(io.ReaderAt)
	if !ok {
		return 0, errors.ErrUnsupported
	}

	b = b[:min(int64(len(b)), size)]
	n, err := r.ReadAt(b, at)
	if n == len(b) {
		return n, nil
	}

	if err == io.EOF {
		err = f.short()
	}

	return n, err
}

// stretch is where the file's next bytes lie: which file, from where on and how many.
func (f *File) stretch() (file fs.File, at, size int64, err error) {
	next, shared := slices.BinarySearchFunc(f.extents, f.at, func(e Extent, at int64) int {
		switch {
		case e.Offset+e.Size <= at:
			return -1
		case e.Offset > at:
			return 1
		}
		return 0
	})
	if shared {
		e := f.extents[next]
		within := f.at - e.Offset
		if err := f.openSource(e.Source); err != nil {
			return nil, 0, 0, err
		}

		return f.source, e.At + within, e.Size - within, nil
	}

	end := f.info.Size()
	if next < len(f.extents) {
		end = f.extents[next].Offset
	}

	return f.own, f.at, end - f.at, nil
}

// openSource makes a file the one that is read from.
func (f *File) openSource(name string) error {
	if f.sourceName == name {
		return nil
	}

	if f.source != nil {
		f.source.Close() // it was read only
		f.source, f.sourceName = nil, ""
	}

	source, err := f.root.Open(name)
	if err != nil {
		return err
	}

	f.source, f.sourceName = source, name
	return nil
}

// short is the error of a file that ends before what it shares.
func (f *File) short() error {
	return fmt.Errorf("byte %d: a file that it is put together from is too short: %w", f.at, io.ErrUnexpectedEOF)
}
