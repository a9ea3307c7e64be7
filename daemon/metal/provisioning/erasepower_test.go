package provisioning

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// TestAnAgentThatStopsToCallIsGone, and one that has not called in this try is still booting, unless it ran before and
// was given its step at once.
func TestAnAgentThatStopsToCallIsGone(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		started, called, began time.Duration // ago
		hasStep, gone          bool
	}{
		{10 * time.Minute, 4 * time.Minute, time.Hour, true, true},
		{10 * time.Minute, 4 * time.Minute, time.Hour, false, true}, // between two steps
		{10 * time.Minute, time.Minute, time.Hour, true, false},
		{10 * time.Minute, 20 * time.Minute, time.Hour, false, false}, // it called in an earlier try
		{10 * time.Minute, 20 * time.Minute, time.Hour, true, true},
		{2 * time.Minute, 20 * time.Minute, time.Hour, true, false},
		{10 * time.Minute, 4 * time.Minute, time.Minute, true, false},
	} {
		heard := lastHeard(ago(c.started), ago(c.called), c.hasStep)
		assert.Equal(t, c.gone, isAgentGone(heard, ago(c.began), now), "%+v", c)
	}
	assert.True(t, lastHeard(ago(time.Minute), time.Time{}, false).IsZero())
}

// TestWhatABMCSaidOfAnotherStateIsForgotten: a server that is off before it is started has not lost its power.
func TestWhatABMCSaidOfAnotherStateIsForgotten(t *testing.T) {
	var c powerChecks
	var asked atomic.Int32
	off := func() bmc.Answer { asked.Add(1); return bmc.Answer{Verdict: bmc.OK} }
	assert.Empty(t, c.latest("node-1", "manageable", off), "it is not waited for")
	require.Eventually(t, func() bool { return c.latest("node-1", "manageable", off).Verdict == bmc.OK },
		10*time.Minute, time.Millisecond)
	assert.EqualValues(t, 1, asked.Load(), "a BMC is asked again after a while only")

	release := make(chan struct{})
	slow := func() bmc.Answer { <-release; return off() }
	assert.Empty(t, c.latest("node-1", "clean wait", slow))
	assert.Empty(t, c.latest("node-1", "manageable", slow), "what is asked of another state does not count")
	close(release)
	require.Eventually(t, func() bool { return c.latest("node-1", "manageable", off).Verdict == bmc.OK },
		10*time.Minute, time.Millisecond)
	c.forget("node-1")
	assert.Empty(t, c.all)
}
