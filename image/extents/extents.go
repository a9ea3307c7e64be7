// Package extents finds what a file has in common with the files of a tree, wherever in it that lies: the
// drivers within a disk image, the programs within an archive. It is rsync's way: the blocks of the tree's
// files are known by a sum that can be rolled over the file byte by byte.
package extents

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/image/tree"
)

// Find lists the extents of file, a path of this machine, that files of the tree below one of dirs hold as
// well; each is of BlockSize bytes at least. Equal trees and files give equal extents.
func Find(t *tree.Tree, dirs []string, file string) ([]extent.Extent, error) {
	data, unmap, err := mapFile(file)
	if err != nil {
		return nil, fmt.Errorf("find shared extents: %w", err)
	}
	defer unmap()

	known, err := indexBlocks(t, dirs)
	if err != nil {
		return nil, fmt.Errorf("find shared extents: %w", err)
	}

	all, err := known.match(data)
	if err != nil {
		return nil, fmt.Errorf("find shared extents of %s: %w", file, err)
	}

	return all, nil
}

// mapFile shows a file's content.
func mapFile(file string) (data []byte, unmap func(), err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, func() {}, err
	}

	data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", file, err)
	}

	return data, func() { _ = unix.Munmap(data) }, nil
}

// source is a file of the tree.
type source struct {
	path    string
	content tree.Content
}

// place is a block of a source.
type place struct{ source, block int }

// index knows blocks by their sums. The first of equal ones stays.
type index struct {
	sources []source
	places  map[uint64]place
	seen    []uint64 // a bit for each high end of a sum: most sums need no look into the map

	read  []byte // the source that was read last
	which int
}

const seenBits = 23

func indexBlocks(t *tree.Tree, dirs []string) (*index, error) {
	k := &index{places: map[uint64]place{}, seen: make([]uint64, 1<<seenBits/64), which: -1}
	had := map[*tree.Node]bool{}
	block := make([]byte, BlockSize)
	err := t.Walk(func(p string, n *tree.Node) error {
		if n.Type != tree.File || n.Content == nil || n.Content.Size() < BlockSize || had[n] || !below(p, dirs) {
			return nil
		}

		had[n] = true
		k.sources = append(k.sources, source{p, n.Content})
		return k.add(len(k.sources)-1, block)
	})
	return k, err
}

func below(p string, dirs []string) bool {
	for _, dir := range dirs {
		if strings.HasPrefix("/"+p, strings.TrimSuffix(dir, "/")+"/") {
			return true
		}
	}
	return false
}

// add adds the whole blocks of a source but those of zeros.
func (k *index) add(nr int, block []byte) error {
	s := k.sources[nr]
	r, err := s.content.Open()
	if err != nil {
		return fmt.Errorf("read /%s: %w", s.path, err)
	}
	defer r.Close()

	for i := range int(s.content.Size() / BlockSize) {
		if _, err := io.ReadFull(r, block); err != nil {
			return fmt.Errorf("read /%s: %w", s.path, err)
		}

		h := sum(block)
		if _, twice := k.places[h]; h == 0 || twice {
			continue
		}

		k.places[h] = place{nr, i}
		k.seen[h>>(64-seenBits)/64] |= 1 << (h >> (64 - seenBits) % 64)
	}

	return nil
}

// find returns the place whose block has a sum.
func (k *index) find(h uint64) (place, bool) {
	if k.seen[h>>(64-seenBits)/64]>>(h>>(64-seenBits)%64)&1 == 0 {
		return place{}, false
	}
	p, ok := k.places[h]
	return p, ok
}

// match goes over data and takes the longest extent from each place that it knows.
func (k *index) match(data []byte) ([]extent.Extent, error) {
	var all []extent.Extent
	for at := 0; at+BlockSize <= len(data); {
		h := sum(data[at : at+BlockSize])
		for {
			if p, ok := k.find(h); ok {
				size, err := k.common(data[at:], p)
				if err != nil {
					return nil, err
				}
				if size >= BlockSize {
					all = append(all, extent.Extent{
						Offset: int64(at),
						Size:   int64(size),
						Source: k.sources[p.source].path,
						At:     int64(p.block) * BlockSize,
					})
					at += size
					break
				}
			}

			if at+BlockSize >= len(data) {
				return all, nil
			}

			h = roll(h, data[at], data[at+BlockSize])
			at++
		}
	}
	return all, nil
}

// common is how many bytes data begins with that are at a place too.
func (k *index) common(data []byte, p place) (int, error) {
	if p.source != k.which {
		s := k.sources[p.source]
		r, err := s.content.Open()
		if err != nil {
			return 0, fmt.Errorf("read /%s: %w", s.path, err)
		}

		k.read, err = io.ReadAll(r)
		r.Close()
		if err != nil {
			return 0, fmt.Errorf("read /%s: %w", s.path, err)
		}

		k.which = p.source
	}

	other := k.read[p.block*BlockSize:]
	n := min(len(data), len(other))
	same := 0
	for step := BlockSize; same < n; {
		step = min(step, n-same)
		if bytes.Equal(data[same:same+step], other[same:same+step]) {
			same += step
			continue
		}

		for data[same] == other[same] {
			same++
		}

		break
	}

	return same, nil
}
