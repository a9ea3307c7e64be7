package stickupdate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// frames reads anywhere in a file of zstd frames (RFC 8878) that do not depend on each other, as the builder compresses
// an image: 8 MiB in each. So nothing has to be unpacked to a disk that may have no room for it.
type frames struct {
	file    io.ReaderAt
	decoder *zstd.Decoder
	index   []frame

	mu     sync.Mutex
	recent []decoded // the last one used is first
}

// frame is where a frame is in the file, and what of the content it holds. Bytes.
type frame struct{ at, size, start, length int64 }

type decoded struct {
	start int64
	data  []byte
}

const (
	maxFrame   = 16 << 20 // of content
	keptFrames = 4        // in memory
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// isZstd reports whether a file begins as a zstd frame does.
func isZstd(r io.ReaderAt) bool {
	head := make([]byte, len(zstdMagic))
	_, err := r.ReadAt(head, 0)
	return err == nil && bytes.Equal(head, zstdMagic)
}

// newFrames finds the frames of a file of size bytes, without decompressing anything.
func newFrames(file io.ReaderAt, size int64) (*frames, error) {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}

	f := &frames{file: file, decoder: decoder}
	for at, start := int64(0), int64(0); at < size; {
		one, err := readFrame(file, at)
		if err != nil {
			return nil, fmt.Errorf("compressed frame at byte %d: %w", at, err)
		}
		if one.at+one.size > size {
			return nil, fmt.Errorf("compressed frame at byte %d: %w", at, io.ErrUnexpectedEOF)
		}

		one.start = start
		f.index = append(f.index, one)
		at, start = at+one.size, start+one.length
	}

	return f, nil
}

// readFrame measures the frame at a byte of the file: its header, then its blocks, each with its size before it.
func readFrame(file io.ReaderAt, at int64) (frame, error) {
	head := make([]byte, zstd.HeaderMaxSize)
	n, err := file.ReadAt(head, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return frame{}, err
	}

	var h zstd.Header
	if err := h.Decode(head[:n]); err != nil {
		return frame{}, err
	}
	if !h.HasFCS || h.FrameContentSize > maxFrame {
		return frame{}, errors.New("it is not compressed as `firstlight build` does; decompress it first (zstd -d)")
	}

	end := at + int64(h.HeaderSize)
	for last := false; !last; {
		b := make([]byte, 4)
		if _, err := file.ReadAt(b[:3], end); err != nil {
			return frame{}, err
		}

		// RFC 8878, 3.1.1.2: last block 1 bit, type 2 bits, size 21 bits; a run has one byte whatever its size is.
		block := binary.LittleEndian.Uint32(b)
		last = block&1 != 0
		size := int64(block >> 3)
		if block>>1&3 == 1 {
			size = 1
		}
		end += 3 + size
	}
	if h.HasCheckSum {
		end += 4
	}

	return frame{at: at, size: end - at, length: int64(h.FrameContentSize)}, nil
}

// ReadAt implements io.ReaderAt for the content.
func (f *frames) ReadAt(b []byte, at int64) (int, error) {
	n := 0
	for n < len(b) {
		i := sort.Search(len(f.index), func(i int) bool { return f.index[i].start+f.index[i].length > at })
		if i == len(f.index) {
			return n, io.EOF
		}

		data, err := f.decode(f.index[i])
		if err != nil {
			return n, err
		}
		copied := copy(b[n:], data[at-f.index[i].start:])
		n, at = n+copied, at+int64(copied)
	}
	return n, nil
}

// decode gives the content of a frame, which must agree with its checksum.
func (f *frames) decode(one frame) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, d := range f.recent {
		if d.start == one.start {
			copy(f.recent[1:i+1], f.recent[:i])
			f.recent[0] = d
			return d.data, nil
		}
	}

	packed := make([]byte, one.size)
	if _, err := f.file.ReadAt(packed, one.at); err != nil {
		return nil, fmt.Errorf("read compressed frame at byte %d: %w", one.at, err)
	}
	data, err := f.decoder.DecodeAll(packed, make([]byte, 0, one.length))
	if err == nil && int64(len(data)) != one.length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("decompress frame at byte %d: %w", one.at, err)
	}

	f.recent = append([]decoded{{one.start, data}}, f.recent[:min(len(f.recent), keptFrames-1)]...)
	return data, nil
}
