package media

import (
	"bytes"
	"fmt"
	"io"
)

// PreviousImage is an image that was published before, by the same code: of the next one, what
// both have in common is not compressed and digested again: the stretch Kept, as the caller
// knows, and what is found by comparing the images. That map, frames and compressed image belong
// to the earlier image is for the caller to know.
type PreviousImage struct {
	Reused Extent
	Image  io.ReaderAt // nil if it is not there any more
	Packed io.ReaderAt // the compressed image
	Bmap   Bmap
	Frames []int64 // as Publish returned them
}

// previousIndex is an Earlier made ready for looking things up in it.
type previousIndex struct {
	PreviousImage
	at   []int64          // where each frame starts
	sums map[Range]string // by range without its sum
}

func (e *PreviousImage) index() *previousIndex {
	if e == nil {
		return nil
	}

	k := &previousIndex{PreviousImage: *e, sums: map[Range]string{}}
	at := int64(0)
	for _, n := range e.Frames {
		k.at = append(k.at, at)
		at += n
	}

	for _, r := range e.Bmap.Ranges {
		k.sums[Range{First: r.First, Last: r.Last}] = r.SHA256
	}

	return k
}

// hasChunk tells whether the earlier image holds data at at as one chunk. It reads into scratch.
func (k *previousIndex) hasChunk(at int64, data, scratch []byte) (bool, error) {
	if k == nil || at/chunkSize >= int64(len(k.at)) || int64(len(data)) != min(chunkSize, k.Bmap.ImageSize-at) {
		return false, nil
	}
	if k.Reused.Start <= at && at+int64(len(data)) <= k.Reused.End {
		return true, nil
	}
	if k.Image == nil {
		return false, nil
	}
	if _, err := k.Image.ReadAt(scratch[:len(data)], at); err != nil {
		return false, fmt.Errorf("read earlier image: %w", err)
	}

	return bytes.Equal(data, scratch[:len(data)]), nil
}

// readFrame reads the frame of the chunk at at into room.
func (k *previousIndex) readFrame(at int64, room []byte) ([]byte, error) {
	i := at / chunkSize
	if int64(cap(room)) < k.Frames[i] {
		room = make([]byte, k.Frames[i])
	}

	room = room[:k.Frames[i]]
	if _, err := k.Packed.ReadAt(room, k.at[i]); err != nil {
		return nil, fmt.Errorf("read earlier compressed image: %w", err)
	}

	return room, nil
}
