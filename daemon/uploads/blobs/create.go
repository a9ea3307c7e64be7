package blobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

var (
	errRemoved  = errors.New("it was removed meanwhile")
	errReplaced = errors.New("it was replaced meanwhile")
)

// clearServerFields clears what only the server says of a record.
func clearServerFields(r *artifact.Metadata, created, updated time.Time) {
	r.ImageOffset, r.Complete, r.Format, r.VirtualSize, r.ServedAs, r.NotServed, r.Damaged = 0, false, "", 0, nil, "", ""
	r.Created, r.Updated = created, updated
}

// Create announces an artifact. Names, length and digest were checked by the caller. What
// the record says of offset and completeness is passed over.
func (d *Store) Create(ctx context.Context, k artifact.Key, r artifact.Metadata) (artifact.Metadata, error) {
	ctx = context.WithoutCancel(ctx) // a client that hangs up leaves nothing half done
	if err := d.checkRoom(k, r.ImageLength, 0); err != nil {
		return artifact.Metadata{}, err
	}

	now := d.Now().UTC()
	clearServerFields(&r, now, now)
	e := newEntry(k, entryState{Record: r, Upload: newUpload(r.ImageLength, d.PartSize, now)})
	<-e.turn
	defer e.release()
	// The name is taken before the store is asked, so that of two only one goes on, and the
	// quota counts both.
	d.mu.Lock()
	if d.entries[k] != nil {
		d.mu.Unlock()
		return artifact.Metadata{}, &Error{Kind: Exists, Text: "Image already exists: " + k.Name + "; PUT replaces it"}
	}

	err := d.withinRecords(k, r)
	if err == nil {
		err = d.withinQuota(k.Owner, r.ImageLength, 0)
	}

	if err != nil {
		d.mu.Unlock()
		return artifact.Metadata{}, err
	}

	d.entries[k] = e
	d.mu.Unlock()
	if err := d.save(ctx, k, e.stored); err != nil {
		d.dropEntry(e)
		return artifact.Metadata{}, wrapStoreError(err, k.Name, "announced", 0)
	}

	return r, nil
}

// Replace takes a new record for an artifact. With the same length and digest, or no digest,
// it is the same content and only the description changes; otherwise the content is given up
// and the upload begins anew.
func (d *Store) Replace(ctx context.Context, k artifact.Key, r artifact.Metadata) (artifact.Metadata, error) {
	e := d.find(k)
	if e == nil {
		return artifact.Metadata{}, notFoundError(k)
	}
	if sameContent(e.metadata(), r) {
		return d.updateDescription(ctx, k, r)
	}
	if err := d.checkUnused(ctx, k, "replace"); err != nil {
		return artifact.Metadata{}, err
	}
	if err := d.checkRoom(k, r.ImageLength, e.metadata().ImageLength); err != nil {
		return artifact.Metadata{}, err
	}

	e, err := d.seize(ctx, k, errReplaced)
	if err != nil {
		return artifact.Metadata{}, err
	}
	defer e.release()

	ctx = context.WithoutCancel(ctx)
	d.mu.Lock()
	if err = d.withinRecords(k, r); err == nil {
		err = d.withinQuota(k.Owner, r.ImageLength, e.metadata().ImageLength)
	}

	d.mu.Unlock()
	if err != nil {
		return artifact.Metadata{}, err
	}

	old := e.copyState()
	now := d.Now().UTC()
	clearServerFields(&r, old.Record.Created, now)
	e.session.close()
	e.session = nil
	if err := d.update(
		ctx, e,
		func(kp *entryState) { *kp = entryState{Record: r, Upload: newUpload(r.ImageLength, d.PartSize, now)} },
	); err != nil {
		return artifact.Metadata{}, wrapStoreError(err, k.Name, "replaced", 0)
	}

	e.setLive(0)
	d.Changed()
	d.eraseQuietly(ctx, k, old)
	return r, nil
}

// sameContent tells whether a record is of the content that another has.
func sameContent(have, want artifact.Metadata) bool {
	return have.ImageLength == want.ImageLength && (want.SHA256 == "" || have.SHA256 == want.SHA256 || have.SHA256 == "" && !have.Complete)
}

func (d *Store) updateDescription(ctx context.Context, k artifact.Key, r artifact.Metadata) (artifact.Metadata, error) {
	e, err := d.acquire(ctx, k, turnWait)
	if err != nil {
		return artifact.Metadata{}, err
	}
	defer e.release()

	d.mu.Lock()
	err = d.withinRecords(k, r)
	d.mu.Unlock()
	if err != nil {
		return artifact.Metadata{}, err
	}

	err = d.update(context.WithoutCancel(ctx), e, func(kp *entryState) {
		kp.Record.Type, kp.Record.Description, kp.Record.Updated = r.Type, r.Description, d.Now().UTC()
		if kp.Record.SHA256 == "" {
			kp.Record.SHA256 = r.SHA256
		}
	})
	return e.metadata(), wrapStoreError(err, k.Name, "described", 0)
}

// Remove removes an artifact, its record and its upload, and ends a request that writes it.
func (d *Store) Remove(ctx context.Context, k artifact.Key) error {
	if err := d.checkUnused(ctx, k, "remove"); err != nil {
		return err
	}

	e, err := d.seize(ctx, k, errRemoved)
	if err != nil {
		return err
	}
	defer e.release()

	return d.remove(context.WithoutCancel(ctx), e)
}

// remove does it; the caller has the turn. The record says so first: a kill in between must
// not leave bytes from which a record would be made again. On a full disk the bytes go first, and a kill
// in between leaves a record that lacks them, to be removed again.
func (d *Store) remove(ctx context.Context, e *entry) error {
	d.abandon(e)
	old := e.copyState()
	noted := d.changeOrErase(ctx, e, func(kp *entryState) { kp.Removed = true })
	if noted != nil && !errors.Is(noted, ErrFull) {
		return wrapStoreError(noted, e.key.Name, "removed", 0)
	}

	err := d.erase(ctx, e.key, old)
	if err == nil {
		err = d.Backend.Remove(ctx, e.key.Collection.Bucket(), recordPrefix+e.key.Object())
	}

	if err != nil && noted != nil {
		return wrapStoreError(err, e.key.Name, "removed", 0)
	}

	if err != nil {
		// The record says that it is to go; the next start finishes.
		d.Log.Warn("removed artifact leaves something in the store", "artifact", e.key.String(), "error", err)
	}

	d.dropEntry(e)
	return nil
}

// changeOrErase writes a change by which an artifact's bytes are given up. A store that is full has no room
// for a word of it: then they go first.
func (d *Store) changeOrErase(ctx context.Context, e *entry, how func(*entryState)) error {
	err := d.update(ctx, e, how)
	if !errors.Is(err, ErrFull) {
		return err
	}
	if err := d.erase(ctx, e.key, e.copyState()); err != nil {
		return err
	}

	return d.update(ctx, e, how)
}

// erase removes the bytes of what was kept, wherever they are.
func (d *Store) erase(ctx context.Context, k artifact.Key, old entryState) error {
	errs := []error{d.Backend.Remove(ctx, k.Collection.Bucket(), k.Object())}
	if u := old.Upload; u != nil {
		errs = append(errs, d.Backend.Discard(ctx, u.in(k, old.Record.ImageLength)))
	}
	return errors.Join(errs...)
}

// eraseQuietly is erase for what nobody refers to any more; what remains is swept later.
func (d *Store) eraseQuietly(ctx context.Context, k artifact.Key, old entryState) {
	if err := d.erase(ctx, k, old); err != nil {
		d.Log.Warn("given up content leaves something in the store", "artifact", k.String(), "error", err)
	}
}

func (d *Store) dropEntry(e *entry) {
	d.mu.Lock()
	e.removed = true
	delete(d.entries, e.key)
	d.mu.Unlock()
	d.Changed()
}

// checkUnused refuses what would take an artifact away from who uses it.
func (d *Store) checkUnused(ctx context.Context, k artifact.Key, what string) error {
	if d.InUse == nil || d.find(k) == nil {
		return nil
	}

	users, err := d.InUse(ctx, k)
	if err != nil {
		return &Error{
			Kind: Down,
			Text: "the API server of the bootstrap cluster does not answer: who uses " + k.Name + " is not known; try again",
			Err:  err,
		}
	}
	if len(users) == 0 {
		return nil
	}

	text := users[0]
	if len(users) > 1 {
		text = fmt.Sprintf("%s and %d more", users[0], len(users)-1)
	}

	return &Error{Kind: InUse, Text: fmt.Sprintf("%s is in use by %s; it cannot be %sd", k.Name, text, what)}
}

// withinRecords is asked under d.mu. All records are held in memory, whatever they are of.
func (d *Store) withinRecords(k artifact.Key, r artifact.Metadata) error {
	count, text := 1, r.FreeTextLength()
	for other, e := range d.entries {
		if other.Owner == k.Owner && other != k {
			count, text = count+1, text+e.metadata().FreeTextLength()
		}
	}

	switch {
	case count > artifact.MaxRecords:
		return &Error{
			Kind: TooLarge,
			Text: fmt.Sprintf(
				"owner %s has %d artifacts, which is as many as one may have; remove some", k.Owner, count-1,
			),
		}
	case text > artifact.MaxRecordBytes:
		return &Error{
			Kind: TooLarge,
			Text: fmt.Sprintf("the types and descriptions of owner %s have %d bytes with this one, and %d are allowed; shorten them, or remove artifacts", k.Owner, text, artifact.MaxRecordBytes),
		}
	}

	return nil
}

// withinQuota is asked under d.mu. given up is what goes in its place.
func (d *Store) withinQuota(owner string, length, givenUp int64) error {
	if d.Quota == nil || d.Quota(owner) == 0 {
		return nil
	}

	sum, quota := -givenUp, d.Quota(owner)
	for k, e := range d.entries {
		if k.Owner == owner {
			sum += e.metadata().ImageLength
		}
	}

	for w := range d.wholes {
		if w.key.Owner == owner {
			sum += w.record.ImageLength - w.staged
		}
	}

	if d.Staged != nil {
		sum += d.Staged(owner)
	}

	if sum+length > quota {
		return &Error{
			Kind: TooLarge,
			Text: fmt.Sprintf(
				"owner %s may have %d bytes and has %d; %d more are too many", owner, quota, sum, length,
			),
		}
	}

	return nil
}
