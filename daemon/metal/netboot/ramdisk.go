package netboot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
)

// ramdiskTail is what follows a file of ramdiskDir, of a size in bytes, when it is served: the ramdisk learns there
// to trust this appliance's root. It is not copied to DATA for that: a hundred megabytes, read and written at each
// first boot.
func (s *Server) ramdiskTail(name string, size int64) ([]byte, error) {
	if name != "initramfs" {
		return nil, nil
	}
	return s.RamdiskTail(size)
}

// ramdiskOpener opens the kernel and the ramdisk of the stick, whose root is given, each with its tail. They count as
// changed when they began to be served: another stick, or another authority, came with a start of the daemon.
func ramdiskOpener(
	root fs.FS, tailOf func(name string, size int64) ([]byte, error), since time.Time,
) func(*os.Root, string) (bootserver.File, fs.FileInfo, error) {
	return func(_ *os.Root, name string) (bootserver.File, fs.FileInfo, error) {
		file, info, err := openExtents(root, path.Join(ramdiskDir, name))
		if err != nil {
			return nil, nil, err
		}

		tail, err := tailOf(name, info.Size())
		if err != nil {
			return nil, nil, errors.Join(bootfile.ErrRead, err, file.Close())
		}

		whole := &tailed{file: file, size: info.Size(), tail: tail}
		return whole, tailedInfo{info, info.Size() + int64(len(tail)), since}, nil
	}
}

// tailed is a file with bytes after its end. It is for one reader at a time.
type tailed struct {
	file *extent.File
	size int64 // of the file, in bytes
	tail []byte
	at   int64
}

// tailedInfo is the file's, but for its size and its time.
type tailedInfo struct {
	fs.FileInfo
	size  int64
	since time.Time
}

func (i tailedInfo) Size() int64        { return i.size }
func (i tailedInfo) ModTime() time.Time { return i.since }

// Close implements io.Closer.
func (t *tailed) Close() error { return t.file.Close() }

// Seek implements io.Seeker.
func (t *tailed) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += t.at
	case io.SeekEnd:
		offset += t.size + int64(len(t.tail))
	}

	if offset < 0 {
		return t.at, fs.ErrInvalid
	}

	t.at = offset
	_, err := t.file.Seek(min(offset, t.size), io.SeekStart)
	return t.at, err
}

// Read implements io.Reader.
func (t *tailed) Read(b []byte) (int, error) {
	if t.at < t.size {
		n, err := t.file.Read(b)
		t.at += int64(n)
		return n, asUnexpectedEOF(err)
	}
	if t.at >= t.size+int64(len(t.tail)) {
		return 0, io.EOF
	}

	n := copy(b, t.tail[t.at-t.size:])
	t.at += int64(n)
	return n, nil
}

// WriteN writes the next n bytes, or what is left, to w: those of the file as extent.File does.
func (t *tailed) WriteN(w io.Writer, n int64) (int64, error) {
	var done int64
	if t.at < t.size {
		var err error
		if done, err = t.file.WriteN(w, min(n, t.size-t.at)); err != nil {
			t.at += done
			return done, asUnexpectedEOF(err)
		}
		t.at += done
	}

	if from := t.at - t.size; from >= 0 && from < int64(len(t.tail)) && done < n {
		wrote, err := w.Write(t.tail[from:min(int64(len(t.tail)), from+n-done)])
		t.at += int64(wrote)
		return done + int64(wrote), err
	}

	return done, nil
}

// asUnexpectedEOF is the error of a read within a file: its end does not belong there.
func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
