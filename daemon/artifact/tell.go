package artifact

import (
	"context"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/artifact/depot"
)

// tellEvery is how often Told is told although nothing changed: offsets move meanwhile, and
// what failed is tried again.
const tellEvery = 30 * time.Second

// change notes that there is something to tell.
func (a *Agent) change() {
	select {
	case a.changed <- struct{}{}:
	default: // it is noted already
	}
}

// tell keeps Told up to date until ctx ends.
func (a *Agent) tell(ctx context.Context, d *depot.Depot) {
	if a.Told == nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		complete := map[artifact.Collection][]artifact.Record{}
		for _, c := range artifact.Collections() {
			complete[c] = d.Complete(c)
		}
		if err := a.Told(complete, d.Usage()); err != nil {
			a.Log.Error("artifacts are not published", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
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
