package depot

import (
	"hash/crc32"
	"sync"
)

// ahead is how many pieces may be received before they are summed.
const ahead = 3

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// sums are the sums of what a session receives, made beside its receiving: one processor reads, decrypts
// and writes the next piece while another sums the last one. Hash and sum of the session are right after
// wait and after stop.
type sums struct {
	todo chan summand
	free chan *[]byte
}

type summand struct {
	buffer *[]byte
	n      int
}

// sumBeside begins; stop must be called.
func (s *session) sumBeside() sums {
	t := sums{todo: make(chan summand, ahead), free: make(chan *[]byte, ahead)}
	for range ahead {
		t.free <- buffers.Get().(*[]byte)
	}
	go func() {
		for p := range t.todo {
			piece := (*p.buffer)[:p.n]
			s.hash.Write(piece)
			s.sum = crc32.Update(s.sum, castagnoli, piece)
			t.free <- p.buffer
		}
	}()
	return t
}

// buffer is a buffer to read into; add takes it back.
func (t sums) buffer() *[]byte { return <-t.free }

// add has the first n octets summed.
func (t sums) add(buffer *[]byte, n int) { t.todo <- summand{buffer, n} }

// wait returns when all that was added is summed.
func (t sums) wait() {
	for _, b := range t.all() {
		t.free <- b
	}
}

// stop waits, and ends it.
func (t sums) stop() {
	for _, b := range t.all() {
		buffers.Put(b)
	}
	close(t.todo)
}

// all takes the buffers, each when its octets are summed.
func (t sums) all() (buffers [ahead]*[]byte) {
	for i := range buffers {
		buffers[i] = <-t.free
	}
	return buffers
}
