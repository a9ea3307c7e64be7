package guest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// writeEntry writes one file of a tree. names are those of files with several names, by inode: a further name is a link
// to the first.
func writeEntry(t *tar.Writer, file, name string, entry fs.DirEntry, names map[uint64]string) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket != 0 {
		return nil
	}

	target := ""
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err = os.Readlink(file); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname, h.Format = name, "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	h.PAXRecords, err = readCapability(file)
	if err != nil {
		return err
	}

	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 && info.Mode().IsRegular() {
		if first, isThere := names[s.Ino]; isThere {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return t.WriteHeader(h)
		}
		names[s.Ino] = name
	}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}

	f, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return errors.Join(err, f.Close())
}

// readCapability returns what a program of the tree may do besides what its user may, as records of a tar file.
func readCapability(file string) (map[string]string, error) {
	const name = "security.capability"
	var value [64]byte
	n, err := unix.Lgetxattr(file, name, value[:])
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s of %s: %w", name, file, err)
	}
	return map[string]string{"SCHILY.xattr." + name: strings.Clone(string(value[:n]))}, nil
}
