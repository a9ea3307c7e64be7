// Package sitesource follows a source of the site: a branch of a Git repository, or a bucket, in which the owner of many
// appliances keeps a folder for each, with its site document and with Provisionings and Components. docs/sites.md walks
// through it.
package sitesource

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/rerun"
)

// idleInterval is how often it is seen whether the site names a source.
const idleInterval = 5 * time.Second

// retryInterval is how soon what waits for the API is tried again, however seldom the source is asked.
const retryInterval = time.Minute

// lostInterval is how soon a source that was lost is asked again; each further time the pause is twice as long.
const lostInterval = 15 * time.Second

// Follower follows the source that the site names, and does nothing while it names none. All fields are needed.
type Follower struct {
	Log   *slog.Logger
	Site  func() *site.Site
	Fetch func(ctx context.Context, r Request) (Answer, error)

	Document func() ([]byte, error)                   // the site document that holds
	Replace  func(text []byte, base, by string) error // has another one hold, unless the one that holds is not of the digest base
	Digest   func(text []byte) string

	// Objects has exactly these objects of a source in the API; API.Apply does.
	Objects func(ctx context.Context, source string, all []*unstructured.Unstructured) error

	Path    string // file of the record
	Now     func() time.Time
	Changed func() // the status is another one

	mu     sync.Mutex
	now    *record       // nil while no source is followed
	kicked chan struct{} // made when it is needed

	held    Answer  // newest revision of the source, until all of it is applied
	heldFor Request // what held is the answer to
}

// Run follows until ctx ends, as soon as ready says that networks and the place of the record are there.
func (f *Follower) Run(ctx context.Context, ready func() bool) error {
	if !rerun.Await(ctx, ready) {
		return nil
	}
	losses := 0
	for {
		pause := idleInterval
		if follow := f.Site().WithDefaults().Appliance.Follow; follow == nil {
			f.set(nil)
		} else {
			pause = time.Duration(follow.Interval)
			if err := f.step(ctx, follow); err != nil && ctx.Err() == nil {
				return err
			}
			switch f.Status().State {
			case status.SourceWorking:
				pause = min(pause, retryInterval)
			case status.SourceLost:
				pause = lostPause(losses, pause)
				losses++
			}
		}
		if now := f.Status(); now == nil || now.State != status.SourceLost {
			losses = 0
		}

		select {
		case <-ctx.Done():
			return nil
		case <-f.kick():
		case <-time.After(pause):
		}
	}
}

// lostPause is how long a source that was lost so often before is left alone, interval at most. It is another one for each
// of many appliances, which would ask a source that is back all at once.
func lostPause(losses int, interval time.Duration) time.Duration {
	pause := lostInterval
	for ; losses > 0 && pause < interval; losses-- {
		pause *= 2
	}
	pause = min(pause, interval)
	return pause - rand.N(pause/4+1)
}

// Recheck has the source asked now.
func (f *Follower) Recheck() {
	select {
	case f.kick() <- struct{}{}:
	default:
	}
}

func (f *Follower) kick() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kicked == nil {
		f.kicked = make(chan struct{}, 1)
	}
	return f.kicked
}

// Status is how the source stands; nil if none is followed.
func (f *Follower) Status() *status.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		return nil
	}
	return f.now.status()
}

func (f *Follower) set(r *record) {
	f.mu.Lock()
	wasThere := f.now != nil
	f.now = r
	f.mu.Unlock()
	if r != nil || wasThere {
		f.Changed()
	}
}
