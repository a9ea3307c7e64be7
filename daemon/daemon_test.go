package daemon

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRestartsAreSparseOnlyForWhatDoesNotComeUp(t *testing.T) {
	for _, c := range []struct{ before, ran, pause time.Duration }{
		{0, 0, time.Second},
		{0, time.Hour, time.Second},
		{time.Second, 0, 2 * time.Second},
		{32 * time.Second, time.Second, time.Minute},
		{time.Minute, time.Second, time.Minute},
		{time.Minute, time.Minute, time.Minute},
		{time.Minute, time.Minute + 1, time.Second},
		{time.Minute, 30 * 24 * time.Hour, time.Second},
	} {
		assert.Equal(t, c.pause, restartDelay(c.before, c.ran), "after %s, having run for %s", c.before, c.ran)
	}
}
