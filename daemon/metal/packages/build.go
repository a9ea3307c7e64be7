package packages

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/extent"
)

// Build is a package that is made here. Equal ones give equal bytes: everything in it is root's, in order of its
// path, and of one time. It is not compressed, so that what it holds of another file lies in it as it is.
type Build struct {
	Control   string            // control file (deb-control(5)); ends with a newline
	Scripts   map[string]string // maintainer scripts by name, such as postinst
	Conffiles []string          // paths of those files that a person may edit
	Files     []File            // in any order; their directories come along
	Time      time.Time         // of everything in it
}

// File is a file of a package: one with the content Data, a symbolic link to Link, or one whose content is that of
// the file Source of a root.
type File struct {
	Path   string // absolute
	Mode   fs.FileMode
	Data   []byte
	Link   string
	Source string // path from the top of the root, without a leading slash
}

// Built is a package as it is kept: what other files of the root hold is left out of it (package extent).
type Built struct {
	Name    string // of its file
	Stanza  string // for an index
	Size    int64  // bytes of the whole package
	Extents []extent.Extent
	pieces  []piece
}

// piece is a stretch of a package.
type piece struct {
	at   int64
	data []byte
}

// Own returns what is kept of the package: its bytes with holes for its extents, as write takes them in order.
func (b *Built) Own(write func(data []byte, at int64) error) error {
	for _, p := range b.pieces {
		if err := write(p.data, p.at); err != nil {
			return err
		}
	}
	return nil
}

// Build lays the package out. It reads the sources in root once, for the digest in the stanza.
func (b Build) Build(root fs.FS) (*Built, error) {
	control, err := checkControl(b.Control)
	if err != nil {
		return nil, fmt.Errorf("build package: %w", err)
	}

	name := Field(control, "Package")
	fail := func(err error) (*Built, error) { return nil, fmt.Errorf("build package %s: %w", name, err) }
	controlPart, data := layout{root: root, time: b.Time}, layout{root: root, time: b.Time}
	for _, f := range b.controlFiles(control) {
		if err := controlPart.add(f); err != nil {
			return fail(err)
		}
	}
	for _, f := range withDirs(b.Files) {
		if err := data.add(f); err != nil {
			return fail(err)
		}
	}

	var whole layout
	whole.append([]byte("!<arch>\n"))
	whole.member("debian-binary", b.Time, layoutOf([]byte("2.0\n")))
	whole.member("control.tar", b.Time, controlPart.end())
	whole.member("data.tar", b.Time, data.end())
	built := &Built{
		Name:    fmt.Sprintf("%s_%s_%s.deb", name, Field(control, "Version"), Field(control, "Architecture")),
		Size:    whole.size,
		Extents: whole.extents,
		pieces:  whole.pieces,
	}
	digest, err := whole.digest(root)
	if err != nil {
		return fail(err)
	}

	built.Stanza = fmt.Sprintf("%sFilename: %s\nSize: %d\nSHA256: %x\n", control, built.Name, built.Size, digest)
	return built, nil
}

// controlFiles are the files of control.tar.
func (b Build) controlFiles(control string) []File {
	files := []File{{Path: "/", Mode: fs.ModeDir | 0o755}, {Path: "/control", Mode: 0o644, Data: []byte(control)}}
	if len(b.Conffiles) > 0 {
		text := strings.Join(slices.Sorted(slices.Values(b.Conffiles)), "\n") + "\n"
		files = append(files, File{Path: "/conffiles", Mode: 0o644, Data: []byte(text)})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Scripts)) {
		files = append(files, File{Path: "/" + name, Mode: 0o755, Data: []byte(b.Scripts[name])})
	}
	return files
}

// withDirs are files in order of their paths, each behind the directories that it is in: dpkg makes none by itself.
func withDirs(files []File) []File {
	all := map[string]File{}
	for _, f := range files {
		all[f.Path] = f
		for dir := path.Dir(f.Path); ; dir = path.Dir(dir) {
			if _, there := all[dir]; !there {
				all[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			}
			if dir == "/" {
				break
			}
		}
	}

	var ordered []File
	for _, p := range slices.Sorted(maps.Keys(all)) {
		ordered = append(ordered, all[p])
	}
	return ordered
}

// layout is a file while it is laid out: stretches of its own, and extents between them.
type layout struct {
	root    fs.FS
	time    time.Time
	size    int64
	pieces  []piece
	extents []extent.Extent
}

func layoutOf(data []byte) *layout {
	l := &layout{}
	l.append(data)
	return l
}

func (l *layout) append(data []byte) {
	if len(data) > 0 {
		l.pieces = append(l.pieces, piece{l.size, data})
		l.size += int64(len(data))
	}
}

// member adds a member of an ar archive (deb(5)).
func (l *layout) member(name string, at time.Time, content *layout) {
	l.append(fmt.Appendf(nil, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", name, at.Unix(), 0, 0, "100644", content.size))
	for _, p := range content.pieces {
		l.pieces = append(l.pieces, piece{l.size + p.at, p.data})
	}
	for _, e := range content.extents {
		e.Offset += l.size
		l.extents = append(l.extents, e)
	}

	l.size += content.size
	if l.size%2 == 1 {
		l.append([]byte("\n"))
	}
}

const tarBlock = 512 // bytes

// add adds an entry of a tar archive.
func (l *layout) add(f File) error {
	h := &tar.Header{
		Name:     "." + f.Path,
		Typeflag: tar.TypeReg,
		Mode:     int64(f.Mode.Perm()),
		Size:     int64(len(f.Data)),
		Uname:    "root",
		Gname:    "root",
		ModTime:  l.time,
		Format:   tar.FormatUSTAR,
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Source != "":
		info, err := fs.Stat(l.root, f.Source)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() == 0 {
			return fmt.Errorf("/%s is not a file with content", f.Source)
		}
		h.Size = info.Size()
	}

	var header bytes.Buffer
	if err := tar.NewWriter(&header).WriteHeader(h); err != nil {
		return fmt.Errorf("add %s: %w", f.Path, err)
	}

	l.append(header.Bytes())
	if f.Source != "" {
		l.extents = append(l.extents, extent.Extent{Offset: l.size, Size: h.Size, Source: f.Source})
		l.size += h.Size
	} else {
		l.append(f.Data)
	}

	l.append(make([]byte, (tarBlock-h.Size%tarBlock)%tarBlock))
	return nil
}

// end ends a tar archive.
func (l *layout) end() *layout {
	l.append(make([]byte, 2*tarBlock))
	return l
}

// digest is the SHA-256 of the whole.
func (l *layout) digest(root fs.FS) ([]byte, error) {
	h := sha256.New()
	extents := l.extents
	for at, pieces := int64(0), l.pieces; at < l.size; {
		if len(pieces) > 0 && pieces[0].at == at {
			h.Write(pieces[0].data)
			at += int64(len(pieces[0].data))
			pieces = pieces[1:]
			continue
		}

		e := extents[0]
		if err := copySource(h, root, e); err != nil {
			return nil, err
		}

		at, extents = at+e.Size, extents[1:]
	}

	return h.Sum(nil), nil
}

func copySource(w io.Writer, root fs.FS, e extent.Extent) (err error) {
	f, err := root.Open(e.Source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	if _, err := io.CopyN(w, f, e.Size); err != nil {
		return fmt.Errorf("read /%s: %w", e.Source, err)
	}
	return nil
}
