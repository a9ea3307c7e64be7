package blobs

import (
	"hash/crc32"
	"sync"
)

// ahead is how many pieces may be received before they are summed.
const ahead = 3

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// sumWorker are the sums of what a session receives, made beside its receiving: one processor reads, decrypts
// and writes the next piece while another sums the last one. Hash and sum of the session are right after
// wait and after stop. A client that is slow holds one buffer.
type sumWorker struct {
	todo  chan summand
	slots chan struct{} // one is taken for each piece that is received or summed
}

type summand struct {
	buffer *[]byte
	n      int
}

// sumBeside begins; stop must be called.
func (s *session) sumBeside() sumWorker {
	t := sumWorker{todo: make(chan summand, ahead), slots: make(chan struct{}, ahead)}
	go func() {
		for p := range t.todo {
			piece := (*p.buffer)[:p.n]
			s.hash.Write(piece)
			s.sum = crc32.Update(s.sum, castagnoli, piece)
			buffers.Put(p.buffer)
			<-t.slots
		}
	}()
	return t
}

// takeBuffer is a buffer to read into; add takes it back.
func (t sumWorker) takeBuffer() *[]byte {
	t.slots <- struct{}{}
	return buffers.Get().(*[]byte)
}

// add has the first n octets summed.
func (t sumWorker) add(buffer *[]byte, n int) { t.todo <- summand{buffer, n} }

// wait returns when all that was added is summed; no buffer may be held.
func (t sumWorker) wait() {
	for range ahead {
		t.slots <- struct{}{}
	}
	for range ahead {
		<-t.slots
	}
}

// stop waits, and ends it.
func (t sumWorker) stop() {
	t.wait()
	close(t.todo)
}
