package blobs

import (
	"context"
	"os"
)

// checkpoint is a place in an upload at which the store has all that is needed to go on.
type checkpoint struct {
	offset   int64
	hash     []byte
	partHash []byte
	tail     []Fragment
	sum      uint32
}

// maxSending is how many parts may be on their way to the store while the next is gathered. The store
// syncs each: with one at a time it would wait for the medium while the medium waits for it.
const maxSending = 3

// sentPart is a part on its way to the store.
type sentPart struct {
	file *os.File
	done chan struct{} // closed when this part and all before it are there, or one of them failed
	err  error         // of the first that did; then none behind it counts: what is there has no gap
}

// waitForParts waits until at most left parts are on their way, in their order.
func (s *session) waitForParts(left int) error {
	for len(s.sending) > left {
		p := s.sending[0]
		<-p.done
		s.sending, s.idle = s.sending[1:], append(s.idle, p.file)
		if s.failed == nil {
			s.failed = p.err
		}
	}
	return s.failed
}

// partStored notes that a part and all before it are in the store, and writes the state if it is time, or if
// the store waits for the client. old are fragments of that part.
func (d *Store) partStored(ctx context.Context, e *entry, s *session, m checkpoint, old []Fragment) error {
	s.stored = m
	if len(old) == 0 && s.under.Load() > 0 && d.Now().Sub(s.written) < d.SaveEvery {
		return nil
	}
	if err := d.write(ctx, e, s, m); err != nil {
		return err
	}

	d.removeFragments(ctx, e, s, old) // they go when the state does not name them any more
	return nil
}

// send begins to send the part under way, which is whole, and turns to the next.
func (d *Store) send(ctx context.Context, e *entry, s *session) error {
	if err := s.waitForParts(maxSending - 1); err != nil {
		return err
	}

	if s.upload.ID == "" {
		r := e.metadata()
		r.Format, r.VirtualSize = s.image.Format, s.image.VirtualSize // not in the record before the first part is there
		id, err := d.Backend.Begin(ctx, s.in(e), objectMetadata(r, &s.upload))
		if err != nil {
			return err
		}

		s.upload.ID = id
		// Not written yet, but whoever removes the artifact must know it.
		e.mu.Lock()
		u := *e.stored.Upload
		u.ID = id
		e.stored.Upload = &u
		e.mu.Unlock()
	}

	size, sum, number := s.offset-s.part, s.sum, int(s.part/s.upload.PartSize)+1
	after := hashState(s.hash)
	m, old, u := checkpoint{offset: s.offset, hash: after, partHash: after}, s.saved, s.in(e)
	p := &sentPart{file: s.file, done: make(chan struct{})}
	before := &sentPart{done: closed}
	if n := len(s.sending); n > 0 {
		before = s.sending[n-1]
	}

	s.sending, s.file = append(s.sending, p), nil
	s.part, s.partHash, s.sum, s.saved, s.savedTo = s.offset, after, 0, nil, s.offset
	s.under.Add(1)
	go func() {
		defer close(p.done)
		err := d.Backend.PutPart(ctx, u, number, p.file, size, sum)
		s.under.Add(-1)
		<-before.done
		if p.err = before.err; p.err == nil {
			p.err = err
		}

		if p.err == nil {
			p.err = d.partStored(ctx, e, s, m, old)
		}
	}()

	return nil
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// flush brings the part under way into the store and writes the state.
func (d *Store) flush(ctx context.Context, e *entry, s *session) error {
	if err := s.waitForParts(0); err != nil {
		return err
	}

	var old []Fragment
	if s.offset > s.savedTo {
		f := Fragment{s.savedTo, s.offset - s.savedTo}
		if len(s.saved) >= maxFragments {
			// All of the part, under the name of its first fragment: a state that names the
			// old ones reads as much of it as it always did, and finds the same octets.
			f, old = Fragment{s.part, s.offset - s.part}, s.saved[1:]
			s.saved = nil
		}

		if err := d.Backend.PutFragment(ctx, s.in(e), f, s.file, s.place(f.Offset)); err != nil {
			return err
		}

		s.saved, s.savedTo = append(s.saved, f), s.offset
	} else if s.offset == e.copyState().Record.ImageOffset {
		return nil // it is written already
	}

	m := checkpoint{s.offset, hashState(s.hash), s.partHash, append([]Fragment(nil), s.saved...), s.sum}
	if err := d.write(ctx, e, s, m); err != nil {
		return err
	}

	d.removeFragments(ctx, e, s, old)
	return nil
}

// write writes the state of the upload at a mark.
func (d *Store) write(ctx context.Context, e *entry, s *session, m checkpoint) error {
	now := d.Now().UTC()
	err := d.update(ctx, e, func(kp *entryState) {
		u := s.upload
		u.Hash, u.PartHash, u.Tail, u.TailSum, u.Checked, u.Touched = m.hash, m.partHash, m.tail, m.sum, s.checked, now
		u.Idle = 0
		kp.Upload = &u
		kp.Record.ImageOffset, kp.Record.Updated = m.offset, now
		kp.Record.Format, kp.Record.VirtualSize = s.image.Format, s.image.VirtualSize
	})
	s.written = d.Now()
	return err
}

// removeFragments removes what no state names; what remains is swept later.
func (d *Store) removeFragments(ctx context.Context, e *entry, s *session, old []Fragment) {
	if err := d.Backend.RemoveFragments(ctx, s.in(e), old); err != nil {
		d.Log.Warn("fragments are left in the store", "artifact", e.key.String(), "error", err)
	}
}
