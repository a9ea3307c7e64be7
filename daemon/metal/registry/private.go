package registry

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/layer"
)

// layerDir is the directory of an unpacked layer. It is what a container runs from, so that its files have the modes
// that they have there, and some are root's alone. Those were opened when the layout was read, and stay open: the
// process that serves them has given up the right to open them by then. So does the directory itself, which lies in
// one of root's.
type layerDir struct {
	fs.FS
	top     *os.File
	private map[string]*os.File
}

// openLayer opens the directory of a layer, and returns the size of its archive.
func openLayer(at string) (layerDir, int64, error) {
	top, err := os.Open(at)
	if err != nil {
		return layerDir{}, 0, fmt.Errorf("open layer: %w", err)
	}

	dir := fmt.Sprintf("/proc/self/fd/%d", top.Fd())
	d := layerDir{FS: os.DirFS(dir), top: top, private: map[string]*os.File{}}
	l, err := layer.Open(d.FS)
	if err != nil {
		return layerDir{}, 0, err
	}

	public := publicDirs{dir: dir, all: map[string]bool{".": true}}
	for _, name := range l.Names() {
		ok, err := public.has(name)
		if err == nil && !ok {
			d.private[name], err = os.Open(path.Join(dir, name))
		}
		if err != nil {
			return layerDir{}, 0, fmt.Errorf("open layer: %w", err)
		}
	}

	return d, l.Size(), nil
}

// Open implements fs.FS.
func (d layerDir) Open(name string) (fs.File, error) {
	f := d.private[name]
	if f == nil {
		return d.FS.Open(name)
	}

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}

	return &privateFile{SectionReader: io.NewSectionReader(f, 0, info.Size()), info: info}, nil
}

// privateFile reads an open file on its own, as others do at the same time.
type privateFile struct {
	*io.SectionReader
	info fs.FileInfo
}

// Stat implements fs.File.
func (f *privateFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close implements fs.File. The file stays open.
func (f *privateFile) Close() error { return nil }

// publicDirs knows which directories below dir everybody may enter.
type publicDirs struct {
	dir string
	all map[string]bool
}

// has tells whether everybody may read a file.
func (p publicDirs) has(name string) (bool, error) {
	enter, err := p.mayEnter(path.Dir(name))
	if err != nil || !enter {
		return false, err
	}

	return p.grants(name, unix.S_IROTH)
}

func (p publicDirs) mayEnter(dir string) (bool, error) {
	if known, ok := p.all[dir]; ok {
		return known, nil
	}

	enter, err := p.mayEnter(path.Dir(dir))
	if err == nil && enter {
		enter, err = p.grants(dir, unix.S_IXOTH)
	}

	p.all[dir] = enter
	return enter, err
}

// grants tells whether the mode of a file or directory has a bit.
func (p publicDirs) grants(name string, bit uint32) (bool, error) {
	var info unix.Stat_t
	if err := unix.Stat(path.Join(p.dir, name), &info); err != nil {
		return false, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return info.Mode&bit != 0, nil
}
