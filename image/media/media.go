// Package media makes what is handed out beside the raw image: the compressed image, the
// block map that says which blocks matter, and the digests of it all; and it opens an
// image again, compressed or not. Same image, same bytes, on any number of processors.
package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"firstlight.dev/firstlight/image/disk"
)

// Suffixes of the files beside the raw image.
const (
	SuffixZstd = ".zst"
	SuffixBmap = ".bmap"
	SumsName   = "SHA256SUMS"
)

// replace writes a file beside path and renames it when write has succeeded. An old file goes
// before that: where a rename replaces a file, ext4 has all of the new one written to the disk first
// (auto_da_alloc, ext4(5)), which takes seconds for an image.
func replace(path string, perm os.FileMode, write func(io.Writer) error) error {
	// What a killed build left there has the permissions of that build.
	if err := os.Remove(path + ".part"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())

	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return os.Rename(f.Name(), path)
}

// Image is a disk image that can be read anywhere in it.
type Image struct {
	*os.File
	Path string // as given to Open
	Size int64  // bytes, uncompressed
}

// Open opens an image. One whose name ends in .zst is decompressed into a sparse file
// without a name in the temporary directory, which is gone when the Image is closed.
func Open(ctx context.Context, path string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}

	if strings.HasSuffix(path, SuffixZstd) {
		defer f.Close()
		if f, err = decompress(ctx, f); err != nil {
			return nil, fmt.Errorf("decompress image %s: %w", path, err)
		}
	}

	return newImage(f, path)
}

func newImage(f *os.File, path string) (*Image, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open image: %w", err)
	}

	return &Image{f, path, size}, nil
}

// OpenChecked opens an image that check accepts, which gets its file as it is at path. It is copied first, into a file
// without a name in the temporary directory: what was checked is what is read afterwards, whatever becomes of path
// meanwhile. The error of check is returned as it is.
func OpenChecked(ctx context.Context, path string, check func(io.Reader) error) (*Image, error) {
	original, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer original.Close()

	f, err := copyToTemp(ctx, original)
	if err != nil {
		return nil, fmt.Errorf("copy image %s: %w", path, err)
	}
	if err := check(f); err != nil {
		f.Close()
		return nil, err
	}
	if !strings.HasSuffix(path, SuffixZstd) {
		return newImage(f, path)
	}

	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("decompress image %s: %w", path, err)
	}
	raw, err := decompress(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("decompress image %s: %w", path, err)
	}
	return newImage(raw, path)
}

// RawPath is the name the raw image has or would have: without .zst.
func RawPath(path string) string { return strings.TrimSuffix(path, SuffixZstd) }

func decompress(ctx context.Context, r io.Reader) (*os.File, error) {
	decoder, err := zstd.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return copyToTemp(ctx, decoder)
}

// copyToTemp is a sparse copy of r in the temporary directory, without a name, to be read from its beginning.
func copyToTemp(ctx context.Context, r io.Reader) (*os.File, error) {
	f, err := os.CreateTemp("", "firstlight-image-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}

	size, err := disk.CopySparse(ctx, f, r)
	if err == nil {
		err = f.Truncate(size)
	}

	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}
