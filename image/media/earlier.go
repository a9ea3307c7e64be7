package media

import (
	"bytes"
	"fmt"
	"io"
)

// Earlier is an image that was published before, by the same code: of the next one, what
// both have in common is not compressed and digested again: the stretch Kept, as the caller
// knows, and what is found by comparing the images. That map, frames and compressed image belong
// to the earlier image is for the caller to know.
type Earlier struct {
	Kept   Extent
	Image  io.ReaderAt // nil if it is not there any more
	Packed io.ReaderAt // the compressed image
	Bmap   Bmap
	Frames []int64 // as Publish returned them
}

// known is an Earlier made ready for looking things up in it.
type known struct {
	Earlier
	at   []int64          // where each frame starts
	sums map[Range]string // by range without its sum
}

func (e *Earlier) known() *known {
	if e == nil {
		return nil
	}
	k := &known{Earlier: *e, sums: map[Range]string{}}
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

// has tells whether the earlier image holds data at at as one chunk. It reads into scratch.
func (k *known) has(at int64, data, scratch []byte) (bool, error) {
	if k == nil || at/chunkSize >= int64(len(k.at)) || int64(len(data)) != min(chunkSize, k.Bmap.ImageSize-at) {
		return false, nil
	}
	if k.Kept.Start <= at && at+int64(len(data)) <= k.Kept.End {
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

// frame reads the frame of the chunk at at into room.
func (k *known) frame(at int64, room []byte) ([]byte, error) {
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
