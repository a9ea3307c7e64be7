package artifact

import (
	"context"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/artifact/depot"
)

// tellEvery is how often Told and Push are told although nothing changed: offsets move meanwhile, and
// what failed is tried again.
const tellEvery = 30 * time.Second

// change notes that there is something to tell.
func (a *Agent) change() {
	for _, c := range a.changed {
		select {
		case c <- struct{}{}:
		default: // it is noted already
		}
	}
}

// tell keeps Told and Push up to date until ctx ends.
func (a *Agent) tell(ctx context.Context, d *depot.Depot) {
	var all sync.WaitGroup
	defer all.Wait()
	if a.Told != nil {
		all.Go(func() {
			follow(ctx, a.changed[0], func() {
				complete := map[artifact.Collection][]artifact.Record{}
				for _, c := range artifact.Collections() {
					complete[c] = d.Complete(c)
				}
				if err := a.Told(complete, d.Usage()); err != nil {
					a.Log.Error("artifacts are not published", "error", err)
				}
			})
		})
	}
	if a.Push != nil {
		all.Go(func() {
			follow(ctx, a.changed[1], func() {
				if err := a.Push(ctx, d); err != nil && ctx.Err() == nil {
					a.Log.Error("container images are not served", "error", err)
				}
			})
		})
	}
}

// follow calls do at once, at every change and every now and then, until ctx ends.
func follow(ctx context.Context, changed <-chan struct{}, do func()) {
	tick := time.NewTicker(tellEvery)
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
