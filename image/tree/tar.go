package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

const xattrPrefix = "SCHILY.xattr."

// AddTar puts everything of an uncompressed tar archive into the tree; contents stay
// in the archive, which must outlive the tree. What is there already may be a
// directory on both sides, and nothing else.
func (t *Tree) AddTar(archive, from string) error {
	return t.addTar(archive, "", from, t.Put)
}

// AddTarBelow is AddTar with dir for the archive's top directory.
func (t *Tree) AddTarBelow(dir, archive, from string) error {
	return t.addTar(archive, dir, from, t.Put)
}

// UnpackTar is AddTar as dpkg --unpack does it: symbolic links to directories are
// followed, and files that are there already are replaced.
func (t *Tree) UnpackTar(archive, from string) error {
	return t.addTar(archive, "", from, func(p string, n *Node) error {
		p = t.resolveLinks(cleanPath(p))
		if old := t.nodes[p]; old != nil && old.Type != Dir {
			if n.Type == Dir {
				return nil
			}
			return t.Swap(p, n)
		}
		return t.Put(p, n)
	})
}

// resolveLinks resolves links to directories among the parents of a path, and the path
// itself when it is a link to a directory.
func (t *Tree) resolveLinks(p string) string {
	for range 40 {
		parts := strings.Split(p, "/")
		changed := false
		for i := range parts {
			prefix := strings.Join(parts[:i+1], "/")
			n := t.nodes[prefix]
			if n == nil || n.Type != Symlink {
				continue
			}

			target := n.Target
			if !path.IsAbs(target) {
				target = path.Join(path.Dir("/"+prefix), target)
			}

			if to := t.nodes[cleanPath(target)]; to == nil || to.Type != Dir {
				continue
			}

			p, changed = cleanPath(path.Join(append([]string{target}, parts[i+1:]...)...)), true
			break
		}

		if !changed {
			break
		}
	}
	return p
}

func (t *Tree) addTar(archive, dir, from string, put func(string, *Node) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("read tar: %w", err)
	}
	defer f.Close()

	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read tar %s: %w", archive, err)
		}

		p := path.Join(cleanPath(dir), cleanPath(h.Name))
		if h.Typeflag == tar.TypeLink {
			target := t.nodes[t.resolveLinks(path.Join(cleanPath(dir), cleanPath(h.Linkname)))]
			if target == nil {
				return fmt.Errorf(
					"read tar %s: /%s is a hard link to /%s, which is not there", archive, p, cleanPath(h.Linkname),
				)
			}
			if err := put(p, target); err != nil {
				return err
			}

			continue
		}

		n, err := nodeOf(h, from)
		if err != nil {
			return fmt.Errorf("read tar %s: %w", archive, err)
		}

		if n.Type == File && h.Size > 0 {
			offset, err := f.Seek(0, io.SeekCurrent) // the reader does not read ahead
			if err != nil {
				return fmt.Errorf("read tar %s: %w", archive, err)
			}
			n.Content = Section{Path: archive, Offset: offset, Length: h.Size}
		}

		if p == "" {
			t.nodes[""] = n
			continue
		}
		if err := put(p, n); err != nil {
			return err
		}
	}
}

func nodeOf(h *tar.Header, from string) (*Node, error) {
	n := &Node{
		Perm:   h.Mode & 0o7777,
		UID:    h.Uid,
		GID:    h.Gid,
		Time:   h.ModTime.Unix(),
		Target: h.Linkname,
		Major:  h.Devmajor,
		Minor:  h.Devminor,
		From:   from,
	}
	for key, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(key, xattrPrefix); ok {
			if n.Xattrs == nil {
				n.Xattrs = map[string]string{}
			}
			n.Xattrs[name] = value
		}
	}

	switch h.Typeflag {
	case tar.TypeReg:
		n.Type = File
	case tar.TypeDir:
		n.Type = Dir
	case tar.TypeSymlink:
		n.Type = Symlink
	case tar.TypeChar:
		n.Type = Char
	case tar.TypeBlock:
		n.Type = Block
	case tar.TypeFifo:
		n.Type = Fifo
	default:
		return nil, fmt.Errorf("/%s has tar type %q, which a tree cannot hold", cleanPath(h.Name), h.Typeflag)
	}

	return n, nil
}

// WriteTar writes the tree as an uncompressed tar archive in the order of paths. The
// first name of a hard-linked file carries its content. Equal trees give equal bytes.
func (t *Tree) WriteTar(w io.Writer) error {
	tw := tar.NewWriter(w)
	first := map[*Node]string{}
	err := t.Walk(func(p string, n *Node) error {
		h, err := headerOf(p, n)
		if err != nil {
			return err
		}

		if n.Type == File {
			if name, linked := first[n]; linked {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, name, 0
				return tw.WriteHeader(h)
			}
			first[n] = h.Name
		}

		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("write /%s: %w", p, err)
		}

		return copyContent(tw, p, n)
	})
	if err != nil {
		return err
	}

	return tw.Close()
}

// WriteContent writes the content of a file to a new file of this machine.
func WriteContent(c Content, file string) error {
	r, err := c.Open()
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer r.Close()

	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}

	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// WriteTarFile writes the tree as a tar archive to a new file.
func (t *Tree) WriteTarFile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write tree: %w", err)
	}
	return errors.Join(t.WriteTar(f), f.Close())
}

func headerOf(p string, n *Node) (*tar.Header, error) {
	h := &tar.Header{
		Name:     "./" + p,
		Mode:     n.Perm,
		Uid:      n.UID,
		Gid:      n.GID,
		ModTime:  unixTime(n.Time),
		Devmajor: n.Major,
		Devminor: n.Minor,
	}
	if len(n.Xattrs) > 0 {
		h.PAXRecords = map[string]string{}
		for name, value := range n.Xattrs {
			h.PAXRecords[xattrPrefix+name] = value
		}
	}

	switch n.Type {
	case File:
		h.Typeflag = tar.TypeReg
		if n.Content != nil {
			h.Size = n.Content.Size()
		}
	case Dir:
		h.Typeflag = tar.TypeDir
		if p != "" {
			h.Name += "/"
		}
	case Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.Target
	case Char:
		h.Typeflag = tar.TypeChar
	case Block:
		h.Typeflag = tar.TypeBlock
	case Fifo:
		h.Typeflag = tar.TypeFifo
	default:
		return nil, fmt.Errorf("write /%s: unknown type %d", p, n.Type)
	}

	return h, nil
}

func copyContent(w io.Writer, p string, n *Node) error {
	if n.Type != File || n.Content == nil {
		return nil
	}

	r, err := n.Content.Open()
	if err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}
	defer r.Close()

	if _, err := io.CopyN(w, r, n.Content.Size()); err != nil {
		return fmt.Errorf("write /%s: %w", p, err)
	}

	return nil
}
