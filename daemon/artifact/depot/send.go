package depot

import (
	"context"
)

// mark is a place in an upload at which the store has all that is needed to go on.
type mark struct {
	offset   int64
	hash     []byte
	partHash []byte
	tail     []fragment
	sum      uint32
}

// wait returns what became of the part that was being sent.
func (d *Depot) wait(s *session) error {
	if s.sending == nil {
		return nil
	}
	err := <-s.sending
	s.sending = nil
	return err
}

// send begins to send the part under way, which is whole, and turns to the next. It waits
// for the part before: there are never more than two.
func (d *Depot) send(ctx context.Context, e *entry, s *session) error {
	if err := d.wait(s); err != nil {
		return err
	}
	bucket, object := e.key.Collection.Bucket(), e.key.Object()
	if s.upload.ID == "" {
		id, err := d.Store.Begin(ctx, bucket, object, meta(e.record(), s.upload.Serial))
		if err != nil {
			return err
		}
		s.upload.ID = id
		// Not written yet, but whoever removes the artifact must know it.
		e.mu.Lock()
		u := *e.kept.Upload
		u.ID = id
		e.kept.Upload = &u
		e.mu.Unlock()
	}
	file, size, sum, number := s.files[s.now], s.offset-s.part, s.sum, int(s.part/s.upload.PartSize)+1
	after := hashState(s.hash)
	m := mark{offset: s.offset, hash: after, partHash: after}
	old := s.saved
	s.now ^= 1
	s.part, s.partHash, s.sum, s.saved, s.savedTo = s.offset, after, 0, nil, s.offset
	result := make(chan error, 1)
	s.sending = result
	go func() {
		err := d.Store.Part(ctx, bucket, object, s.upload.ID, number, file, size, sum)
		if err == nil {
			s.stored = m
		}
		// Fragments go when the state does not name them any more.
		if err == nil && (len(old) > 0 || d.Now().Sub(s.written) >= d.SaveEvery) {
			if err = d.write(ctx, e, s, m); err == nil {
				d.removeFragments(ctx, e, s, old)
			}
		}
		result <- err
	}()
	return nil
}

// settle brings the part under way into the store and writes the state.
func (d *Depot) settle(ctx context.Context, e *entry, s *session) error {
	if err := d.wait(s); err != nil {
		return err
	}
	var old []fragment
	if s.offset > s.savedTo {
		f := fragment{s.savedTo, s.offset - s.savedTo}
		if len(s.saved) >= maxFragments {
			// All of the part, under the name of its first fragment: a state that names the
			// old ones reads as much of it as it always did, and finds the same octets.
			f, old = fragment{s.part, s.offset - s.part}, s.saved[1:]
			s.saved = nil
		}
		err := d.Store.PutFrom(ctx, e.key.Collection.Bucket(), s.upload.fragment(f.Offset), offsetReader{s.files[s.now], f.Offset - s.part}, f.Length)
		if err != nil {
			return err
		}
		s.saved, s.savedTo = append(s.saved, f), s.offset
	} else if s.offset == e.state().Record.ImageOffset {
		return nil // it is written already
	}
	m := mark{s.offset, hashState(s.hash), s.partHash, append([]fragment(nil), s.saved...), s.sum}
	if err := d.write(ctx, e, s, m); err != nil {
		return err
	}
	d.removeFragments(ctx, e, s, old)
	return nil
}

// write writes the state of the upload at a mark.
func (d *Depot) write(ctx context.Context, e *entry, s *session, m mark) error {
	now := d.Now().UTC()
	err := d.change(ctx, e, func(kp *kept) {
		u := s.upload
		u.Hash, u.PartHash, u.Tail, u.TailSum, u.Checked, u.Touched = m.hash, m.partHash, m.tail, m.sum, s.checked, now
		kp.Upload = &u
		kp.Record.ImageOffset, kp.Record.Updated = m.offset, now
		kp.Record.Format, kp.Record.VirtualSize = s.image.Format, s.image.VirtualSize
	})
	s.written = d.Now()
	return err
}

// removeFragments removes what no state names; what remains is swept later.
func (d *Depot) removeFragments(ctx context.Context, e *entry, s *session, old []fragment) {
	for _, f := range old {
		if err := d.Store.Remove(ctx, e.key.Collection.Bucket(), s.upload.fragment(f.Offset)); err != nil {
			d.Log.Warn("fragment is left in the store", "artifact", e.key.String(), "offset", f.Offset, "error", err)
		}
	}
}
