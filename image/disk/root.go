package disk

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"firstlight.dev/firstlight/assets/verity"
)

// Seal takes what file holds from byte at on for a file system, rounds it up to
// verity.BlockSize and appends its dm-verity superblock and hash tree, with fixed salt and
// UUID. It returns the root hash in hexadecimal digits, which belongs on the kernel command
// line, and the size of it all in bytes. What is known of its blocks is not calculated.
func Seal(ctx context.Context, file string, at int64, known verity.Known) (rootHash string, size int64, err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return "", 0, fmt.Errorf("seal root: %w", err)
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("seal root: %w", err)
	}

	size = roundUp(info.Size()-at, verity.BlockSize)
	if err := f.Truncate(at + size); err != nil {
		return "", 0, fmt.Errorf("seal root: %w", err)
	}

	region := struct {
		io.ReaderAt
		io.WriterAt
	}{io.NewSectionReader(f, at, math.MaxInt64-at), io.NewOffsetWriter(f, at)}
	if rootHash, err = verity.Append(ctx, region, size, rootSalt, rootUUID, known); err != nil {
		return "", 0, fmt.Errorf("seal root %s: %w", file, err)
	}
	if info, err = f.Stat(); err != nil {
		return "", 0, fmt.Errorf("seal root: %w", err)
	}

	return rootHash, info.Size() - at, f.Close()
}

// The salt keeps precomputed collisions for unsalted blocks useless; it is no secret.
const (
	rootSalt = "4b1d8c2a96f3470eb5d1a87c03e2f96451c07d3be89a4f6220d7b15e8c3f9a46"
	rootUUID = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c1fe"
)
