package blobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
)

// load makes the entries of what is in the store, and puts right what does not fit together.
func (d *Store) load(ctx context.Context) error {
	for _, c := range artifact.Collections() {
		if err := d.Backend.MakeBucket(ctx, c.Bucket()); err != nil {
			return err
		}
		if err := d.loadCollection(ctx, c); err != nil {
			return fmt.Errorf("load %s: %w", c, err)
		}
	}
	return nil
}

func (d *Store) loadCollection(ctx context.Context, c artifact.Collection) error {
	objects := map[artifact.Key]Object{}
	var records []artifact.Key
	err := d.Backend.List(ctx, c.Bucket(), "", func(o Object) error {
		if name, ok := strings.CutPrefix(o.Name, recordPrefix); ok {
			if k, ok := parseObject(c, name); ok {
				records = append(records, k)
			}
		} else if k, ok := parseObject(c, o.Name); ok {
			objects[k] = o
		}
		return nil
	})
	if err != nil {
		return err
	}

	for _, k := range records {
		o, there := objects[k]
		read, err := d.loadRecord(ctx, k, o, there)
		if read {
			delete(objects, k)
		}

		if err := d.handleLoadError(ctx, k, err); err != nil {
			return err
		}
	}

	for k := range objects {
		if err := d.handleLoadError(ctx, k, d.rebuild(ctx, k)); err != nil {
			return err
		}
	}

	return nil
}

// loadRecord takes in an artifact by its record, unless that cannot be read and there is an object of which
// it can be made anew.
func (d *Store) loadRecord(ctx context.Context, k artifact.Key, o Object, there bool) (read bool, err error) {
	get := func() ([]byte, error) {
		return d.Backend.Get(ctx, k.Collection.Bucket(), recordPrefix+k.Object(), maxStateSize)
	}
	data, err := get()
	if errors.Is(err, ErrDown) && d.bucketAnswers(ctx, k) {
		data, err = get() // it may have come back just now
	}

	switch {
	case errors.Is(err, ErrNotExist):
		return false, nil // it went meanwhile
	case err != nil && there && !errors.Is(err, ErrDown) && ctx.Err() == nil:
		d.Log.Error("record cannot be read; it is made again of its object", "artifact", k.String(), "error", err)
		return false, nil
	case err != nil:
		return true, err
	}

	var kp entryState
	if err := json.Unmarshal(data, &kp); err != nil || !kp.isValid(k) {
		d.Log.Error(
			"record cannot be read; it is made again if its object is there", "artifact", k.String(), "error", err,
		)
		return false, nil
	}

	replaced, err := d.settleReplacing(ctx, k, &kp)
	if err != nil || replaced {
		return err != nil, err
	}

	return true, d.admit(ctx, newEntry(k, kp), o, there)
}

// handleLoadError looks at what came of taking in one artifact. What is wrong with one takes nothing away from the
// others: its name stays taken, and it can be seen, removed and replaced. A store that does not answer at
// all is waited for.
func (d *Store) handleLoadError(ctx context.Context, k artifact.Key, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || errors.Is(err, ErrDown) && !d.bucketAnswers(ctx, k) {
		return err
	}

	d.Log.Error("artifact is damaged", "artifact", k.String(), "error", err)
	d.mu.Lock()
	d.entries[k] = newEntry(k, entryState{Record: artifact.Metadata{
		Owner:       k.Owner,
		ClusterName: k.Cluster,
		ImageName:   k.Name,
		Damaged:     "it could not be taken in when the agent started, whose log says why; remove it or replace it",
	}})
	d.mu.Unlock()
	return nil
}

// bucketAnswers tells whether the store answers to anything in an artifact's bucket.
func (d *Store) bucketAnswers(ctx context.Context, k artifact.Key) bool {
	return d.Backend.List(ctx, k.Collection.Bucket(), recordPrefix+k.Object(), func(Object) error { return nil }) == nil
}

// isValid tells whether a record can be gone on with: it was written by us, but a store that
// others can write to may hold anything.
func (kp entryState) isValid(k artifact.Key) bool {
	r, u := kp.Record, kp.Upload
	named := artifact.Key{Collection: k.Collection, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName} == k
	if kp.Removed && u == nil {
		return named // also of one that was damaged
	}

	fits := named && r.ImageLength > 0 && r.ImageLength <= artifact.MaxLength && r.ImageOffset >= 0 && r.ImageOffset <= r.ImageLength
	if r.Complete || u == nil {
		return fits && r.Complete && u == nil && r.ImageOffset == r.ImageLength
	}

	_, err := hashFrom(u.Hash)
	_, err2 := hashFrom(u.PartHash)
	return fits && err == nil && err2 == nil && u.PartSize >= MinPart && u.Serial != "" && !strings.Contains(
		u.Serial, "/",
	)
}

// admit takes an entry in, after comparing it with the object of its name.
func (d *Store) admit(ctx context.Context, e *entry, o Object, there bool) error {
	r := e.stored.Record
	switch {
	case e.stored.Removed:
		d.eraseQuietly(ctx, e.key, e.stored)
		return d.Backend.Remove(ctx, e.key.Collection.Bucket(), recordPrefix+e.key.Object())
	case r.Complete && there && o.Size != r.ImageLength: // somebody wrote it by S3 itself
		return d.rebuild(ctx, e.key)
	case r.Complete && !there:
		d.Log.Error(
			"the store does not have a complete artifact any more; it must be sent again", "artifact", e.key.String(),
		)
		if _, err := d.restart(ctx, e); err != nil {
			return err
		}
	case !r.Complete && there:
		there, err := d.objectExists(ctx, e, *e.stored.Upload, r.ImageLength)
		if err != nil {
			return err
		}
		if !there { // of an upload that was replaced
			if err := d.Backend.Remove(ctx, e.key.Collection.Bucket(), e.key.Object()); err != nil {
				return err
			}
		}
	}

	d.mu.Lock()
	d.entries[e.key] = e
	d.mu.Unlock()
	return nil
}

// rebuild makes the record of an object that has none.
func (d *Store) rebuild(ctx context.Context, k artifact.Key) error {
	o, err := d.Backend.Stat(ctx, k.Collection.Bucket(), k.Object())
	if err != nil {
		return err
	}
	if o.Size == 0 || o.Size > artifact.MaxLength {
		return nil // nothing that could have been announced
	}

	e := newEntry(k, entryState{Record: fromObject(k, o)})
	switch err := d.save(ctx, k, e.stored); {
	case errors.Is(err, ErrFull): // nothing is lost by that: it is made again at the next start
		d.Log.Warn("no room for the record of an object", "artifact", k.String(), "error", err)
	case err != nil:
		return err
	}

	d.Log.Info("record made of its object", "artifact", k.String(), "octets", o.Size)
	d.mu.Lock()
	d.entries[k] = e
	d.mu.Unlock()
	return nil
}
