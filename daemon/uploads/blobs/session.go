package blobs

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/daemon/uploads/blobs/diskimage"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// session is an upload at work: where it is, and the part under way in a scratch file. It is
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
	saved    []fragment // of the part, in the store
	savedTo  int64      // offset up to which they reach
	checked  bool
	image    diskimage.Info

	file    *os.File     // the part under way; nil before its first octet
	sending []*sentPart  // in order
	under   atomic.Int32 // of them, how many are not there yet
	idle    []*os.File   // scratch files for parts to come
	failed  error        // of the first part that could not be stored
	stored  checkpoint   // after the last part that was stored
	written time.Time    // when the state was last written
}

// close gives the scratch files back. A nil session is closed.
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
		d.Log.Error("store lost parts; the upload begins anew", "artifact", e.key.String(), "lost", lost)
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
		d.Log.Error("store damaged what was received of a part; the upload goes on before it", "artifact", e.key.String(), "offset", s.part)
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
	parts, err := d.Store.Parts(ctx, e.key.Collection.Bucket(), e.key.Object(), s.upload.ID)
	if err != nil && !errors.Is(err, s3.ErrNotExist) {
		return "", err
	}
	_, lost := checkParts(parts, s.upload, s.length, want)
	return lost, nil
}

// checkParts chooses the first n parts, and says what is not right with them; "" if nothing is.
func checkParts(parts []s3.Part, u upload, length, n int64) ([]s3.Part, string) {
	if int64(len(parts)) < n {
		return nil, fmt.Sprintf("%d of %d parts are there", len(parts), n)
	}
	parts = parts[:n]
	for i, p := range parts {
		if size := min(u.PartSize, length-int64(i)*u.PartSize); p.Number != i+1 || p.Size != size {
			return nil, fmt.Sprintf("part %d has %d octets, not %d", p.Number, p.Size, size)
		}
	}
	return parts, ""
}

// reload brings a fragment back into the scratch file; one that is lost or torn is left out.
func (d *Store) reload(ctx context.Context, e *entry, s *session, f fragment) error {
	body, err := d.Store.Open(ctx, e.key.Collection.Bucket(), s.upload.fragmentName(f.Offset), 0, f.Length)
	if errors.Is(err, s3.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer body.Close()
	file, err := s.scratchFile(d.Scratch)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.NewOffsetWriter(file, f.Offset-s.part), body)
	if err != nil {
		return fullError(fmt.Errorf("read fragment %d: %w", f.Offset, err))
	}
	if n == f.Length {
		s.sum = sumFile(s.sum, file, f.Offset-s.part, n)
		s.saved, s.savedTo = append(s.saved, f), f.Offset+n
	}
	return nil
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

// scratchFile is the file of the part under way.
func (s *session) scratchFile(dir string) (f *os.File, err error) {
	switch last := len(s.idle) - 1; {
	case s.file != nil:
	case last >= 0:
		s.file, s.idle = s.idle[last], s.idle[:last]
	default:
		s.file, err = openScratch(dir)
	}
	return s.file, err
}
