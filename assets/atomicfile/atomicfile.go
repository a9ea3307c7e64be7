// Package atomicfile writes files that are there whole or not at all, whatever moment the power goes: the new
// bytes are on the medium before the name points to them, and the name before the call returns.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Write makes data the content of path, in the place of what was there. Its folder must be there. The mode
// is the file's whatever the umask is.
func Write(path string, data []byte, mode os.FileMode) error {
	return Copy(path, bytes.NewReader(data), mode)
}

// WriteChanged is Write of a file that does not have that content and mode yet. Its folder is made.
func WriteChanged(path string, data []byte, mode os.FileMode) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode() == mode {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return Write(path, data, mode)
}

// Copy is Write of all that from holds.
func Copy(path string, from io.Reader, mode os.FileMode) error {
	if err := replace(path, from, mode, (*os.File).Sync); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// replace is Copy; sync brings the new file to the medium before it gets its name.
func replace(path string, from io.Reader, mode os.FileMode, sync func(*os.File) error) error {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	// Hidden, since programs take whatever lies in some folders for theirs. A fixed name: a cut leaves one
	// file to overwrite, not many.
	f, err := openTemporary(filepath.Join(dir, "."+base+".new"))
	if err != nil {
		return err
	}
	defer f.Close()

	err = f.Chmod(mode)
	if err == nil {
		_, err = io.Copy(f, from)
	}

	if err == nil {
		err = sync(f)
	}

	if err == nil {
		err = os.Rename(f.Name(), path)
	}

	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}

	return SyncDir(dir)
}

// openTemporary opens the temporary file for one writer, empty: another one of the same path waits until this one
// has given the file its name, and then begins with a file of its own.
func openTemporary(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}

		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}

		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if hasName(f) {
			// What a cut left may be open to more eyes than what comes.
			if err := errors.Join(f.Truncate(0), f.Chmod(0o600)); err != nil {
				f.Close()
				return nil, err
			}
			return f, nil
		}

		f.Close()
	}
}

// hasName tells whether an open file still has its name.
func hasName(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}

	there, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(mine, there)
}

// LockDir waits until no other process has a folder locked, and has it until unlock or its end.
func LockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil
}

// SyncDir brings a folder's names to the medium.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
