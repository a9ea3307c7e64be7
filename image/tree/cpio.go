package tree

import (
	"fmt"
	"io"
)

// WriteCpio writes the tree as a cpio archive that the kernel takes as initramfs
// (Linux, Documentation/driver-api/early-userspace/buffer-format.rst, "newc"). A
// hard-linked file's content is with its first name. Equal trees give equal bytes.
func (t *Tree) WriteCpio(w io.Writer) error {
	c := &cpioWriter{w: w}
	inodes, links := map[*Node]int{}, map[*Node]int{}
	for _, n := range t.nodes {
		links[n]++
	}

	err := t.Walk(func(p string, n *Node) error {
		name := p
		if p == "" {
			name = "."
		}

		ino, again := inodes[n]
		if !again {
			ino = len(inodes) + 1
			inodes[n] = ino
		}

		size := int64(0)
		switch {
		case n.Type == Symlink:
			size = int64(len(n.Target))
		case n.Type == File && n.Content != nil && !again:
			size = n.Content.Size()
		}

		if size > 1<<32-1 {
			return fmt.Errorf("write /%s: %d bytes are more than cpio can say", p, size)
		}

		c.header(name, n, ino, links[n], size)
		switch {
		case n.Type == Symlink:
			c.write([]byte(n.Target))
		case size > 0:
			if c.err == nil {
				c.err = copyContent(c, p, n)
			}
		}

		c.pad()
		return c.err
	})
	if err != nil {
		return err
	}

	c.header("TRAILER!!!", &Node{}, 0, 1, 0)
	return c.err
}

// cpioWriter counts what it writes, since names and contents are padded to four bytes.
type cpioWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *cpioWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func (c *cpioWriter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.Write(b)
	}
}

func (c *cpioWriter) pad() {
	if over := c.n % 4; over != 0 {
		c.write(make([]byte, 4-over))
	}
}

func (c *cpioWriter) header(name string, n *Node, ino, links int, size int64) {
	kind := map[Type]int64{
		File:    0o100000,
		Dir:     0o040000,
		Symlink: 0o120000,
		Char:    0o020000,
		Block:   0o060000,
		Fifo:    0o010000,
	}[n.Type]
	if ino == 0 {
		kind = 0
	}

	c.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ino, kind|n.Perm, n.UID, n.GID,
		links, n.Time, size, 0, 0, n.Major, n.Minor, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.pad()
}
