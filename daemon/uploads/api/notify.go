package api

import (
	"context"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// publishInterval is how often Publish and Push are called although nothing changed: offsets move meanwhile, and
// what failed is tried again.
const publishInterval = 30 * time.Second

// notifyChanged notes that there is something to tell.
func (a *Agent) notifyChanged() {
	for _, c := range a.changed {
		select {
		case c <- struct{}{}:
		default: // it is noted already
		}
	}
}

// publishChanges calls Publish and Push at every change until ctx ends.
func (a *Agent) publishChanges(ctx context.Context, d *blobs.Store) {
	var all sync.WaitGroup
	defer all.Wait()
	if a.Publish != nil {
		all.Go(func() {
			runOnChange(ctx, a.changed[0], func() {
				complete := map[artifact.Collection][]artifact.Metadata{}
				for _, c := range artifact.Collections() {
					complete[c] = d.Complete(c)
				}
				if err := a.Publish(complete, d.Usage()); err != nil {
					a.Log.Error("artifacts are not published", "error", err)
				}
			})
		})
	}

	if a.Push != nil {
		all.Go(func() {
			runOnChange(ctx, a.changed[1], func() {
				if err := a.Push(ctx, d); err != nil && ctx.Err() == nil {
					a.Log.Error("container images are not served", "error", err)
				}
			})
		})
	}
}

// runOnChange calls do at once, at every change and every now and then, until ctx ends.
func runOnChange(ctx context.Context, changed <-chan struct{}, do func()) {
	tick := time.NewTicker(publishInterval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

func count(usage map[artifact.Collection]artifact.Usage) (n int) {
	for _, u := range usage {
		n += u.Artifacts
	}
	return n
}
