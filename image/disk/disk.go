// Package disk turns a layout, which is data, into a disk image: a GUID partition table,
// FAT32 file systems, a root and GRUB for BIOS machines. It needs no root, no loop device
// and no mount, and the same inputs give the same bytes. docs/disk.md says what lies where
// and why.
package disk

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Align is what partitions start and end on, in bytes.
const Align = 1 << 20

// Layout is a whole disk: boot code and partitions in their order.
type Layout struct {
	GUID       string // of the disk
	BootCode   []byte // at most 440 bytes, for sector 0; nil for none
	Partitions []Partition
}

// Partition is one entry and what is written into it. Partitions follow each other without
// gaps, from Align on.
type Partition struct {
	Number     int // in the table, from 1; 0 is the partition's place in the list
	Name       string
	Type       string // one of the gpt.Type constants
	GUID       string
	Attributes uint64
	Size       int64 // bytes, a multiple of Align
	Content    Content
}

// Content is what fills a partition: Empty, Bytes, Image or FAT.
type Content interface {
	// minSize is the smallest partition that the content fits into, in bytes.
	minSize() (int64, error)
	// write puts the content into the image file, which reads as zeros there.
	write(ctx context.Context, image *os.File, at, size int64) error
}

// Empty leaves a partition as a hole.
type Empty struct{}

func (Empty) minSize() (int64, error)                             { return 0, nil }
func (Empty) write(context.Context, *os.File, int64, int64) error { return nil }

// Bytes is written at the partition's start.
type Bytes []byte

func (b Bytes) minSize() (int64, error) { return int64(len(b)), nil }

func (b Bytes) write(_ context.Context, image *os.File, at, _ int64) error {
	_, err := image.WriteAt(b, at)
	return err
}

// Image is the path of a file that is copied to the partition's start; blocks of zeros
// stay holes.
type Image string

func (i Image) minSize() (int64, error) {
	info, err := os.Stat(string(i))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (i Image) write(ctx context.Context, image *os.File, at, _ int64) error {
	f, err := os.Open(string(i))
	if err != nil {
		return err
	}
	defer f.Close()

	_, err = CopySparse(ctx, io.NewOffsetWriter(image, at), f)
	return err
}

// InPlace is content of so many bytes that Finish finds in its place already.
type InPlace int64

func (p InPlace) minSize() (int64, error)                           { return int64(p), nil }
func (InPlace) write(context.Context, *os.File, int64, int64) error { return nil }

// File is one file of a FAT file system. Directories come into being with the files in
// them; a Path that ends in a slash is a directory of its own.
type File struct {
	Path string // slash-separated, without a leading slash
	Open func() (io.ReadCloser, error)
}

// HostFile is a file of this machine, to be at path to.
func HostFile(to, file string) File {
	return File{strings.TrimPrefix(to, "/"), func() (io.ReadCloser, error) { return os.Open(file) }}
}

// TextFile is a file with this content, to be at path to.
func TextFile(to string, content []byte) File {
	return File{strings.TrimPrefix(to, "/"), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// DirFiles lists the files below a directory of this machine.
func DirFiles(dir string) ([]File, error) {
	var files []File
	err := fs.WalkDir(os.DirFS(dir), ".", func(rel string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, HostFile(rel, filepath.Join(dir, filepath.FromSlash(rel))))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", dir, err)
	}

	return files, nil
}

// FAT is a FAT32 file system.
type FAT struct {
	Label    string // at most 11 characters, upper case
	VolumeID uint32
	Files    []File // in any order; equal names ignoring case are an error
}

// End is the size of the finished image in bytes: the partitions and one Align each for
// the tables at both ends.
func (l Layout) End() int64 {
	n := int64(2 * Align)
	for _, p := range l.Partitions {
		n += p.Size
	}
	return n
}
