// Package media makes what is handed out beside the raw image: the compressed image, the
// block map that says which blocks matter, and the digests of it all; and it opens an
// image again, compressed or not. Same image, same bytes, on any number of processors.
package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// chunkSize is what one zstd frame holds, in bytes. Frames do not depend on each other, so
// that processors share the work and the bytes do not tell how many there were.
const chunkSize = 8 << 20

// Suffixes of the files beside the raw image.
const (
	SuffixZstd = ".zst"
	SuffixBmap = ".bmap"
	SumsName   = "SHA256SUMS"
)

// Compress writes image as zstd to out. A file that is there already is replaced only
// when the new one is complete.
func Compress(ctx context.Context, image, out string) error {
	in, err := os.Open(image)
	if err != nil {
		return fmt.Errorf("compress image: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("compress image: %w", err)
	}
	err = replace(out, func(w io.Writer) error { return compress(ctx, in, info.Size(), w) })
	if err != nil {
		return fmt.Errorf("compress image %s: %w", image, err)
	}
	return nil
}

func compress(ctx context.Context, in io.ReaderAt, size int64, w io.Writer) error {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	defer encoder.Close()
	zeros := make([]byte, chunkSize)
	zeroFrame := encoder.EncodeAll(zeros, nil)

	type slot chan []byte
	queue := make(chan slot, 2*runtime.GOMAXPROCS(0)) // bounds how many chunks are in memory
	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(queue)
		workers, working := errgroup.WithContext(running)
		workers.SetLimit(runtime.GOMAXPROCS(0))
		for at := int64(0); at < size; at += chunkSize {
			done := make(slot, 1)
			select {
			case queue <- done:
			case <-working.Done():
				return workers.Wait()
			}
			workers.Go(func() error {
				defer close(done)
				b := make([]byte, min(chunkSize, size-at))
				if _, err := in.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				if len(b) == chunkSize && bytes.Equal(b, zeros) {
					done <- zeroFrame
				} else {
					done <- encoder.EncodeAll(b, nil)
				}
				return nil
			})
		}
		return workers.Wait()
	})
	g.Go(func() error {
		for done := range queue {
			select {
			case frame := <-done:
				if frame == nil {
					return nil // its worker failed and says why
				}
				if _, err := w.Write(frame); err != nil {
					return err
				}
			case <-running.Done():
				return running.Err()
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// replace writes a file beside path and renames it when write has succeeded.
func replace(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
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
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open image: %w", err)
	}
	return &Image{f, path, size}, nil
}

// RawPath is the name the raw image has or would have: without .zst.
func RawPath(path string) string { return strings.TrimSuffix(path, SuffixZstd) }

func decompress(ctx context.Context, r io.Reader) (*os.File, error) {
	decoder, err := zstd.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	f, err := os.CreateTemp("", "firstlight-image-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	size, err := sparse(ctx, f, decoder)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sparse copies r into an empty file and leaves zeros out.
func sparse(ctx context.Context, w io.WriterAt, r io.Reader) (int64, error) {
	buf, zero := make([]byte, 1<<20), make([]byte, 64<<10)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := io.ReadFull(r, buf)
		for i := 0; i < n; i += len(zero) {
			chunk := buf[i:min(i+len(zero), n)]
			if bytes.Equal(chunk, zero[:len(chunk)]) {
				continue
			}
			if _, err := w.WriteAt(chunk, at+int64(i)); err != nil {
				return 0, err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return at, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// WriteSums writes SHA256SUMS into dir for the named files of dir, in sha256sum's format,
// and returns the digests in hexadecimal digits by name.
func WriteSums(ctx context.Context, dir string, names ...string) (map[string]string, error) {
	sums := map[string]string{}
	var list strings.Builder
	for _, name := range names {
		digest, err := DigestFile(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", SumsName, err)
		}
		sums[name] = digest
		fmt.Fprintf(&list, "%s  %s\n", digest, name)
	}
	err := replace(filepath.Join(dir, SumsName), func(w io.Writer) error {
		_, err := io.WriteString(w, list.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", SumsName, err)
	}
	return sums, nil
}
