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

func unix(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// FS shows the part of the tree below dir for reading: plain files and directories.
// Symbolic links are not followed.
func (t *Tree) FS(dir string) fs.FS { return view{t, clean(dir)} }

type view struct {
	tree *Tree
	dir  string
}

func (v view) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	p := clean(path.Join(v.dir, name))
	n := v.tree.nodes[p]
	if n == nil {
		return fail(fs.ErrNotExist)
	}
	i := info{path.Base(name), n}
	switch {
	case n.Type == Dir:
		return &opened{info: i, entries: v.tree.entries(p)}, nil
	case n.Type != File:
		return fail(fmt.Errorf("not a file or directory"))
	case n.Content == nil:
		return &opened{info: i, r: io.NopCloser(strings.NewReader(""))}, nil
	}
	r, err := n.Content.Open()
	if err != nil {
		return fail(err)
	}
	return &opened{info: i, r: r}, nil
}

func (t *Tree) entries(dir string) []fs.DirEntry {
	var found []fs.DirEntry
	for p, n := range t.nodes {
		if p != "" && strings.TrimSuffix(path.Dir(p), ".") == dir {
			found = append(found, fs.FileInfoToDirEntry(info{path.Base(p), n}))
		}
	}
	slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return found
}

type info struct {
	name string
	node *Node
}

func (i info) Name() string       { return i.name }
func (i info) ModTime() time.Time { return unix(i.node.Time) }
func (i info) IsDir() bool        { return i.node.Type == Dir }
func (i info) Sys() any           { return i.node }

func (i info) Size() int64 {
	if i.node.Content == nil {
		return 0
	}
	return i.node.Content.Size()
}

func (i info) Mode() fs.FileMode {
	kind := map[Type]fs.FileMode{Dir: fs.ModeDir, Symlink: fs.ModeSymlink, Char: fs.ModeDevice | fs.ModeCharDevice, Block: fs.ModeDevice, Fifo: fs.ModeNamedPipe}
	return kind[i.node.Type] | fs.FileMode(i.node.Perm&0o777)
}

type opened struct {
	info
	r       io.ReadCloser
	entries []fs.DirEntry
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.info, nil }

func (o *opened) Read(b []byte) (int, error) {
	if o.r == nil {
		return 0, &fs.PathError{Op: "read", Path: o.name, Err: fs.ErrInvalid}
	}
	return o.r.Read(b)
}

func (o *opened) Close() error {
	if o.r == nil {
		return nil
	}
	return o.r.Close()
}

func (o *opened) ReadDir(n int) ([]fs.DirEntry, error) {
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
