package netboot

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
)

// imageOpener opens the operating systems of the stick, whose root is given. They are kept without what they
// share with the appliance's own system; root is the read-only one, below the overlay, whose files stay as they are.
func imageOpener(root fs.FS) func(*os.Root, string) (bootserver.File, fs.FileInfo, error) {
	return func(_ *os.Root, name string) (bootserver.File, fs.FileInfo, error) {
		file, info, err := openExtents(root, path.Join(ImageDir, name))
		if err != nil {
			return nil, nil, err
		}
		return file, info, nil
	}
}

// openExtents opens a file of the stick by its absolute path. The error is one of package bootfile's.
func openExtents(root fs.FS, name string) (*extent.File, fs.FileInfo, error) {
	file, err := extent.Open(root, relative(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, bootfile.ErrNotFound
	case errors.Is(err, fs.ErrInvalid):
		return nil, nil, bootfile.ErrNotFile
	case err != nil:
		return nil, nil, bootfile.ErrRead
	}

	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(bootfile.ErrRead, file.Close())
	}

	return file, info, nil
}

// relative is an absolute path as package fs takes it.
func relative(name string) string { return strings.TrimPrefix(name, "/") }
