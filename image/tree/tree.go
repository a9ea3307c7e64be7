// Package tree is a file system in memory: names, owners and modes are held here,
// contents stay where they are. Packages, overlays and built programs are merged
// into one tree, two of them at one path are an error that names both, and one
// writer turns the tree into a tar archive, from which every image is made.
package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// Type says what a node is.
type Type byte

// Types of nodes.
const (
	File Type = iota
	Dir
	Symlink
	Char
	Block
	Fifo
)

// Node is one inode. Two names with one Node are hard links.
type Node struct {
	Type         Type
	Perm         int64 // permission, set-id and sticky bits as chmod takes them
	UID, GID     int
	Time         int64             // seconds since 1970
	Target       string            // of a symbolic link
	Major, Minor int64             // of a device
	Xattrs       map[string]string // name to raw value
	Content      Content           // of a file; nil is empty
	From         string            // who put it here, for errors
}

// Content is what a file holds.
type Content interface {
	Size() int64
	Open() (io.ReadCloser, error)
}

// Bytes is content held in memory.
type Bytes []byte

// Size is the number of bytes.
func (b Bytes) Size() int64 { return int64(len(b)) }

// Open reads the bytes.
func (b Bytes) Open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }

// Section is content that lies in a file, Length bytes from Offset.
type Section struct {
	Path           string
	Offset, Length int64
}

// Size is the section's length.
func (s Section) Size() int64 { return s.Length }

// Open reads the section.
func (s Section) Open() (io.ReadCloser, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, s.Offset, s.Length), f}, nil
}

// Tree is a set of nodes by path: no leading slash, "" is the root directory.
type Tree struct {
	nodes map[string]*Node
	epoch int64
}

// New makes a tree of one directory. Nodes without a time of their own get epoch.
func New(epoch int64) *Tree {
	return &Tree{epoch: epoch, nodes: map[string]*Node{"": {Type: Dir, Perm: 0o755, Time: epoch, From: "the root"}}}
}

// CollisionError says that two sources want one path.
type CollisionError struct {
	Path          string
	First, Second string
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf(
		"/%s: %s collides with %s; remove one, or list the path under replaces of the overlay that shall win", e.Path,
		e.Second, e.First,
	)
}

func cleanPath(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

// Put adds a node at a path; missing parents are made 0755 root:root. A directory
// over a directory changes nothing; anything else over something is a CollisionError.
func (t *Tree) Put(p string, n *Node) error {
	p = cleanPath(p)
	if old, there := t.nodes[p]; there {
		if old.Type == Dir && n.Type == Dir {
			return nil
		}
		return &CollisionError{Path: p, First: t.owner(p, old), Second: n.From}
	}
	if err := t.parents(p, n.From); err != nil {
		return err
	}

	t.nodes[p] = n
	return nil
}

// Swap puts a node where another is already, of any type but a directory.
func (t *Tree) Swap(p string, n *Node) error {
	p = cleanPath(p)
	old, there := t.nodes[p]
	if !there {
		return fmt.Errorf("replace /%s by %s: nothing is there to replace", p, n.From)
	}
	if old.Type == Dir {
		return fmt.Errorf("replace /%s by %s: %s has a directory there", p, n.From, old.From)
	}

	t.nodes[p] = n
	return nil
}

func (t *Tree) parents(p, from string) error {
	for dir := path.Dir(p); dir != "." && dir != "/"; dir = path.Dir(dir) {
		old, there := t.nodes[dir]
		switch {
		case !there:
			t.nodes[dir] = &Node{Type: Dir, Perm: 0o755, Time: t.epoch, From: from}
		case old.Type == Symlink:
			return fmt.Errorf(
				"put /%s from %s: /%s is a symbolic link to %s; write below that", p, from, dir, old.Target,
			)
		case old.Type != Dir:
			return &CollisionError{Path: dir, First: t.owner(dir, old), Second: from}
		}
	}
	return nil
}

// owner says who put a node there; for a Debian tree it looks up the package.
func (t *Tree) owner(p string, n *Node) string {
	for _, name := range t.Paths("var/lib/dpkg/info/*.list") {
		list, err := t.ReadFile(name)
		if err == nil && bytes.Contains(list, []byte("\n/"+p+"\n")) {
			return "Debian package " + strings.TrimSuffix(path.Base(name), ".list")
		}
	}
	return n.From
}

// Get returns the node at a path, without following links; nil when there is none.
func (t *Tree) Get(p string) *Node { return t.nodes[cleanPath(p)] }

// Len is the number of nodes, the root directory included.
func (t *Tree) Len() int { return len(t.nodes) }

// Walk calls f for every node in the order of paths.
func (t *Tree) Walk(f func(p string, n *Node) error) error {
	for _, p := range slices.Sorted(maps.Keys(t.nodes)) {
		if err := f(p, t.nodes[p]); err != nil {
			return err
		}
	}
	return nil
}

// Mkdir adds an empty directory.
func (t *Tree) Mkdir(p, from string) error {
	return t.Put(p, &Node{Type: Dir, Perm: 0o755, Time: t.epoch, From: from})
}

// Link adds a symbolic link.
func (t *Tree) Link(p, target, from string) error {
	return t.Put(p, &Node{
		Type:   Symlink,
		Perm:   0o777,
		Time:   t.epoch,
		Target: target,
		From:   from,
	})
}

// File adds a file owned by root.
func (t *Tree) File(p string, perm int64, content Content, from string) error {
	return t.Put(p, &Node{
		Type:    File,
		Perm:    perm,
		Time:    t.epoch,
		Content: content,
		From:    from,
	})
}

// HostFile adds a file of this machine, owned by root.
func (t *Tree) HostFile(p string, perm int64, host, from string) error {
	info, err := os.Stat(host)
	if err != nil {
		return fmt.Errorf("put /%s: %w", cleanPath(p), err)
	}
	return t.File(p, perm, Section{Path: host, Length: info.Size()}, from)
}

// Overlay copies a directory of this machine to the path at. Git keeps of a mode
// only whether a file is executable, and so does this: 0755 or 0644, root:root.
// The paths in replaces (absolute, in the tree) may and must replace something.
func (t *Tree) Overlay(dir, at string, replaces []string) error {
	pending := map[string]bool{}
	for _, p := range replaces {
		pending[cleanPath(p)] = true
	}

	err := filepathWalk(dir, func(rel string, info fs.FileInfo) error {
		p, host := cleanPath(path.Join(at, rel)), path.Join(dir, rel)
		n := &Node{Time: t.epoch, Perm: 0o644, From: "overlay " + dir}
		switch mode := info.Mode(); {
		case mode.IsDir():
			n.Type, n.Perm = Dir, 0o755
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(host)
			if err != nil {
				return err
			}
			n.Type, n.Perm, n.Target = Symlink, 0o777, target
		case mode.IsRegular():
			n.Content = Section{Path: host, Length: info.Size()}
			if mode&0o100 != 0 {
				n.Perm = 0o755
			}
		default:
			return fmt.Errorf("overlay %s: only files, directories and symbolic links can be copied", host)
		}

		if pending[p] {
			delete(pending, p)
			return t.Swap(p, n)
		}

		return t.Put(p, n)
	})
	if err != nil {
		return err
	}

	for _, p := range slices.Sorted(maps.Keys(pending)) {
		return fmt.Errorf("overlay %s: replaces /%s but has no such file", dir, p)
	}

	return nil
}

// filepathWalk visits everything below dir, sorted by path, with slashed relative paths.
func filepathWalk(dir string, f func(rel string, info fs.FileInfo) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read overlay %s: %w", dir, err)
		}
		if rel == "." {
			return nil
		}

		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("read overlay %s: %w", dir, err)
		}

		return f(rel, info)
	})
}

// ReadFile returns a file's content, without following links.
func (t *Tree) ReadFile(p string) ([]byte, error) {
	n := t.Get(p)
	if n == nil {
		return nil, fmt.Errorf("read /%s: %w", cleanPath(p), fs.ErrNotExist)
	}
	if n.Type != File {
		return nil, fmt.Errorf("read /%s: not a file", cleanPath(p))
	}
	if n.Content == nil {
		return nil, nil
	}

	r, err := n.Content.Open()
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", cleanPath(p), err)
	}
	defer r.Close()

	return io.ReadAll(r)
}

// ReplaceText replaces text in a file: find must be there exactly once, or with already.
func (t *Tree) ReplaceText(p, find, with string) error {
	text, err := t.ReadFile(p)
	if err != nil {
		return fmt.Errorf("edit /%s: %w", cleanPath(p), errors.Unwrap(err))
	}
	switch n := bytes.Count(text, []byte(find)); {
	case n == 1:
		edited := *t.Get(p)
		edited.Content = Bytes(bytes.Replace(text, []byte(find), []byte(with), 1))
		edited.Time = t.epoch
		t.nodes[cleanPath(p)] = &edited
		return nil
	case n == 0 && with != "" && bytes.Contains(text, []byte(with)):
		return nil
	default:
		return fmt.Errorf(
			"edit /%s: the text to replace is there %d times and not once; read what the package changed: %q",
			cleanPath(p), n, find,
		)
	}
}

// Remove takes out what matches a glob, directories with all below, and returns how
// many nodes went. In a glob * stays within a directory, ** crosses directories.
func (t *Tree) Remove(glob string) int {
	before := len(t.nodes)
	gone := map[string]bool{}
	for _, p := range t.Paths(glob) {
		gone[p] = true
	}

	if len(gone) == 0 {
		return 0
	}

	for p := range t.nodes {
		for at := p; at != "." && at != ""; at = path.Dir(at) {
			if gone[at] {
				delete(t.nodes, p)
				break
			}
		}
	}

	return before - len(t.nodes)
}

// Divide returns two trees that share nodes with this one: the files that are chosen by their paths, with the
// directories above them, and all the rest.
func (t *Tree) Divide(chosen func(p string) bool) (some, rest *Tree) {
	some, rest = New(t.epoch), New(t.epoch)
	some.nodes[""] = t.nodes[""]
	for p, n := range t.nodes {
		if n.Type != File || !chosen(p) {
			rest.nodes[p] = n
			continue
		}
		some.nodes[p] = n
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			some.nodes[dir] = t.nodes[dir]
		}
	}

	return some, rest
}

// Filter takes out the files that keep refuses; directories stay.
func (t *Tree) Filter(keep func(p string) bool) {
	for p, n := range t.nodes {
		if n.Type != Dir && !keep(p) {
			delete(t.nodes, p)
		}
	}
}
