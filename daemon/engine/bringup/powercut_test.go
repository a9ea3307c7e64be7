package bringup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// world is what a plan acts on: it outlives every runner, as a machine outlives a power cut.
type world struct {
	facts []int // parts of each fact that are true; a fact holds with partsOfFact
	dos   []int // times each stage acted
	budge int   // acts left before the power goes; negative: it stays
	mu    sync.Mutex
}

const partsOfFact = 3

func newWorld(stages int) *world {
	return &world{facts: make([]int, stages), dos: make([]int, stages), budge: -1}
}

// cut ends the goroutine that runs the plan when the budget of acts is used up.
func (w *world) cut() {
	if w.budge == 0 {
		runtime.Goexit()
	}
	w.budge--
}

func (w *world) lose(fact int) { w.mu.Lock(); defer w.mu.Unlock(); w.facts[fact] = 0 }

func (w *world) plan(t *testing.T) []Stage {
	var plan []Stage
	for i := range w.facts {
		plan = append(plan, Stage{
			Name: fmt.Sprintf("fact-%d", i),
			Done: func(context.Context) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.cut()
				if w.facts[i] < partsOfFact {
					return fmt.Errorf("%d of %d parts", w.facts[i], partsOfFact)
				}
				return nil
			},
			Do: func(_ context.Context, report Report) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				for j := range i {
					assert.Equal(t, partsOfFact, w.facts[j], "stage %d acts before fact %d holds", i, j)
				}
				assert.Less(t, w.facts[i], partsOfFact, "stage %d acts although its fact holds", i)
				w.dos[i]++
				for w.facts[i] < partsOfFact {
					w.cut()
					report(fmt.Sprintf("part %d", w.facts[i]))
					w.facts[i]++
				}
				w.cut()
				return nil
			},
		})
	}
	return plan
}

// boot runs the plan until it is ready or the power goes, and tells which.
func boot(t *testing.T, w *world) (ready bool) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &Runner{Plan: w.plan(t), Log: quiet, Changed: func(s Snapshot) {
			if s.State == status.StateReady {
				ready = true
				cancel()
			}
		}}
		go func() {
			defer cancel()
			_ = r.Run(ctx)
		}()
		<-ctx.Done()
		synctest.Wait()
	})
	return ready
}

func TestPowerCutAtEveryPoint(t *testing.T) {
	const stages = 4
	whole := newWorld(stages)
	whole.budge = 1 << 20
	require.True(t, boot(t, whole))
	acts := 1<<20 - whole.budge
	require.Greater(t, acts, stages*partsOfFact)
	for at := range acts {
		w := newWorld(stages)
		w.budge = at
		require.False(t, boot(t, w), "cut after %d acts", at)
		w.budge = -1
		require.True(t, boot(t, w), "boot after a cut after %d acts", at)
		before := slices.Clone(w.dos)
		require.True(t, boot(t, w))
		assert.Equal(t, before, w.dos, "the third boot acted although all was true")
	}
}

func TestManyPowerCuts(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(1 + rnd.IntN(8))
		for range 200 {
			w.budge = rnd.IntN(4 * len(w.facts))
			if boot(t, w) {
				break
			}
			if rnd.IntN(3) == 0 { // and something else breaks meanwhile
				w.facts[rnd.IntN(len(w.facts))] = 0
			}
		}
		w.budge = -1
		require.True(t, boot(t, w), "seed %d", seed)
		for i, parts := range w.facts {
			assert.Equal(t, partsOfFact, parts, "fact %d, seed %d", i, seed)
		}
	}
}
