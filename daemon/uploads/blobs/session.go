package blobs

import (
	"context"
	"hash"
	"hash/crc32"
	"os"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/daemon/uploads/blobs/diskimage"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// session is an upload at work: where it is, and the file of the part under way. It is
// used under the entry's turn and may outlive a request. One part is gathered while those
// before it are sent to the store.
type session struct {
	upload upload // as it was when the session began, with ID
	length int64

	hash     hash.Hash
	offset   int64      // received
	part     int64      // offset at which the part under way begins
	partHash []byte     // state of the hash there
	sum      uint32     // CRC-32C of what there is of the part
	saved    []Fragment // of the part, in the backend
	savedTo  int64      // offset up to which they reach
	checked  bool
	image    diskimage.Info

	file    *os.File     // the part under way; nil before its first octet
	whole   bool         // it is the file of all parts
	sending []*sentPart  // in order
	under   atomic.Int32 // of them, how many are not there yet
	idle    []*os.File   // for parts to come
	failed  error        // of the first part that could not be stored
	stored  checkpoint   // after the last part that was stored
	written time.Time    // when the state was last written
}

// close closes the files. A nil session is closed.
func (s *session) close() {
	if s == nil {
		return
	}

	for _, p := range s.sending {
		<-p.done
		p.file.Close()
	}

	for _, f := range s.idle {
		f.Close()
	}

	if s.file != nil {
		s.file.Close()
	}
}

// resume makes the entry's session, of what the store has if there is none. What the store
// lost is given up: the session begins where nothing is missing, which the caller sees by
// its offset. Some octets must be lacking: an upload that lacks none may be one object by
// now, and have no parts.
func (d *Store) resume(ctx context.Context, e *entry) (*session, error) {
	if e.session != nil {
		return e.session, nil
	}

	kp := e.copyState()
	s := &session{upload: *kp.Upload, length: kp.Record.ImageLength, offset: kp.Record.ImageOffset, written: d.Now()}
	s.checked, s.image = s.upload.Checked, diskimage.Info{Format: kp.Record.Format, VirtualSize: kp.Record.VirtualSize}
	lost, err := d.partsLost(ctx, e, s)
	if err != nil {
		return nil, err
	}
	if lost != "" {
		d.Log.Error("store lost parts; the upload begins again", "artifact", e.key.String(), "lost", lost)
		return d.restart(ctx, e)
	}
	if s.hash, err = hashFrom(s.upload.Hash); err != nil {
		return nil, err
	}

	s.part = s.offset / s.upload.PartSize * s.upload.PartSize
	s.savedTo = s.part
	s.partHash = s.upload.PartHash
	for _, f := range s.upload.Tail {
		if err := d.reload(ctx, e, s, f); err != nil {
			s.close()
			return nil, err
		}
	}

	if s.savedTo != s.offset || s.sum != s.upload.TailSum {
		d.Log.Error(
			"store damaged what was received of a part; the upload continues before it", "artifact", e.key.String(),
			"offset", s.part,
		)
		if err := d.rewind(ctx, e, s); err != nil {
			s.close()
			return nil, err
		}
	}

	e.session = s
	e.setLive(s.offset)
	return s, nil
}

// partsLost says which parts that must be there are not; "" if all are.
func (d *Store) partsLost(ctx context.Context, e *entry, s *session) (string, error) {
	want := s.upload.partCount(s.offset, s.length)
	if want == 0 {
		return "", nil
	}
	return d.Backend.LostParts(ctx, s.in(e), want)
}

// in names the session's upload to the backend.
func (s *session) in(e *entry) Upload { return s.upload.in(e.key, s.length) }

// place is where in the file of the part under way an offset of the artifact is.
func (s *session) place(offset int64) int64 {
	if s.whole {
		return offset
	}
	return offset - s.part
}

// reload brings a fragment back into the file of the part; one that is lost or torn is left out.
func (d *Store) reload(ctx context.Context, e *entry, s *session, f Fragment) error {
	file, err := d.partFile(e, s)
	if err != nil {
		return err
	}

	there, err := d.Backend.LoadFragment(ctx, s.in(e), f, file, s.place(f.Offset))
	if there {
		s.sum = sumFile(s.sum, file, s.place(f.Offset), f.Length)
		s.saved, s.savedTo = append(s.saved, f), f.Offset+f.Length
	}

	return err
}

// sumFile goes on with a checksum over a piece of a file; one that cannot be read gives a
// wrong sum, which is what the caller looks for.
func sumFile(sum uint32, f *os.File, from, n int64) uint32 {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for n > 0 {
		k, err := f.ReadAt((*buffer)[:min(n, int64(len(*buffer)))], from)
		sum = crc32.Update(sum, castagnoli, (*buffer)[:k])
		if err != nil {
			return sum
		}

		from, n = from+int64(k), n-int64(k)
	}

	return sum
}

// rewind gives up the part under way.
func (d *Store) rewind(ctx context.Context, e *entry, s *session) (err error) {
	if s.hash, err = hashFrom(s.partHash); err != nil {
		return err
	}

	s.offset, s.sum, s.saved, s.savedTo = s.part, 0, nil, s.part
	e.setLive(s.part)
	return d.write(ctx, e, s, checkpoint{offset: s.part, hash: s.partHash, partHash: s.partHash})
}

// restart gives up all that was received.
func (d *Store) restart(ctx context.Context, e *entry) (*session, error) {
	old := e.copyState()
	e.session.close()
	e.session = nil
	err := d.changeOrErase(ctx, e, func(kp *entryState) {
		kp.Upload = newUpload(kp.Record.ImageLength, d.PartSize, d.Now().UTC())
		clearServerFields(&kp.Record, kp.Record.Created, kp.Record.Updated)
	})
	if err != nil {
		return nil, err
	}

	e.setLive(0)
	d.Changed()
	d.eraseQuietly(ctx, e.key, old)
	return d.resume(ctx, e)
}

// partFile is the file of the part under way.
func (d *Store) partFile(e *entry, s *session) (f *os.File, err error) {
	switch last := len(s.idle) - 1; {
	case s.file != nil:
	case last >= 0:
		s.file, s.idle = s.idle[last], s.idle[:last]
	default:
		s.file, s.whole, err = d.Backend.PartFile(s.in(e))
	}
	return s.file, err
}
