package image

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lines are what a build logged.
type lines struct {
	Progress
	mu  sync.Mutex
	all []string
}

func (l *lines) Log(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func TestBuildsTakeTurns(t *testing.T) {
	out := filepath.Join(t.TempDir(), "build", "firstlight.img")
	first, err := takeTurn(t.Context(), out, &lines{})
	require.NoError(t, err)

	ended, stop := context.WithCancel(t.Context())
	stop()
	_, err = takeTurn(ended, out, &lines{})
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "another build writes to "+filepath.Dir(out))

	other, err := takeTurn(t.Context(), filepath.Join(t.TempDir(), "other.img"), &lines{})
	require.NoError(t, err, "of another directory")
	other()

	log := &lines{}
	second := make(chan func(), 1)
	go func() {
		release, err := takeTurn(t.Context(), out, log)
		assert.NoError(t, err)
		second <- release
	}()
	require.Eventually(t, func() bool {
		log.mu.Lock()
		defer log.mu.Unlock()
		return len(log.all) == 1
	}, time.Minute, turnPoll/10)
	assert.Equal(t, []string{"waiting for another build that writes to " + filepath.Dir(out)}, log.all)
	assert.Empty(t, second)
	first()
	(<-second)()
}
