package blobs

import (
	"context"
	"errors"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
)

// Run looks after what no request does, until ctx ends: it completes uploads whose last
// request was cut off after the last byte, removes those that nobody continued, closes
// scratch files and removes what a kill left in the store.
func (d *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for round := 0; ; round++ {
		d.Sweep(ctx)
		if round%60 == 0 {
			d.sweepStore(ctx)
		}
		select {
		case <-ctx.Done():
			d.closeAll()
			return nil
		case <-tick.C:
		}
	}
}

// Sweep looks after every artifact that no request is writing. One Sweep ends before the next begins.
func (d *Store) Sweep(ctx context.Context) {
	up := d.Uptime()
	passed := up - d.swept
	d.swept = up
	for _, e := range d.allEntries() {
		if ctx.Err() != nil {
			return
		}
		if r := e.metadata(); r.Complete && mustRead(e.key, r) {
			if err := d.readStored(ctx, e); err != nil {
				d.Log.Warn("what an object holds is not known yet", "artifact", e.key.String(), "error", err)
			}
			continue
		}
		select {
		case <-e.turn:
		default:
			continue
		}
		if err := d.sweepEntry(ctx, e, passed); err != nil && ctx.Err() == nil {
			d.Log.Warn("upload is left as it is for now", "artifact", e.key.String(), "error", err)
		}
		e.release()
	}
}

func (d *Store) sweepEntry(ctx context.Context, e *entry, passed time.Duration) error {
	kp := e.copyState()
	if e.removed || kp.Upload == nil {
		return nil
	}
	if e.touched.Equal(kp.Upload.Touched) {
		e.idle += passed
	} else {
		e.touched, e.idle = kp.Upload.Touched, kp.Upload.Idle
	}
	idle := e.idle
	if e.session != nil && idle > sessionTTL {
		d.abandon(e)
	}
	switch {
	case kp.Record.ImageOffset == kp.Record.ImageLength:
		return d.finish(ctx, e)
	case idle > d.Expiry:
		d.Log.Info("upload expired", "artifact", e.key.String(), "octets", kp.Record.ImageOffset, "announced", kp.Record.ImageLength, "idle", idle.Round(time.Minute))
		return d.remove(ctx, e)
	case idle-kp.Upload.Idle >= keepIdle:
		return d.update(ctx, e, func(kp *entryState) { kp.Upload.Idle = idle })
	}
	return nil
}

// sweepStore removes fragments and uploads that no state names. Those of an upload that
// begins just now are told by their age.
func (d *Store) sweepStore(ctx context.Context) {
	for _, c := range artifact.Collections() {
		if err := d.sweepBucket(ctx, c); err != nil && ctx.Err() == nil {
			d.Log.Warn("store is not swept", "bucket", c.Bucket(), "error", err)
		}
	}
}

func (d *Store) sweepBucket(ctx context.Context, c artifact.Collection) error {
	serials, ids := map[string]bool{}, map[string]bool{}
	for _, e := range d.allEntries() {
		if u := e.copyState().Upload; u != nil {
			serials[u.Serial], ids[u.ID] = true, true
		}
	}
	old := func(t time.Time) bool { return d.Now().Sub(t) > time.Hour }
	err := d.Store.List(ctx, c.Bucket(), fragmentPrefix, func(o s3.Object) error {
		serial, _, _ := strings.Cut(strings.TrimPrefix(o.Name, fragmentPrefix), "/")
		if serials[serial] || !old(o.Modified) {
			return nil
		}
		return d.Store.Remove(ctx, c.Bucket(), o.Name)
	})
	uploads, err2 := d.Store.Uploads(ctx, c.Bucket())
	for _, u := range uploads {
		// Others may upload into the bucket by S3 itself; theirs are given as long as ours.
		if ids[u.ID] || d.Now().Sub(u.Started) <= max(d.Expiry, time.Hour) {
			continue
		}
		err2 = errors.Join(err2, d.Store.Abort(ctx, c.Bucket(), u.Object, u.ID))
	}
	return errors.Join(err, err2)
}

// closeAll gives back the scratch files of uploads at rest.
func (d *Store) closeAll() {
	for _, e := range d.allEntries() {
		select {
		case <-e.turn:
			e.session.close()
			e.session = nil
			e.release()
		default:
		}
	}
}
