package lease

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is what the journal is written to. That of the tests forgets what was not synced, as a power cut does.
type disk interface {
	create(path string) (file, error) // empty, for appending
	rename(from, to string) error
	syncDir(dir string) error // makes the names in it durable
}

// file is one on a disk. What was written to it is durable after either sync; syncData leaves out its times.
type file interface {
	io.WriteCloser
	Sync() error
	syncData() error
}

type systemDisk struct{}

func (systemDisk) create(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o644)
	return systemFile{f}, err
}

func (systemDisk) rename(from, to string) error { return os.Rename(from, to) }

func (systemDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()

	return d.Sync()
}

type systemFile struct{ *os.File }

func (f systemFile) syncData() error { return unix.Fdatasync(int(f.Fd())) }

// replaceFile makes data the content of path so that a reader or a crash meets the old
// content or the new, never a part. The returned file is open for appending: it was opened
// before it had its name, so that nothing is ever appended to another one.
func replaceFile(d disk, path string, data []byte) (file, error) {
	tmp := path + ".new"
	f, err := d.create(tmp)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}

	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}

	if err == nil {
		err = d.rename(tmp, path)
	}

	if err == nil {
		err = d.syncDir(filepath.Dir(path))
	}

	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}

	return f, nil
}
