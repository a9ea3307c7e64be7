package bringup

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

const (
	recheckDefault = 10 * time.Second
	retryFirst     = 250 * time.Millisecond
	retryWaitCap   = 3 * time.Second  // between two looks at what comes by itself
	retryErrorCap  = 30 * time.Second // between two tries at what went wrong
	idleLeast      = 100 * time.Millisecond
)

// Runner runs a plan. Plan and Log must be set before Run; a Runner runs once.
type Runner struct {
	Plan []Stage
	Log  *slog.Logger

	// Changed is told of every change, one call at a time. It must not wait for the Runner.
	Changed func(Snapshot)

	// Unanswered reports whether an error of Done says only that a question got no answer: the
	// server was too busy, or not there. Such a stage waits and Do is not called, because
	// nothing is known to be missing and acting would add to the load. Nil: no error is of
	// that kind.
	Unanswered func(error) bool

	mu     sync.Mutex
	tracks []track
	state  status.State
	since  time.Time
	was    bool // the whole was ready at some moment since Run began

	tell    sync.Mutex
	recheck chan struct{}
	once    sync.Once
}

// Snapshot is how the plan stands.
type Snapshot struct {
	State  status.State
	Since  time.Time
	Stages []status.Stage
}

// track is what the runner remembers of a stage between two looks; none of it outlives
// the process, and none of it decides whether a fact holds.
type track struct {
	status.Stage
	firstAsked time.Time // first asked
	lastHeld   time.Time // last asked with the answer that the fact holds
	tries      int       // looks since it last held, for the pace of the next

	took   time.Duration // by the last question
	unsure bool          // since it last held, every question went unanswered
}

// Run makes the facts of the plan true in order, then keeps asking and mends what fell.
// It returns nil when ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	r.begin()
	r.notifyChanged()
	for ctx.Err() == nil {
		pause := r.pass(ctx)
		select {
		case <-ctx.Done():
		case <-r.recheckC():
			r.resetAttempts()
		case <-time.After(pause):
		}
	}

	return nil
}

// Recheck makes the runner look at every stage anew, also at one that failed for good: its
// cause may have been mended.
func (r *Runner) Recheck() {
	select {
	case r.recheckC() <- struct{}{}:
	default: // one is pending and will see what we changed
	}
}

// Snapshot returns how the plan stands now.
func (r *Runner) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Snapshot{State: r.state, Since: r.since, Stages: make([]status.Stage, len(r.tracks))}
	for i := range r.tracks {
		s.Stages[i] = r.tracks[i].Stage
	}

	return s
}

func (r *Runner) recheckC() chan struct{} {
	r.once.Do(func() { r.recheck = make(chan struct{}, 1) })
	return r.recheck
}

func (r *Runner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.tracks = make([]track, len(r.Plan))
	for i, s := range r.Plan {
		r.tracks[i].Stage = status.Stage{
			Name:       s.Name,
			Title:      s.Title,
			Fact:       s.Fact,
			AfterReady: s.AfterReady,
			State:      status.StateWaiting,
			Since:      now,
		}
	}

	r.state, r.since = status.StateWorking, now
}

func (r *Runner) resetAttempts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.tracks {
		t := &r.tracks[i]
		t.lastHeld, t.tries = time.Time{}, 0
		if t.State == status.StateFailed {
			t.set(status.StateWorking)
		}
	}
}

// pass looks once at every stage whose answer is due and stops at the first whose fact
// does not hold. It returns how long to wait before the next pass.
func (r *Runner) pass(ctx context.Context) time.Duration {
	idle := recheckDefault
	for i, s := range r.Plan {
		if r.tracks[i].State == status.StateFailed {
			return max(idle, idleLeast) // until Again; what stands before it is still kept true
		}

		recheck := s.Recheck
		if recheck == 0 {
			recheck = recheckDefault
		}

		if left := recheck - time.Since(r.tracks[i].lastHeld); r.tracks[i].State == status.StateReady && left > 0 {
			idle = min(idle, left)
			continue
		}

		idle = min(idle, recheck)
		if err := r.checkStage(ctx, i); err != nil {
			return r.retryDelay(i, err)
		}
		if ctx.Err() != nil {
			return 0
		}
	}
	return max(idle, idleLeast)
}

// checkStage asks a stage and, when its fact does not hold, acts and asks again.
func (r *Runner) checkStage(ctx context.Context, i int) error {
	s := r.Plan[i]
	r.markAsking(i)
	err := r.askDone(ctx, i)
	if err != nil && ctx.Err() == nil && s.Do != nil && !IsWait(err) && !IsPermanent(err) {
		r.markActing(i, err)
		err = s.Do(ctx, func(doing string) { r.setDoing(i, doing) })
		if err == nil {
			err = r.askDone(ctx, i)
		}
	}

	if ctx.Err() != nil {
		return ctx.Err() // whatever it said, it is interrupted
	}

	r.recordResult(i, err)
	return err
}

// askDone asks stage i whether its fact holds, and makes a wait of a question that got no answer.
func (r *Runner) askDone(ctx context.Context, i int) error {
	began := time.Now()
	err := r.Plan[i].Done(ctx)
	unanswered := err != nil && r.Unanswered != nil && r.Unanswered(err)

	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.tracks[i]
	t.took = time.Since(began)
	if !unanswered {
		t.unsure = t.unsure && err == nil
		return err
	}

	t.unsure = t.unsure || t.State == status.StateReady
	return Wait("an answer (last try: %v)", err)
}

// retryDelay is how long to wait after a look at stage i that ended in err: longer each time up to a
// limit, and never less than the question took. Whoever answers slowly has other things to do.
func (r *Runner) retryDelay(i int, err error) time.Duration {
	limit := retryErrorCap
	if IsWait(err) {
		limit = retryWaitCap
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	pause := retryFirst
	for n := 1; n < r.tracks[i].tries && pause < limit; n++ {
		pause *= 2
	}

	pause = min(pause, limit)
	if took := r.tracks[i].took; took > pause {
		pause = took + rand.N(took/4) // so that those who ask the same server drift apart
	}

	return pause
}

func (r *Runner) markAsking(i int) {
	r.mu.Lock()
	t := &r.tracks[i]
	changed := false
	if t.firstAsked.IsZero() {
		t.firstAsked = time.Now()
	}

	if t.State == status.StateWaiting {
		t.set(status.StateWorking)
		changed = true
	}

	r.mu.Unlock()
	if changed {
		r.Log.Debug("stage asked", "stage", t.Name)
		r.notifyChanged()
	}
}

func (r *Runner) markActing(i int, missing error) {
	r.mu.Lock()
	t := &r.tracks[i]
	t.degrade()
	t.Attempts++
	t.Waiting = missing.Error()
	name, attempt, state := t.Name, t.Attempts, t.State
	r.updateState()
	r.mu.Unlock()
	r.Log.Info("stage started", "stage", name, "attempt", attempt, "state", state, "missing", missing)
	r.notifyChanged()
}

func (r *Runner) setDoing(i int, doing string) {
	r.mu.Lock()
	same := r.tracks[i].Waiting == doing
	r.tracks[i].Waiting = doing
	r.mu.Unlock()
	if !same {
		r.notifyChanged()
	}
}

// recordResult records the end of a look.
func (r *Runner) recordResult(i int, err error) {
	r.mu.Lock()
	t := &r.tracks[i]
	before := t.Stage
	now := time.Now()
	switch {
	case err == nil:
		t.lastHeld, t.tries = now, 0
		if t.State != status.StateReady {
			t.set(status.StateReady)
			for j := i + 1; j < len(r.tracks) && !t.unsure; j++ {
				r.tracks[j].lastHeld = time.Time{} // what stands on it may have fallen with it
			}
		}

		t.unsure = false
		if t.Seconds == 0 {
			t.Seconds = now.Sub(t.firstAsked).Seconds()
		}

		t.Waiting, t.Error = "", ""
	case IsPermanent(err):
		t.set(status.StateFailed)
		t.Waiting, t.Error = "", err.Error()
	case IsWait(err):
		t.degrade()
		t.tries++
		t.Waiting = err.Error()
	default:
		t.degrade()
		t.tries++
		t.Waiting, t.Error = "", err.Error()
	}

	after := t.Stage
	r.updateState()
	r.mu.Unlock()
	if after != before {
		r.log(before, after)
		r.notifyChanged()
	}
}

func (r *Runner) log(before, after status.Stage) {
	attrs := []any{"stage", after.Name, "attempts", after.Attempts}
	switch {
	case after.State == status.StateReady:
		r.Log.Info("stage finished", append(attrs, "seconds", after.Seconds)...)
	case after.Error != "" && (after.Error != before.Error || after.State != before.State):
		r.Log.Warn("stage failed", append(attrs, "state", after.State, "error", after.Error)...)
	case after.Waiting != before.Waiting:
		r.Log.Info("stage waits", append(attrs, "state", after.State, "for", after.Waiting)...)
	}
}

// updateState finds the state of the whole from the states of the stages that it needs.
func (r *Runner) updateState() {
	state := status.StateReady
	for i := range r.tracks {
		if r.tracks[i].AfterReady {
			continue
		}

		switch r.tracks[i].State {
		case status.StateReady:
			continue
		case status.StateFailed:
			state = status.StateFailed
		default:
			if state == status.StateReady {
				state = status.StateWorking
			}
		}
	}

	switch {
	case state == status.StateReady:
		r.was = true
	case state == status.StateWorking && r.was:
		state = status.StateDegraded
	}

	if state != r.state {
		r.state, r.since = state, time.Now()
	}
}

func (r *Runner) notifyChanged() {
	if r.Changed == nil {
		return
	}

	r.tell.Lock()
	defer r.tell.Unlock()
	r.Changed(r.Snapshot())
}

func (t *track) set(s status.State) {
	if t.State != s {
		t.State, t.Since = s, time.Now()
	}
}

// degrade notes that the fact does not hold: degraded if it did before.
func (t *track) degrade() {
	switch t.State {
	case status.StateReady, status.StateDegraded:
		t.set(status.StateDegraded)
	default:
		t.set(status.StateWorking)
	}
}
