// Package blobs keeps artifacts: their records, their unfinished uploads and their bytes. All of it is in a backend: a
// folder, or an S3 server. A Store holds nothing besides, except what came in during the last second of an upload; one
// that is opened anew goes on where another was killed.
//
// In the bucket of a collection lie
//
//	OWNER/CLUSTER/NAME                       the bytes, once they are all there
//	.firstlight/records/OWNER/CLUSTER/NAME   the record and the state of its upload, JSON
//
// and what the backend has of unfinished uploads. docs/artifacts.md walks through one.
package blobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

// PartSize is what a part has unless the artifact would need more than S3's 10,000 of them.
const PartSize = 8 << 20

// Times, unless Config says otherwise.
const (
	Expiry     = 72 * time.Hour   // an upload that nobody continued for so long is removed
	sessionTTL = 5 * time.Minute  // files of an upload that nobody continues are closed
	SaveEvery  = time.Second      // a long request writes its state so often, at the end of a part
	settleTime = 10 * time.Minute // to bring what was received into the store when a request ends
	turnWait   = 5 * time.Second  // for another request that ends
	keepIdle   = time.Hour        // the state says so often how long an upload has waited
)

// Config is what a Store is made of.
type Config struct {
	Backend   Backend
	Scratch   string                                                // a folder on the disk whose room is asked; see Local
	Local     bool                                                  // the store is on the file system of Scratch: its room is asked before an upload is announced
	Disk      func() (free, size int64, err error)                  // octets of that file system; nil: it is asked
	Pushed    bool                                                  // container images go to a registry on it: they need their room twice
	Quota     func(owner string) int64                              // octets that an owner may announce in all; 0, or nil: any
	Staged    func(owner string) int64                              // octets of an owner that count besides, on the disk but not in the store; may be nil
	InUse     func(context.Context, artifact.Key) ([]string, error) // who uses an artifact now; nil: nobody
	Changed   func()                                                // called, and not to be kept waiting, after an artifact was completed, given up or removed; may be nil
	Expiry    time.Duration                                         // 0 is Expiry
	SaveEvery time.Duration                                         // 0 is SaveEvery
	PartSize  int64                                                 // 0 is PartSize; at least MinPart
	Now       func() time.Time                                      // nil is time.Now
	Uptime    func() time.Duration                                  // of something that no clock is set by; nil: the process
	Log       *slog.Logger
}

// Store keeps artifacts. Its methods may be called from anywhere; they return *Error for
// whatever is the caller's or the store's matter.
type Store struct {
	Config

	mu      sync.Mutex
	entries map[artifact.Key]*entry
	wholes  map[*whole]bool
	swept   time.Duration // Uptime at the last Sweep
}

// entry is one artifact. Whoever changes it has its turn; kept and live are guarded by mu so
// that others may look meanwhile.
type entry struct {
	key  artifact.Key
	turn chan struct{} // holds one token

	mu      sync.Mutex
	stored  entryState
	live    int64                   // octets received, kept or not
	cancel  context.CancelCauseFunc // of the request that has the turn and may be interrupted
	removed bool

	// Under the turn.
	session *session
	touched time.Time     // when idle begins to count
	idle    time.Duration // kept once an hour
}

// Open reads what the store holds. It waits for a store that is down as long as the store
// was told to, and removes what a kill left behind.
func Open(ctx context.Context, c Config) (*Store, error) {
	d := &Store{Config: c, entries: map[artifact.Key]*entry{}, wholes: map[*whole]bool{}}
	if d.Expiry == 0 {
		d.Expiry = Expiry
	}

	if d.SaveEvery == 0 {
		d.SaveEvery = SaveEvery
	}

	if d.PartSize == 0 {
		d.PartSize = PartSize
	}

	if d.Now == nil {
		d.Now = time.Now
	}

	if d.Uptime == nil {
		began := time.Now()
		d.Uptime = func() time.Duration { return time.Since(began) } // monotonic
	}

	d.swept = d.Uptime()
	if d.Disk == nil {
		d.Disk = func() (int64, int64, error) { return diskSpace(d.Scratch) }
	}

	if d.Changed == nil {
		d.Changed = func() {}
	}

	return d, d.load(ctx)
}

// Get returns a record. The offset is what was received, which during a request may be more
// than what a kill would leave.
func (d *Store) Get(k artifact.Key) (artifact.Metadata, error) {
	e := d.find(k)
	if e == nil {
		return artifact.Metadata{}, notFoundError(k)
	}
	return e.metadata(), nil
}

// List returns up to limit records of a collection whose names come after a name, fewer of long ones, and
// whether there are more.
func (d *Store) List(
	c artifact.Collection,
	owner, cluster, after string,
	limit int,
) (page []artifact.Metadata, more bool) {
	var found []*entry
	d.mu.Lock()
	for k, e := range d.entries {
		if k.Collection == c && k.Owner == owner && k.Cluster == cluster && k.Name > after {
			found = append(found, e)
		}
	}

	d.mu.Unlock()
	slices.SortFunc(found, func(a, b *entry) int { return cmp.Compare(a.key.Name, b.key.Name) })
	text := 0
	for _, e := range found {
		r := e.metadata()
		if text += r.FreeTextLength(); len(page) == limit || len(page) > 0 && text > artifact.MaxPageBytes {
			return page, true
		}
		page = append(page, r)
	}

	return page, false
}

// Complete returns the records of all artifacts of a collection that are whole.
func (d *Store) Complete(c artifact.Collection) (all []artifact.Metadata) {
	for _, e := range d.allEntries() {
		if r := e.metadata(); e.key.Collection == c && r.Complete {
			all = append(all, r)
		}
	}
	return all
}

// Usage sums up all collections, for metrics and the status.
func (d *Store) Usage() map[artifact.Collection]artifact.Usage {
	sums := map[artifact.Collection]artifact.Usage{}
	for _, e := range d.allEntries() {
		r, u := e.metadata(), sums[e.key.Collection]
		u.Artifacts++
		u.Octets += r.ImageOffset
		u.Announced += r.ImageLength
		if r.Complete {
			u.Complete++
		}

		sums[e.key.Collection] = u
	}
	return sums
}

func (d *Store) find(k artifact.Key) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[k]
}

func (d *Store) allEntries() []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.entries))
}

func newEntry(k artifact.Key, kp entryState) *entry {
	e := &entry{key: k, turn: make(chan struct{}, 1), stored: kp, live: kp.Record.ImageOffset}
	e.turn <- struct{}{}
	return e
}

// metadata is what others see.
func (e *entry) metadata() artifact.Metadata {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.stored.Record
	r.ImageOffset = e.live
	return r
}

func (e *entry) setLive(n int64) {
	e.mu.Lock()
	e.live = n
	e.mu.Unlock()
}

// acquire waits for the turn of an artifact that exists; the caller gives it back.
func (d *Store) acquire(ctx context.Context, k artifact.Key, wait time.Duration) (*entry, error) {
	e := d.find(k)
	if e == nil {
		return nil, notFoundError(k)
	}

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-e.turn:
	case <-timer.C:
		return nil, &Error{
			Kind:   Busy,
			Offset: e.metadata().ImageOffset,
			Text:   "another request is writing " + k.Name + "; wait for its end, or a minute after it fell silent",
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	if e.removed {
		e.release()
		return nil, notFoundError(k)
	}

	return e, nil
}

func (e *entry) release() { e.turn <- struct{}{} }

// seize interrupts the request that has the turn, for good, and takes it.
func (d *Store) seize(ctx context.Context, k artifact.Key, why error) (*entry, error) {
	e := d.find(k)
	if e == nil {
		return nil, notFoundError(k)
	}
	for {
		e.mu.Lock()
		if e.cancel != nil {
			e.cancel(why)
		}

		e.mu.Unlock()
		got, err := d.acquire(ctx, k, time.Second)
		var busy *Error
		if errors.As(err, &busy) && busy.Kind == Busy {
			continue // it settles what it received
		}

		return got, err
	}
}

// Kind says what is wrong, so that a caller can choose a status.
type Kind int

const (
	NotFound    Kind = iota
	Exists           // there is one of that name
	WrongOffset      // an upload goes on elsewhere; see Offset
	WrongLength      // more is sent than remains
	Completed        // an upload is complete
	Unfinished       // an upload is not complete
	Busy             // another request writes
	InUse            // somebody uses it
	Refused          // the content is not what it must be
	TooLarge         // over a limit or quota
	Full             // no room
	Down             // the store does not answer
	Interrupted      // another request removed or replaced it
	Cut              // the body did not come to its end
	Damaged          // its record cannot be read
)

// Error is a refusal in one sentence.
type Error struct {
	Kind   Kind
	Text   string
	Offset int64 // where an upload may go on, if that is the matter
	Err    error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

func (e *Error) Unwrap() error { return e.Err }

func notFoundError(k artifact.Key) error {
	return &Error{
		Kind: NotFound,
		Text: "there is no " + k.Name + " in " + string(k.Collection) + " of " + k.Owner + "/" + k.Cluster,
	}
}

// wrapStoreError says of what the store did not do what could not be done with an artifact ("announced"); offset is
// where the upload may go on then. What is neither a full store nor one that does not answer is nothing a
// client could do something about.
func wrapStoreError(err error, name, done string, offset int64) error {
	var known *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrFull):
		return &Error{
			Kind:   Full,
			Text:   name + " could not be " + done + ": there is no room left; what was stored before is kept",
			Offset: offset,
			Err:    err,
		}
	case errors.Is(err, ErrDown):
		return &Error{
			Kind:   Down,
			Text:   "the store does not answer: " + name + " could not be " + done + "; try again",
			Offset: offset,
			Err:    err,
		}
	}
	return fmt.Errorf("%s could not be %s: %w", name, done, err)
}
