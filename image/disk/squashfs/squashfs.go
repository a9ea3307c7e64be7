// Package squashfs reads the superblock of a squashfs 4.0 (kernel documentation, filesystems/squashfs).
package squashfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// SuperSize is the size of the superblock in bytes; files' blocks follow it.
const SuperSize = 96

// ErrNone says that there is no squashfs superblock.
var ErrNone = errors.New("no squashfs superblock")

// Super is what a superblock says of where things lie, in bytes from its start.
type Super struct {
	Used   int64 // bytes in use
	Tables int64 // where the first table begins, the inodes'; before it lie the blocks of files
}

// Read reads the superblock at the start of r.
func Read(r io.ReaderAt) (Super, error) {
	b := make([]byte, SuperSize)
	if _, err := r.ReadAt(b, 0); err != nil {
		return Super{}, fmt.Errorf("read squashfs superblock: %w", err)
	}

	le := binary.LittleEndian
	if string(b[:4]) != "hsqs" || le.Uint16(b[28:]) != 4 || le.Uint16(b[30:]) != 0 {
		return Super{}, ErrNone
	}

	used := le.Uint64(b[40:])
	if used < SuperSize || used > 1<<50 {
		return Super{}, fmt.Errorf("squashfs superblock: %d bytes in use", used)
	}

	return Super{Used: int64(used), Tables: int64(min(le.Uint64(b[64:]), 1<<62))}, nil
}
