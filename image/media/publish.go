package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"syscall"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// chunkSize is what is read at once and what one zstd frame holds, in bytes. Frames do not
// depend on each other, so that processors share the work and the bytes do not tell how
// many there were. A multiple of what a range of the block map may have.
const chunkSize = 8 * rangeBlocks * BlockSize

// PublishResult is what Publish wrote.
type PublishResult struct {
	Sums   map[string]string // of the three files, by name: sha256 in hexadecimal digits
	Frames []int64           // how many bytes each frame of the compressed image has
}

// Publish writes, beside an image, the compressed image and the block map, for the same eyes: an
// image with passwords tells them compressed as well, and digests of blocks tell who guesses right. The image is
// read once and nothing that is written is read again. Files that are there already are
// replaced only when the new ones are complete. earlier may be nil; the bytes are the same
// with it and without.
func Publish(ctx context.Context, image string, earlier *PreviousImage) (PublishResult, error) {
	p, err := publish(ctx, image, earlier)
	if err != nil {
		return PublishResult{}, fmt.Errorf("publish image %s: %w", image, err)
	}
	return p, nil
}

func publish(ctx context.Context, image string, earlier *PreviousImage) (p PublishResult, err error) {
	f, err := os.Open(image)
	if err != nil {
		return p, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return p, err
	}

	b, err := mapUsed(f, info.Size())
	if err != nil {
		return p, err
	}

	raw, packed := sha256.New(), sha256.New()
	err = replace(image+SuffixZstd, info.Mode().Perm(), func(w io.Writer) error {
		p.Frames, err = processImage(ctx, f, b, earlier.index(), raw, io.MultiWriter(w, packed))
		return err
	})
	if err != nil {
		return p, err
	}

	text := b.Encode()
	err = replace(image+SuffixBmap, info.Mode().Perm(), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return p, err
	}

	name, mapped := filepath.Base(image), sha256.Sum256(text)
	p.Sums = map[string]string{
		name:              hex.EncodeToString(raw.Sum(nil)),
		name + SuffixZstd: hex.EncodeToString(packed.Sum(nil)),
		name + SuffixBmap: hex.EncodeToString(mapped[:]),
	}
	return p, nil
}

// chunk is a stretch of the image on its way through a pass. Its memory is used again.
type chunk struct {
	at    int64
	buf   []byte
	data  []byte        // of buf, or zeros
	frame []byte        // data compressed
	ready chan struct{} // gets a value when frame is there
}

// processImage reads the image of b once: it fills in the digests of b's ranges, feeds the whole
// image to raw, and writes it compressed to w. Reading, the ranges and compression are
// shared by all processors; the two running digests are in the order of the image, each
// with a goroutine of its own. It returns the length of each frame.
func processImage(
	ctx context.Context,
	f *os.File,
	b Bmap,
	earlier *previousIndex,
	raw hash.Hash,
	w io.Writer,
) (frames []int64, err error) {
	// What is in use is compressed already, all but a few tables: a slow level would find nothing.
	encoder, err := zstd.NewWriter(
		nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
		zstd.WithEncoderCRC(true),
	)
	if err != nil {
		return nil, err
	}
	defer encoder.Close()

	zeros := make([]byte, chunkSize)
	zeroFrame := encoder.EncodeAll(zeros, nil)

	ahead := 2 * runtime.GOMAXPROCS(0) // how many chunks are in memory
	free, work, toHash, toWrite := make(
		chan *chunk, ahead,
	), make(chan *chunk, ahead), make(chan *chunk, ahead), make(chan *chunk, ahead)
	for range ahead {
		free <- &chunk{
			buf:   make([]byte, chunkSize),
			frame: make([]byte, 0, chunkSize+chunkSize/64),
			ready: make(chan struct{}, 1),
		}
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // hands out the image
		defer close(work)
		defer close(toHash)
		for at := int64(0); at < b.ImageSize; at += chunkSize {
			c, err := receive(ctx, free)
			if err != nil {
				return err
			}

			c.at, c.data = at, c.buf[:min(chunkSize, b.ImageSize-at)]
			toHash <- c // there is room for all chunks
			work <- c
		}

		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { // reads, fills in ranges, compresses
			var scratch []byte
			if earlier != nil {
				scratch = make([]byte, chunkSize)
			}

			for c := range work {
				if err := c.read(f, zeros); err != nil {
					return err
				}
				if len(c.data) == chunkSize && bytes.Equal(c.data, zeros) { // an earlier image could spare nothing
					b.digestIn(c.at, c.data, nil)
					c.frame = append(c.frame[:0], zeroFrame...)
					c.ready <- struct{}{}
					continue
				}

				same, err := earlier.hasChunk(c.at, c.data, scratch)
				if err != nil {
					return err
				}

				if same {
					b.digestIn(c.at, c.data, earlier.sums)
					if c.frame, err = earlier.readFrame(c.at, c.frame); err != nil {
						return err
					}
				} else {
					b.digestIn(c.at, c.data, nil)
					c.frame = encoder.EncodeAll(c.data, c.frame[:0])
				}

				c.ready <- struct{}{}
			}

			return nil
		})
	}

	g.Go(func() error { // digests the image
		defer close(toWrite)
		for c := range toHash {
			if _, err := receive(ctx, c.ready); err != nil {
				return err
			}
			raw.Write(c.data)
			toWrite <- c
		}
		return nil
	})
	g.Go(func() error {
		for c := range toWrite {
			if _, err := w.Write(c.frame); err != nil {
				return err
			}
			frames = append(frames, int64(len(c.frame)))
			free <- c
		}
		return nil
	})
	err = g.Wait()
	return frames, err
}

// receive waits for a value no longer than ctx lasts.
func receive[T any](ctx context.Context, from <-chan T) (value T, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	select {
	case value = <-from:
		return value, nil
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// read fills the chunk; what is a hole of the file is not read.
func (c *chunk) read(f *os.File, zeros []byte) error {
	const seekData = 3 // SEEK_DATA of lseek(2)
	data, err := f.Seek(c.at, seekData)
	if errors.Is(err, syscall.ENXIO) || err == nil && data >= c.at+int64(len(c.data)) {
		c.data = zeros[:len(c.data)]
		return nil
	}

	_, err = f.ReadAt(c.data, c.at) // also where the file system knows no holes
	return err
}

// digestIn fills in the digests of the ranges that lie in the image's stretch data at at; those
// that are in sums are taken from there. Of other ranges it looks at what nobody writes.
func (b Bmap) digestIn(at int64, data []byte, sums map[Range]string) {
	first := sort.Search(len(b.Ranges), func(i int) bool { return b.Ranges[i].First*b.BlockSize >= at })
	for i := first; i < len(b.Ranges); i++ {
		r := &b.Ranges[i]
		start := r.First*b.BlockSize - at
		if start >= int64(len(data)) {
			return
		}

		end := min((r.Last+1)*b.BlockSize-at, int64(len(data)))
		if r.SHA256 = sums[Range{First: r.First, Last: r.Last}]; r.SHA256 != "" {
			continue
		}

		sum := sha256.Sum256(data[start:end])
		r.SHA256 = hex.EncodeToString(sum[:])
	}
}
