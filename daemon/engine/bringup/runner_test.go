package bringup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

var quiet = slog.New(slog.DiscardHandler)

// cell is a variable that a test changes under a running plan.
type cell[T any] struct {
	mu sync.Mutex
	v  T
}

func (c *cell[T]) set(v T) { c.mu.Lock(); defer c.mu.Unlock(); c.v = v }
func (c *cell[T]) get() T  { c.mu.Lock(); defer c.mu.Unlock(); return c.v }

// start runs a runner inside a synctest bubble and ends it with the test.
func start(t *testing.T, plan []Stage) *Runner {
	r := &Runner{Plan: plan, Log: quiet}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	synctest.Wait()
	return r
}

func TestAFallenFactIsNoticedAndMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		r := start(t, w.plan(t))
		require.Equal(t, status.StateReady, r.Snapshot().State)
		w.lose(1)
		time.Sleep(recheckDefault + time.Second)
		synctest.Wait()
		assert.Equal(t, []int{1, 2, 1}, w.dos)
		assert.Equal(t, status.StateReady, r.Snapshot().State)
		assert.Equal(t, 2, r.Snapshot().Stages[1].Attempts)
	})
}

func TestAFallenFactIsNoticedWhileALaterStageWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		plan := append(w.plan(t), Stage{Name: "never", Done: func(context.Context) error { return Wait("a link") }})
		r := start(t, plan)
		require.Equal(t, status.StateWorking, r.Snapshot().State)
		w.lose(0)
		time.Sleep(recheckDefault + retryWaitCap + time.Second)
		synctest.Wait()
		assert.Equal(t, []int{2}, w.dos)
		assert.Equal(t, "a link", r.Snapshot().Stages[1].Waiting)
	})
}

// TestAStageIsAskedAfterItActed: that it acted without an error is no proof that its fact holds.
func TestAStageIsAskedAfterItActed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		missing := errors.New("missing")
		r := start(t, []Stage{{
			Name: "hopeful",
			Done: func(context.Context) error { return missing },
			Do:   func(context.Context, Report) error { return nil },
		}})
		time.Sleep(time.Minute)
		s := r.Snapshot().Stages[0]
		assert.Equal(t, status.StateWorking, s.State)
		assert.Equal(t, "missing", s.Error)
	})
}

// TestWhatStandsOnAFallenFactIsAskedAgain as soon as that is mended, long before its own time.
func TestWhatStandsOnAFallenFactIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		asked := 0
		plan := append(w.plan(t), Stage{
			Name:    "upper",
			Recheck: 24 * time.Hour,
			Done:    func(context.Context) error { asked++; return nil },
		})
		start(t, plan)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, asked)
		w.lose(0)
		time.Sleep(recheckDefault + time.Second)
		synctest.Wait()
		assert.Equal(t, 2, asked)
	})
}

func TestDegradedWhileAFactThatHeldIsBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken cell[error]
		r := start(t, []Stage{{Name: "a", Done: func(context.Context) error { return broken.get() }}})
		require.Equal(t, status.StateReady, r.Snapshot().State)
		broken.set(errors.New("gone"))
		time.Sleep(recheckDefault + time.Second)
		s := r.Snapshot()
		assert.Equal(t, status.StateDegraded, s.State)
		assert.Equal(t, status.StateDegraded, s.Stages[0].State)
		assert.Equal(t, "gone", s.Stages[0].Error)
	})
}

func TestPermanentErrorStopsUntilAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, later := 0, 0
		bad := cell[error]{v: Permanent(errors.New("site.yaml:3: unknown key"))}
		r := start(t, []Stage{
			{Name: "site-read", Done: func(context.Context) error { asked++; return bad.get() }, Do: func(context.Context, Report) error {
				t.Error("acted on what only a person can mend")
				return nil
			}},
			{Name: "later", Done: func(context.Context) error { later++; return nil }},
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		s := r.Snapshot()
		assert.Equal(t, status.StateFailed, s.State)
		assert.Equal(t, "site.yaml:3: unknown key", s.Stages[0].Error)
		assert.Equal(t, status.StateWaiting, s.Stages[1].State)
		assert.Equal(t, 1, asked)
		assert.Zero(t, later)
		bad.set(nil)
		r.Recheck()
		synctest.Wait()
		assert.Equal(t, status.StateReady, r.Snapshot().State)
		assert.Empty(t, r.Snapshot().Stages[0].Error)
	})
}

func TestPaceOfRetries(t *testing.T) {
	for _, c := range []struct {
		name       string
		err        error
		limit      time.Duration
		doesItself bool
	}{
		{"what comes by itself is looked at often", Wait("node"), retryWaitCap, false},
		{"what went wrong is tried more and more rarely", errors.New("broken"), retryErrorCap, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []time.Time
				acted := 0
				start(t, []Stage{{Name: "a",
					Done: func(context.Context) error { asked = append(asked, time.Now()); return c.err },
					Do:   func(context.Context, Report) error { acted++; return c.err },
				}})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				require.Greater(t, len(asked), 10)
				var pauses []time.Duration
				for i := 1; i < len(asked); i++ {
					pauses = append(pauses, asked[i].Sub(asked[i-1]))
				}
				assert.Equal(t, retryFirst, pauses[0])
				assert.True(t, slices.IsSorted(pauses), "pauses shrink: %v", pauses)
				assert.Equal(t, c.limit, slices.Max(pauses))
				if c.doesItself {
					assert.Equal(t, len(asked), acted)
				} else {
					assert.Zero(t, acted, "acted on what comes by itself")
				}
			})
		})
	}
}

// A busy server is asked less and less, nothing is done on top of its load, and once it answers,
// what stands on it is not taken for fallen.
func TestAQuestionWithoutAnAnswerIsNoReasonToAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silence := errors.New("read node: i/o timeout")
		const patience = 10 * time.Second
		var silent cell[bool]
		var asked atomic.Int32
		later := 0
		r := &Runner{Log: quiet, Unanswered: func(err error) bool { return errors.Is(err, silence) }, Plan: []Stage{
			{
				Name: "node-ready",
				Done: func(context.Context) error {
					asked.Add(1)
					if silent.get() {
						time.Sleep(patience)
						return fmt.Errorf("look: %w", silence)
					}
					return nil
				},
				Do: func(context.Context, Report) error { t.Error("acted without an answer"); return nil },
			},
			{Name: "later", Done: func(context.Context) error { later++; return nil }, Recheck: time.Hour},
		}}
		go func() { _ = r.Run(t.Context()) }()
		synctest.Wait()
		require.Equal(t, status.StateReady, r.Snapshot().State)

		silent.set(true)
		asked.Store(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := r.Snapshot()
		assert.Equal(t, status.StateDegraded, s.State)
		assert.Equal(t, "an answer (last try: look: read node: i/o timeout)", s.Stages[0].Waiting)
		assert.Less(t, asked.Load(), int32(31), "more than half of the time was spent on questions")
		assert.Greater(t, asked.Load(), int32(20))

		silent.set(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, status.StateReady, r.Snapshot().State)
		assert.Equal(t, 1, later, "what stands on a stage that only did not answer was asked again")
	})
}

func TestTheErrorStaysVisibleThroughRetriesAndGoesWhenTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("import pause: no space left")
		fail := cell[error]{v: full}
		release := make(chan struct{})
		done := false
		r := start(t, []Stage{{Name: "images-present",
			Done: func(context.Context) error {
				if done {
					return nil
				}
				return errors.New("pause is missing")
			},
			Do: func(ctx context.Context, report Report) error {
				if err := fail.get(); err != nil {
					return err
				}
				report("importing pause")
				<-release
				done = true
				return nil
			}}})
		assert.Equal(t, full.Error(), r.Snapshot().Stages[0].Error)
		fail.set(nil)
		time.Sleep(time.Second)
		s := r.Snapshot().Stages[0]
		assert.Equal(t, "import pause: no space left", s.Error)
		assert.Equal(t, "importing pause", s.Waiting)
		assert.Equal(t, 2, s.Attempts)
		close(release)
		synctest.Wait()
		s = r.Snapshot().Stages[0]
		assert.Equal(t, status.StateReady, s.State)
		assert.Empty(t, s.Error+s.Waiting)
	})
}

func TestRunEndsInTheMiddleOfAStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Runner{Log: quiet, Plan: []Stage{{Name: "a",
			Done: func(context.Context) error { return errors.New("missing") },
			Do:   func(ctx context.Context, _ Report) error { <-ctx.Done(); return ctx.Err() },
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, r.Run(ctx))
		s := r.Snapshot().Stages[0]
		assert.Empty(t, s.Error, "being told to stop is not an error of the stage")
	})
}

// A stage that follows Ready begins when all others hold, and the whole is ready whatever becomes of it.
func TestReadyDoesNotWaitForWhatFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var needed, follower cell[error]
		needed.set(errors.New("missing"))
		follower.set(errors.New("also missing"))
		asked := 0
		r := start(t, []Stage{
			{Name: "needed", Done: func(context.Context) error { return needed.get() }},
			{Name: "follower", AfterReady: true, Done: func(context.Context) error { asked++; return follower.get() }},
		})
		time.Sleep(time.Minute)
		assert.Zero(t, asked, "it takes its turn before the whole is ready")
		assert.Equal(t, status.StateWorking, r.Snapshot().State)

		needed.set(nil)
		time.Sleep(time.Minute)
		s := r.Snapshot()
		assert.Equal(t, status.StateReady, s.State)
		assert.True(t, s.Stages[1].AfterReady)
		assert.Equal(t, status.StateWorking, s.Stages[1].State)
		assert.Equal(t, "also missing", s.Stages[1].Error)

		since := s.Since
		for _, err := range []error{nil, errors.New("it fell"), Permanent(errors.New("for good"))} {
			follower.set(err)
			time.Sleep(time.Minute)
			s = r.Snapshot()
			assert.Equal(t, status.StateReady, s.State, "%v", err)
			assert.Equal(t, since, s.Since, "%v", err)
		}
		assert.Equal(t, status.StateFailed, s.Stages[1].State)

		needed.set(errors.New("missing"))
		time.Sleep(time.Minute)
		assert.Equal(t, status.StateDegraded, r.Snapshot().State)
	})
}
