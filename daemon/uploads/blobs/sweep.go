package blobs

import (
	"context"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

// Run looks after what no request does, until ctx ends: it completes uploads whose last
// request was cut off after the last byte, removes those that nobody continued, closes
// files and removes what a kill left in the store.
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
		d.Log.Info(
			"upload expired", "artifact", e.key.String(), "octets", kp.Record.ImageOffset, "announced",
			kp.Record.ImageLength, "idle", idle.Round(time.Minute),
		)
		return d.remove(ctx, e)
	case idle-kp.Upload.Idle >= keepIdle:
		return d.update(ctx, e, func(kp *entryState) { kp.Upload.Idle = idle })
	}

	return nil
}

// sweepStore removes what no state names of fragments and uploads.
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

	d.mu.Lock()
	for w := range d.wholes {
		serials[w.upload.Serial], ids[w.upload.ID] = true, true
	}
	d.mu.Unlock()

	named := func(serial, id string) bool { return serials[serial] || id != "" && ids[id] }
	return d.Backend.Sweep(ctx, c.Bucket(), named, d.Now(), max(d.Expiry, SweepAge))
}

// closeAll closes the files of uploads at rest.
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
