// Package bootfile opens the boot programs that TFTP and HTTP serve under the same
// names. It is the one place where a name from the wire meets the file system: names
// are checked, then opened through os.Root, so that neither "..", nor an absolute path,
// nor a symbolic link leads out of the directories that were given.
package bootfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// MaxName is the longest name answered, in bytes.
const MaxName = 255

// Refusals. Their text is shown to the client and holds no path of the host.
var (
	ErrName     = errors.New("the name is not one that can be served")
	ErrNotFound = errors.New("there is no such file here")
	ErrNotFile  = errors.New("this is not a regular file")
	ErrRead     = errors.New("the file cannot be read")
)

// File is what is served.
type File interface {
	io.ReadSeeker
	io.ReaderAt
	io.Closer
}

// Set is a fixed set of files in some directories, and of texts. The zero value has none.
type Set struct {
	roots []*os.Root
	names []string
	texts map[string][]byte
}

// OpenSet opens the directories, searched in that order. names, if any, are the only
// files served; without names every regular file below the directories is. A directory
// that does not exist is an error: a boot server without its files boots nothing.
func OpenSet(dirs []string, names []string) (*Set, error) {
	s := &Set{names: slices.Clone(names)}
	for _, dir := range dirs {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open boot directory %s: %w", dir, err), s.Close())
		}
		s.roots = append(s.roots, root)
	}
	return s, nil
}

// AddText has a text served as the file of that name, which is as CleanName returns it.
func (s *Set) AddText(name string, content []byte) {
	if s.texts == nil {
		s.texts = map[string][]byte{}
	}
	s.texts[name] = content
}

// Close closes the directories; files already open stay so.
func (s *Set) Close() error {
	var errs []error
	for _, root := range s.roots {
		errs = append(errs, root.Close())
	}

	s.roots = nil
	return errors.Join(errs...)
}

// MissingFiles returns the names of the fixed set that no directory holds.
func (s *Set) MissingFiles() []string {
	var missing []string
	for _, name := range s.names {
		file, _, err := s.Open(name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		_ = file.Close()
	}
	return missing
}

// Open opens the file of that name for reading. The error is one of this package's.
func (s *Set) Open(name string) (File, fs.FileInfo, error) {
	clean, err := CleanName(name)
	if err != nil {
		return nil, nil, err
	}
	if content, ok := s.texts[clean]; ok {
		return text{bytes.NewReader(content)}, textInfo{path.Base(clean), int64(len(content))}, nil
	}
	if len(s.names) > 0 && !slices.Contains(s.names, clean) {
		return nil, nil, ErrNotFound
	}

	err = ErrNotFound
	for _, root := range s.roots {
		file, info, openErr := OpenRegular(root, clean)
		if openErr == nil {
			return file, info, nil
		}
		if !errors.Is(openErr, ErrNotFound) {
			err = openErr
		}
	}

	return nil, nil, err
}

// OpenRegular opens a regular file below root. The error is one of this package's.
// A FIFO or device is never waited for: it is looked at before it is opened.
func OpenRegular(root *os.Root, clean string) (*os.File, fs.FileInfo, error) {
	info, err := root.Stat(clean)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, ErrNotFound
	case err != nil: // a link that leads out, a loop, a file where a directory should be
		return nil, nil, ErrNotFound
	case !info.Mode().IsRegular():
		return nil, nil, ErrNotFile
	}

	file, err := root.Open(clean)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, ErrNotFound
	}
	if err != nil {
		return nil, nil, ErrRead
	}

	return file, info, nil
}

// CleanName turns a name from the wire into a relative slash-separated path: leading,
// doubled and single-dot elements go ("//boot/./x" is "boot/x": firmware writes such
// names), everything that could mean something else is refused with ErrName.
func CleanName(name string) (string, error) {
	if len(name) > MaxName {
		return "", fmt.Errorf("%w: it is longer than %d bytes", ErrName, MaxName)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == '�' }) {
		return "", fmt.Errorf("%w: it has control characters, backslashes or broken text in it", ErrName)
	}

	var kept []string
	for element := range strings.SplitSeq(name, "/") {
		switch element {
		case "", ".":
		case "..":
			return "", fmt.Errorf("%w: it has \"..\" in it", ErrName)
		default:
			kept = append(kept, element)
		}
	}

	if len(kept) == 0 {
		return "", fmt.Errorf("%w: it is empty", ErrName)
	}

	return strings.Join(kept, "/"), nil
}

// text is a file of memory.
type text struct{ *bytes.Reader }

// Close implements File.
func (text) Close() error { return nil }

// textInfo is what is known of a text: when it was last changed is not.
type textInfo struct {
	name string
	size int64
}

func (i textInfo) Name() string       { return i.name }
func (i textInfo) Size() int64        { return i.size }
func (i textInfo) Mode() fs.FileMode  { return 0o444 }
func (i textInfo) ModTime() time.Time { return time.Time{} }
func (i textInfo) IsDir() bool        { return false }
func (i textInfo) Sys() any           { return nil }
