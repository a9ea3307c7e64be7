package away

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
)

// file is one entry of an away copy.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// Write writes the away copy of an appliance, which may run meanwhile. site is its document; nil if it has none. Only
// the holder of one of the recipients' keys can read it.
func (p Place) Write(w io.Writer, h Header, site []byte, recipients []age.Recipient) error {
	files, err := p.read()
	if err != nil {
		return fmt.Errorf("make away copy: %w", err)
	}

	h.Format, h.Hosts, h.Clusters = Format, 0, 0
	for _, f := range files {
		switch {
		case isHostRecord(f.name):
			h.Hosts++
		case isClusterRecord(f.name):
			h.Clusters++
		}
	}

	header, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("make away copy: %w", err)
	}

	first := []file{{headerName, 0o600, header}}
	if site != nil {
		first = append(first, file{siteName, 0o600, site})
	}

	if err := seal(w, append(first, files...), recipients); err != nil {
		return fmt.Errorf("make away copy: %w", err)
	}

	return nil
}

// seal writes files as an archive that only the recipients can read.
func seal(w io.Writer, files []file, recipients []age.Recipient) error {
	sealed, err := age.Encrypt(w, recipients...)
	if err != nil {
		return err
	}

	packed := gzip.NewWriter(sealed)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		head := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.data))}
		if err := archive.WriteHeader(&head); err != nil {
			return err
		}
		if _, err := archive.Write(f.data); err != nil {
			return err
		}
	}

	return errors.Join(archive.Close(), packed.Close(), sealed.Close())
}

// read reads all parts. A file that is replaced meanwhile is the old one or the new one; one that is removed is left
// out.
func (p Place) read() ([]file, error) {
	var all []file
	for _, part := range Parts() {
		top := p.path(part.Path)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() && part.Skip != "" && d.Name() == part.Skip:
				return fs.SkipDir
			case !d.Type().IsRegular() || isLeftover(d.Name()):
				return nil
			}

			f, err := p.readFile(path)
			if err == nil {
				all = append(all, f)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}

			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p Place) readFile(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}

	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d MiB", path, maxFile>>20)
	}

	name, rel := filepath.Rel(p.path("/"), path)
	return file{name, info.Mode(), data}, errors.Join(err, rel)
}

// isHostRecord and isClusterRecord report which entries are records.
func isHostRecord(name string) bool {
	dir, base := filepath.Split("/" + name)
	return dir == Parts()[0].Path+"/" && strings.HasSuffix(base, ".json")
}

func isClusterRecord(name string) bool {
	return strings.HasPrefix("/"+name, Parts()[1].Path+"/") && filepath.Base(name) == "installed.json"
}
