package depot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/artifact/store"
)

// load makes the entries of what is in the store, and puts right what does not fit together.
func (d *Depot) load(ctx context.Context) error {
	for _, c := range artifact.Collections() {
		if err := d.Store.MakeBucket(ctx, c.Bucket()); err != nil {
			return err
		}
		if err := d.loadCollection(ctx, c); err != nil {
			return fmt.Errorf("load %s: %w", c, err)
		}
	}
	return nil
}

func (d *Depot) loadCollection(ctx context.Context, c artifact.Collection) error {
	objects := map[artifact.Key]store.Object{}
	var records []artifact.Key
	err := d.Store.List(ctx, c.Bucket(), "", func(o store.Object) error {
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
		data, err := d.Store.Get(ctx, c.Bucket(), recordPrefix+k.Object(), maxKept)
		if err != nil {
			return err
		}
		var kp kept
		if err := json.Unmarshal(data, &kp); err != nil || !kp.sound(k) {
			d.Log.Error("record cannot be read; it is made anew if its object is there", "artifact", k.String(), "error", err)
			continue
		}
		o, there := objects[k]
		delete(objects, k)
		if err := d.admit(ctx, newEntry(k, kp), o, there); err != nil {
			return err
		}
	}
	for k := range objects {
		if err := d.rebuild(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

// sound tells whether a record can be gone on with: it was written by us, but a store that
// others can write to may hold anything.
func (kp kept) sound(k artifact.Key) bool {
	r, u := kp.Record, kp.Upload
	fits := artifact.Key{Collection: k.Collection, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName} == k &&
		r.ImageLength > 0 && r.ImageLength <= artifact.MaxLength && r.ImageOffset >= 0 && r.ImageOffset <= r.ImageLength
	if r.Complete || u == nil {
		return fits && r.Complete && u == nil && r.ImageOffset == r.ImageLength
	}
	_, err := hashFrom(u.Hash)
	_, err2 := hashFrom(u.PartHash)
	return fits && err == nil && err2 == nil && u.PartSize >= store.MinPart && u.Serial != "" && !strings.Contains(u.Serial, "/")
}

// admit takes an entry in, after comparing it with the object of its name.
func (d *Depot) admit(ctx context.Context, e *entry, o store.Object, there bool) error {
	r := e.kept.Record
	switch {
	case e.kept.Removed:
		d.drop(ctx, e.key, e.kept)
		return d.Store.Remove(ctx, e.key.Collection.Bucket(), recordPrefix+e.key.Object())
	case r.Complete && there && o.Size != r.ImageLength: // somebody wrote it by S3 itself
		return d.rebuild(ctx, e.key)
	case r.Complete && !there:
		d.Log.Error("the store does not have a complete artifact any more; it must be sent again", "artifact", e.key.String())
		if _, err := d.restart(ctx, e); err != nil {
			return err
		}
	case !r.Complete && there:
		there, err := d.isThere(ctx, e, *e.kept.Upload, r.ImageLength)
		if err != nil {
			return err
		}
		if !there { // of an upload that was replaced
			if err := d.Store.Remove(ctx, e.key.Collection.Bucket(), e.key.Object()); err != nil {
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
func (d *Depot) rebuild(ctx context.Context, k artifact.Key) error {
	o, err := d.Store.Stat(ctx, k.Collection.Bucket(), k.Object())
	if err != nil {
		return err
	}
	if o.Size == 0 || o.Size > artifact.MaxLength {
		return nil // nothing that could have been announced
	}
	e := newEntry(k, kept{Record: fromObject(k, o)})
	if err := d.save(ctx, k, e.kept); err != nil {
		return err
	}
	d.Log.Info("record made of its object", "artifact", k.String(), "octets", o.Size)
	d.mu.Lock()
	d.entries[k] = e
	d.mu.Unlock()
	return nil
}
