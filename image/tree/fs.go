package tree

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// FS shows the part of the tree below dir for reading: plain files and directories.
// Symbolic links are not followed.
func (t *Tree) FS(dir string) fs.FS { return fsView{t, cleanPath(dir)} }

type fsView struct {
	tree *Tree
	dir  string
}

func (v fsView) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}

	p := cleanPath(path.Join(v.dir, name))
	n := v.tree.nodes[p]
	if n == nil {
		return fail(fs.ErrNotExist)
	}

	i := fileInfo{path.Base(name), n}
	switch {
	case n.Type == Dir:
		return &openedFile{fileInfo: i, entries: v.tree.entries(p)}, nil
	case n.Type != File:
		return fail(fmt.Errorf("not a file or directory"))
	case n.Content == nil:
		return &openedFile{fileInfo: i, r: io.NopCloser(strings.NewReader(""))}, nil
	}

	r, err := n.Content.Open()
	if err != nil {
		return fail(err)
	}

	return &openedFile{fileInfo: i, r: r}, nil
}

func (t *Tree) entries(dir string) []fs.DirEntry {
	var found []fs.DirEntry
	for p, n := range t.nodes {
		if p != "" && strings.TrimSuffix(path.Dir(p), ".") == dir {
			found = append(found, fs.FileInfoToDirEntry(fileInfo{path.Base(p), n}))
		}
	}

	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return found
}

type fileInfo struct {
	name string
	node *Node
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) ModTime() time.Time { return unixTime(i.node.Time) }
func (i fileInfo) IsDir() bool        { return i.node.Type == Dir }
func (i fileInfo) Sys() any           { return i.node }

func (i fileInfo) Size() int64 {
	if i.node.Content == nil {
		return 0
	}
	return i.node.Content.Size()
}

func (i fileInfo) Mode() fs.FileMode {
	kind := map[Type]fs.FileMode{
		Dir:     fs.ModeDir,
		Symlink: fs.ModeSymlink,
		Char:    fs.ModeDevice | fs.ModeCharDevice,
		Block:   fs.ModeDevice,
		Fifo:    fs.ModeNamedPipe,
	}
	return kind[i.node.Type] | fs.FileMode(i.node.Perm&0o777)
}

type openedFile struct {
	fileInfo
	r       io.ReadCloser
	entries []fs.DirEntry
}

func (o *openedFile) Stat() (fs.FileInfo, error) { return o.fileInfo, nil }

func (o *openedFile) Read(b []byte) (int, error) {
	if o.r == nil {
		return 0, &fs.PathError{Op: "read", Path: o.name, Err: fs.ErrInvalid}
	}
	return o.r.Read(b)
}

func (o *openedFile) Close() error {
	if o.r == nil {
		return nil
	}
	return o.r.Close()
}

func (o *openedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(o.entries) {
		if n > 0 && len(o.entries) == 0 {
			return nil, io.EOF
		}
		n = len(o.entries)
	}

	out := o.entries[:n]
	o.entries = o.entries[n:]
	return out, nil
}
