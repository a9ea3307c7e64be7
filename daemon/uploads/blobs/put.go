package blobs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"firstlight.dev/firstlight/assets/artifact"
)

// whole is an artifact that is being received whole: no name has it yet, and quota and room count it.
type whole struct {
	key    artifact.Key
	record artifact.Metadata
	upload upload
	staged int64 // octets of it that Staged counts, too
}

// Put stores a whole artifact in place of what has the name, if anything has: until all octets are there and their
// digest is right there is the old one, after that the new one, and a power cut changes nothing about it. staged is
// how many of the octets are on the disk already and counted by Config.Staged.
func (d *Store) Put(
	ctx context.Context,
	k artifact.Key,
	r artifact.Metadata,
	staged int64,
	body io.Reader,
) (artifact.Metadata, error) {
	r.Owner, r.ClusterName, r.ImageName = k.Owner, k.Cluster, k.Name
	now := d.Now().UTC()
	clearServerFields(&r, now, now)
	w := &whole{key: k, record: r, upload: *newUpload(r.ImageLength, d.PartSize, now), staged: staged}
	if err := d.checkUnused(ctx, k, "replace"); err != nil {
		return artifact.Metadata{}, err
	}
	if err := d.checkRoom(k, r.ImageLength, 0); err != nil {
		return artifact.Metadata{}, err
	}
	if err := d.reserve(w); err != nil {
		return artifact.Metadata{}, err
	}
	defer d.release(w)

	err := d.receiveWhole(context.WithoutCancel(ctx), w, body)
	if err == nil {
		err = d.checkUnused(ctx, k, "replace") // it took a while
	}
	if err == nil {
		return d.commit(context.WithoutCancel(ctx), w)
	}

	if failed := d.Backend.Discard(context.WithoutCancel(ctx), w.in()); failed != nil {
		d.Log.Warn("refused content leaves something in the store", "artifact", k.String(), "error", failed)
	}
	return artifact.Metadata{}, wrapStoreError(err, k.Name, "stored", 0)
}

func (w *whole) in() Upload { return w.upload.in(w.key, w.record.ImageLength) }

// reserve counts an artifact before its first octet.
func (d *Store) reserve(w *whole) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := int64(0)
	if e := d.entries[w.key]; e != nil {
		old = e.metadata().ImageLength
	}

	if err := d.withinRecords(w.key, w.record); err != nil {
		return err
	}
	if err := d.withinQuota(w.key.Owner, w.record.ImageLength, old+w.staged); err != nil {
		return err
	}

	d.wholes[w] = true
	return nil
}

func (d *Store) release(w *whole) {
	d.mu.Lock()
	delete(d.wholes, w)
	d.mu.Unlock()
}

// CheckQuota refuses octets that an owner may not have, on top of all that it has and that is on its way.
func (d *Store) CheckQuota(owner string, octets int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.withinQuota(owner, octets, 0)
}

// CheckRoom refuses octets that the disk has no room for.
func (d *Store) CheckRoom(octets int64) error {
	return wrapStoreError(d.roomFor(octets), "this", "stored", 0)
}

// receiveWhole brings the octets into the backend, part by part, and compares their digest.
func (d *Store) receiveWhole(ctx context.Context, w *whole, body io.Reader) error {
	s := &session{upload: w.upload, length: w.record.ImageLength}
	defer s.close()
	var err error
	if s.hash, err = hashFrom(nil); err != nil {
		return err
	}
	if w.upload.ID, err = d.Backend.Begin(ctx, w.in(), objectMetadata(w.record, &w.upload)); err != nil {
		return err
	}

	s.upload = w.upload
	for s.offset < s.length {
		if err := d.receivePart(ctx, w, s, body); err != nil {
			return err
		}
	}

	if n, err := io.ReadFull(body, make([]byte, 1)); n > 0 {
		return &Error{Kind: WrongLength, Text: fmt.Sprintf("the body has more than the %d bytes that were announced", s.length)}
	} else if !errors.Is(err, io.EOF) {
		return &Error{Kind: Cut, Text: "the request ended early; nothing is kept", Err: err}
	}

	sum := hex.EncodeToString(s.hash.Sum(nil))
	if w.record.SHA256 != "" && w.record.SHA256 != sum {
		return &Error{
			Kind: Refused,
			Text: fmt.Sprintf("the sha256 is %s, not %s as announced; nothing is kept", sum, w.record.SHA256),
		}
	}

	w.record.SHA256, w.record.Format, w.record.VirtualSize = sum, s.image.Format, s.image.VirtualSize
	return nil
}

// receivePart receives one part and stores it.
func (d *Store) receivePart(ctx context.Context, w *whole, s *session, body io.Reader) error {
	end := min(s.part+s.upload.PartSize, s.length)
	if err := d.roomFor(end - s.part); err != nil {
		return err
	}

	file, whole, err := d.Backend.PartFile(w.in())
	if err != nil {
		return err
	}
	defer file.Close()

	s.file, s.whole, s.sum = file, whole, 0
	defer func() { s.file = nil }()
	if err := s.fill(w.key.Collection, end, body); err != nil {
		return err
	}

	number := int(s.part/s.upload.PartSize) + 1
	if err := d.Backend.PutPart(ctx, w.in(), number, file, end-s.part, s.sum); err != nil {
		return err
	}

	s.part = end
	return nil
}

// fill reads into the file of the part until an offset, and sums what it reads.
func (s *session) fill(c artifact.Collection, end int64, body io.Reader) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for s.offset < end {
		n, failed := io.ReadFull(body, (*buffer)[:min(int64(len(*buffer)), end-s.offset)])
		piece := (*buffer)[:n]
		if _, err := s.file.WriteAt(piece, s.place(s.offset)); err != nil {
			return FullError(fmt.Errorf("write file of the part: %w", err))
		}

		s.hash.Write(piece)
		s.sum = crc32.Update(s.sum, castagnoli, piece)
		s.offset += int64(n)
		if err := s.checkHead(c); err != nil {
			return err
		}
		if failed != nil {
			return &Error{Kind: Cut, Text: "the request ended early; nothing is kept", Err: failed}
		}
	}

	return nil
}

// commit gives the octets their name. The record of what has it says first which upload takes its place, so that after a
// power cut the object's own metadata are believed, and not the record of what was replaced.
func (d *Store) commit(ctx context.Context, w *whole) (artifact.Metadata, error) {
	e, isNew, err := d.takeName(ctx, w)
	if err != nil {
		return artifact.Metadata{}, err
	}
	defer e.release()

	old := e.copyState()
	if !isNew {
		d.abandon(e)
		err = d.update(ctx, e, func(kp *entryState) { kp.Replacing = w.upload.Serial })
	}
	if err == nil {
		err = d.nameWhole(ctx, w)
	}
	if err != nil {
		d.giveUpName(ctx, e, old, isNew)
		return artifact.Metadata{}, wrapStoreError(err, w.key.Name, "stored", 0)
	}

	w.record.Updated = d.Now().UTC()
	if !isNew {
		w.record.Created = old.Record.Created
	}

	w.record.Complete, w.record.ImageOffset = true, w.record.ImageLength
	e.setStored(entryState{Record: w.record})
	if err := d.save(ctx, w.key, e.copyState()); err != nil { // the next start makes the record of the object
		d.Log.Error("record of what was stored is not written", "artifact", w.key.String(), "error", err)
	}

	if u := old.Upload; u != nil && !isNew {
		if err := d.Backend.Discard(ctx, u.in(w.key, old.Record.ImageLength)); err != nil {
			d.Log.Warn("replaced upload leaves something in the store", "artifact", w.key.String(), "error", err)
		}
	}

	d.Changed()
	d.Log.Info(
		"artifact complete", "artifact", w.key.String(), "octets", w.record.ImageLength, "sha256", w.record.SHA256,
	)
	return w.record, nil
}

// nameWhole completes the upload, and believes the store only when the object is there.
func (d *Store) nameWhole(ctx context.Context, w *whole) error {
	lost, completed := d.Backend.Complete(
		ctx, w.in(), w.upload.partCount(w.record.ImageLength, w.record.ImageLength), objectMetadata(w.record, &w.upload),
	)
	o, err := d.Backend.Stat(ctx, w.key.Collection.Bucket(), w.key.Object())
	switch {
	case err == nil && o.Size == w.record.ImageLength && o.Meta[metaSerial] == w.upload.Serial:
		return nil
	case lost != "":
		return fmt.Errorf("%w with what it had: %s", ErrDown, lost)
	case completed != nil:
		return completed
	case err != nil:
		return err
	}
	return fmt.Errorf("%w with what it says it completed", ErrDown)
}

// takeName has the turn of the name: that of what has it, whose upload ends, or of a new entry.
func (d *Store) takeName(ctx context.Context, w *whole) (e *entry, isNew bool, err error) {
	for {
		fresh := newEntry(w.key, entryState{Record: w.record, Upload: &w.upload})
		<-fresh.turn
		d.mu.Lock()
		isNew = d.entries[w.key] == nil
		if isNew {
			d.entries[w.key] = fresh
		}

		d.mu.Unlock()
		if isNew {
			return fresh, true, nil
		}

		e, err := d.seize(ctx, w.key, errReplaced)
		var known *Error
		if !errors.As(err, &known) || known.Kind != NotFound {
			return e, false, err
		}
	}
}

// giveUpName leaves what was there as it was. A mark that cannot be removed is looked at by the next start.
func (d *Store) giveUpName(ctx context.Context, e *entry, old entryState, isNew bool) {
	if isNew {
		d.dropEntry(e)
		return
	}

	e.setStored(old)
	if err := d.save(ctx, e.key, old); err != nil {
		d.Log.Warn("record is not written", "artifact", e.key.String(), "error", err)
	}
}

// setStored changes what is known of an artifact. The caller has the turn.
func (e *entry) setStored(kp entryState) {
	e.mu.Lock()
	e.stored, e.live = kp, kp.Record.ImageOffset
	e.mu.Unlock()
}

// settleReplacing looks what a commit came to that a power cut ended.
func (d *Store) settleReplacing(ctx context.Context, k artifact.Key, kp *entryState) (rebuild bool, err error) {
	if kp.Replacing == "" {
		return false, nil
	}

	o, err := d.Backend.Stat(ctx, k.Collection.Bucket(), k.Object())
	if err != nil && !errors.Is(err, ErrNotExist) {
		return false, err
	}

	rebuild = err == nil && o.Meta[metaSerial] == kp.Replacing
	kp.Replacing = ""
	return rebuild, nil
}
