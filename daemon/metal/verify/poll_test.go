package verify

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/metal/verify/fact"
)

// TestASlowIronicIsAskedLessOften: the answer for a thousand nodes takes Ironic seconds, and it does nothing else
// meanwhile.
func TestASlowIronicIsAskedLessOften(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		asked int32 // in ten minutes
	}{
		"at once":    {0, 60},
		"in seconds": {3 * time.Second, 20},
		"in minutes": {2 * time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newRack(t, 1).engine(t, t.TempDir())
				var asked atomic.Int32
				e.Sources.Ironic = func(ctx context.Context) (map[string]fact.Ironic, error) {
					asked.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(c.takes):
					}
					return nil, nil
				}
				defer start(t, e)()
				pass(10)
				assert.InDelta(t, c.asked, asked.Load(), 2)
			})
		})
	}
}
