package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/verity"
	"firstlight.dev/firstlight/image/disk/squashfs"
)

// ReusedPart is what ReuseImage found in its place.
type ReusedPart struct {
	From, To int64 // the stretch of the image that was not written, in bytes
	Hashes   verity.Known
}

// takeLease takes a write lease, which is given only to who alone has a file open, fcntl(2). A file
// with a second name is somebody else's as well, open or not: a rack that is down keeps its stick so.
func takeLease(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil && oneName(f)
}

func oneName(f *os.File) bool {
	var s unix.Stat_t
	return unix.Fstat(int(f.Fd()), &s) == nil && s.Nlink == 1
}

// IsUnused tells whether the file at path is nobody else's: no machine in QEMU and no mount has it
// open, and no rack keeps it under a name of its own.
func IsUnused(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()

	return takeLease(f)
}

// ReuseImage makes Part(path) of the image at path, as if the file base had been copied into an
// empty file from byte at on: the image must have been made from the same base, at the same
// place, by Append, Seal and Finish. Nothing of base is copied but its tables, and from the
// earlier image's hash tree comes what Seal need not calculate. There is then no image at path.
//
// An error says that the image cannot be used for that, for instance because somebody else has it open
// or under another name: then it is untouched, or it has no name any more and Part(path) is to be made from the beginning.
func ReuseImage(path, base string, at int64) (ReusedPart, error) {
	k, err := reuseImage(path, base, at)
	if err != nil {
		return ReusedPart{}, fmt.Errorf("take image %s back: %w", path, err)
	}
	return k, nil
}

func reuseImage(path, base string, at int64) (k ReusedPart, err error) {
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return k, err
	}
	defer image.Close()

	if !takeLease(image) {
		return k, errors.New("somebody has it open or keeps it under another name, or the file system cannot tell")
	}

	from, err := os.Open(base)
	if err != nil {
		return k, err
	}
	defer from.Close()

	super, err := squashfs.Read(from)
	if err != nil {
		return k, fmt.Errorf("%s: %w", base, err)
	}

	info, err := from.Stat()
	if err != nil {
		return k, err
	}

	tables := super.Tables
	if tables < squashfs.SuperSize || tables > info.Size() {
		return k, fmt.Errorf("%s: its tables begin at %d of %d bytes", base, tables, info.Size())
	}

	part := io.NewOffsetWriter(image, at)
	content := io.NewSectionReader(image, at, 1<<62-at)
	now, err := squashfs.Read(content)
	if err != nil {
		return k, err
	}
	if k.Hashes, err = verity.Read(content, roundUp(now.Used, verity.BlockSize)); err != nil {
		return k, err
	}

	k.From, k.To = at+squashfs.SuperSize, at+tables
	k.Hashes.First, k.Hashes.End = 1, uint64(tables/verity.BlockSize) // the blocks that stay as a whole
	if err := os.Rename(path, PartPath(path)); err != nil {
		return k, err
	}
	if !oneName(image) { // it was given another one meanwhile; from now on nobody finds it for that
		return k, errors.Join(errors.New("somebody keeps it under another name"), os.Rename(PartPath(path), path))
	}

	// From here on the image has no name: what is cut off here is not taken for one.
	err = unix.Fallocate(int(image.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, at)
	if err != nil {
		return k, fmt.Errorf("empty its beginning: %w", err)
	}

	for _, piece := range []struct{ at, size int64 }{{0, squashfs.SuperSize}, {tables, info.Size() - tables}} {
		if _, err := io.Copy(
			io.NewOffsetWriter(part, piece.at), io.NewSectionReader(from, piece.at, piece.size),
		); err != nil {
			return k, err
		}
	}

	if err := image.Truncate(at + info.Size()); err != nil {
		return k, err
	}

	return k, image.Close()
}
