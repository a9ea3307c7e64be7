package media

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk/squashfs"
)

// Extent is a stretch of bytes of an image.
type Extent struct{ Start, End int64 }

// UsedExtents lists the stretches of a disk image that must be on the medium, in order: the
// tables at both ends and, of each partition, as much as its file system has in use. A
// hole of the file says nothing about that: zeros inside a file system are content. A
// partition that is all zeros is an empty slot.
func UsedExtents(f *os.File, size int64) ([]Extent, error) {
	table, err := gpt.ReadPrimary(f)
	if err != nil {
		return nil, fmt.Errorf("list what is in use: %w", err)
	}

	out := []Extent{{0, gpt.PrimarySectors * gpt.SectorSize}}
	for _, p := range table.Partitions {
		end, err := usedPart(f, p)
		if err != nil {
			return nil, fmt.Errorf("list what partition %s has in use: %w", p.Name, err)
		}
		if end > 0 {
			out = append(out, Extent{p.Offset(), p.Offset() + min(end, p.Size())})
		}
	}

	// The numbers of partitions are not in the order of the disk.
	slices.SortFunc(out, func(a, b Extent) int { return cmp.Compare(a.Start, b.Start) })
	return append(out, Extent{size - gpt.BackupSectors*gpt.SectorSize, size}), nil
}

// usedPart is how many bytes from a partition's start on matter.
func usedPart(f *os.File, p gpt.Partition) (int64, error) {
	part := io.NewSectionReader(f, p.Offset(), p.Size())
	if volume, err := fat.Open(part); err == nil {
		return volume.End(), nil
	}
	if n, err := SquashfsSize(part); err == nil {
		block := make([]byte, verity.BlockSize)
		if _, err := part.ReadAt(block, n); err != nil {
			return n, nil // no room for a tree
		}

		s, err := verity.ParseSuper(block)
		if err != nil {
			return n, nil
		}

		return n + s.TreeSize(), nil
	}

	empty, err := allZeros(f, p)
	if err != nil || empty {
		return 0, err
	}

	return p.Size(), nil
}

// SquashfsSize reads the superblock at the start of r and returns the bytes the file
// system has in use, rounded up to verity.BlockSize.
func SquashfsSize(r io.ReaderAt) (int64, error) {
	s, err := squashfs.Read(r)
	return (s.Used + verity.BlockSize - 1) / verity.BlockSize * verity.BlockSize, err
}

// allZeros skips the holes of the file.
func allZeros(f *os.File, p gpt.Partition) (bool, error) {
	end := p.Offset() + p.Size()
	buf, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := p.Offset(); at < end; {
		data, err := f.Seek(at, 3) // SEEK_DATA
		switch {
		case errors.Is(err, syscall.ENXIO):
			return true, nil
		case err == nil && data >= end:
			return true, nil
		case err == nil:
			at = data
		}

		n := min(int64(len(buf)), end-at)
		if _, err := f.ReadAt(buf[:n], at); err != nil {
			return false, err
		}
		if !bytes.Equal(buf[:n], zero[:n]) {
			return false, nil
		}

		at += n
	}

	return true, nil
}
