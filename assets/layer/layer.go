// Package layer keeps a layer of a container image unpacked: as the files that it unpacks to and, beside them,
// what its tar archive has besides. The archive is put together again whenever it is read, byte for byte,
// so that whoever runs the image and whoever is served it share what is stored once.
//
// A layer is a directory:
//
//	fs/         what the archive unpacks to
//	headers     the archive without the contents of its files
//	contents    where those contents belong: a line for each file, its offset in the archive, its size, its name
package layer

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"
)

// Names in a layer's directory.
const (
	Files    = "fs"
	Headers  = "headers"
	Contents = "contents"
)

// Dir is the directory of the layers below that of an OCI layout. Each has the digits of the sha256 of its
// archive for a name.
const Dir = "layers"

// content is a file's in an archive.
type content struct {
	offset, size int64
	name         string // relative, below Files
}

// Split reads an uncompressed archive from its start and returns what is kept besides the files: the
// archive without their contents, and where those belong.
func Split(archive io.ReadSeeker) (headers, contents []byte, err error) {
	var lines strings.Builder
	var all []content
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("split layer: %w", err)
		}
		if h.Typeflag != tar.TypeReg || h.Size == 0 {
			continue
		}

		at, err := archive.Seek(0, io.SeekCurrent) // the reader does not read ahead
		if err != nil {
			return nil, nil, fmt.Errorf("split layer: %w", err)
		}

		c := content{at, h.Size, strings.TrimPrefix(path.Clean("/"+h.Name), "/")}
		all = append(all, c)
		fmt.Fprintf(&lines, "%d %d %s\n", c.offset, c.size, strconv.Quote(c.name))
	}

	var from int64
	for _, c := range append(all, content{offset: -1}) {
		if _, err := archive.Seek(from, io.SeekStart); err != nil {
			return nil, nil, fmt.Errorf("split layer: %w", err)
		}

		part := io.Reader(archive)
		if c.offset >= 0 {
			part = io.LimitReader(archive, c.offset-from)
		}

		text, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, fmt.Errorf("split layer: %w", err)
		}

		headers, from = append(headers, text...), c.offset+c.size
	}

	return headers, []byte(lines.String()), nil
}

// piece is a stretch of the archive that lies in one file.
type piece struct {
	at, size int64
	file     string
	from     int64 // where it begins in the file
}

// Layer is a layer that can be read as its archive.
type Layer struct {
	dir    fs.FS
	pieces []piece // in the order of the archive, without gaps
	size   int64
}

// Open reads where the contents of a layer belong; dir is its directory.
func Open(dir fs.FS) (*Layer, error) {
	info, err := fs.Stat(dir, Headers)
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}

	f, err := dir.Open(Contents)
	if err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	defer f.Close()

	l := &Layer{dir: dir}
	var taken int64 // of the headers
	add := func(p piece) {
		if p.size > 0 {
			l.pieces = append(l.pieces, p)
		}
		l.size = p.at + p.size
	}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		c, err := parse(lines.Text())
		if err == nil && c.offset-l.size > info.Size()-taken {
			err = errors.New("there are not that many headers")
		}

		if err != nil || c.offset < l.size {
			return nil, fmt.Errorf("open layer: %s:%d: %w", Contents, n, errors.Join(err, inOrder(c.offset >= l.size)))
		}

		between := c.offset - l.size
		add(piece{l.size, between, Headers, taken})
		add(piece{c.offset, c.size, path.Join(Files, c.name), 0})
		taken += between
	}

	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("open layer: %w", err)
	}

	add(piece{l.size, info.Size() - taken, Headers, taken})
	return l, nil
}

func parse(line string) (c content, err error) {
	fields := strings.SplitN(line, " ", 3)
	if len(fields) != 3 {
		return c, errors.New("not an offset, a size and a name")
	}
	if c.offset, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return c, err
	}
	if c.size, err = strconv.ParseInt(fields[1], 10, 64); err != nil {
		return c, err
	}
	if c.name, err = strconv.Unquote(fields[2]); err != nil {
		return c, err
	}
	if c.size < 0 || !fs.ValidPath(c.name) {
		return c, errors.New("not a file below " + Files)
	}

	return c, nil
}

func inOrder(yes bool) error {
	if yes {
		return nil
	}
	return errors.New("contents overlap")
}

// Size is how many bytes the archive has.
func (l *Layer) Size() int64 { return l.size }

// Names are the files below the layer's directory whose contents the archive has.
func (l *Layer) Names() []string {
	var names []string
	for _, p := range l.pieces {
		if p.file != Headers {
			names = append(names, p.file)
		}
	}
	return names
}

// Reader reads the archive from an offset on.
func (l *Layer) Reader(offset int64) io.ReadCloser {
	next := sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].at+l.pieces[i].size > offset })
	return &reader{layer: l, next: next, at: offset}
}

// reader reads one piece after the other. It has one file open at a time.
type reader struct {
	layer     *Layer
	next      int   // the piece to open when left is 0
	at        int64 // in the archive
	remaining int64 // of the open piece
	file      fs.File
}

func (r *reader) Read(b []byte) (int, error) {
	for r.remaining == 0 {
		if err := r.Close(); err != nil {
			return 0, err
		}
		if r.next == len(r.layer.pieces) {
			return 0, io.EOF
		}
		if err := r.open(r.layer.pieces[r.next]); err != nil {
			return 0, fmt.Errorf("read layer: %w", err)
		}

		r.next++
	}

	n, err := r.file.Read(b[:min(int64(len(b)), r.remaining)])
	r.remaining -= int64(n)
	r.at += int64(n)
	if err == io.EOF {
		err = nil
		if r.remaining > 0 {
			err = fmt.Errorf(
				"read layer: %s is %d bytes short: %w", r.layer.pieces[r.next-1].file, r.remaining,
				io.ErrUnexpectedEOF,
			)
		}
	}

	return n, err
}

// open opens the file of a piece at the place that the reader has come to.
func (r *reader) open(p piece) error {
	f, err := r.layer.dir.Open(p.file)
	if err != nil {
		return err
	}

	within := r.at - p.at
	r.file, r.remaining = f, p.size-within
	skip := p.from + within
	if skip == 0 {
		return nil
	}

	if s, ok := f.(io.Seeker); ok {
		_, err = s.Seek(skip, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, f, skip)
	}

	return err
}

// Close closes the file that is open.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}

	f := r.file
	r.file, r.remaining = nil, 0
	return f.Close()
}
