package rerun

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatChangesIsServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wanted atomic.Pointer[string]
		var ready atomic.Bool
		var served []string
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- OnChange(ctx, ready.Load, func() (string, bool) {
				s := wanted.Load()
				if s == nil {
					return "", false
				}
				return *s, true
			}, func(ctx context.Context, value string) error {
				served = append(served, value)
				<-ctx.Done()
				served = append(served, "no "+value)
				return nil
			})
		}()
		pass := func(want ...string) {
			time.Sleep(3 * interval)
			synctest.Wait()
			assert.Equal(t, want, served)
		}
		wanted.Store(new("a"))
		pass()
		ready.Store(true)
		pass("a")
		ready.Store(false)
		pass("a")
		ready.Store(true)
		wanted.Store(new("b"))
		pass("a", "no a", "b")
		wanted.Store(nil)
		pass("a", "no a", "b", "no b")
		wanted.Store(new("c"))
		pass("a", "no a", "b", "no b", "c")
		end()
		require.NoError(t, <-done)
		assert.Equal(t, "no c", served[len(served)-1])
	})
}

func TestAnErrorEndsIt(t *testing.T) {
	broken := errors.New("the port is taken")
	always := func() bool { return true }
	err := OnChange(t.Context(), always, func() (int, bool) { return 1, true }, func(context.Context, int) error { return broken })
	assert.Equal(t, broken, err)
}
