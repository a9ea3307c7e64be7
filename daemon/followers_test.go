package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// TestServersComeBeforeWhatFollowsReady: a stage after Ready is asked when the launch is over, and from then on always.
func TestServersComeBeforeWhatFollowsReady(t *testing.T) {
	state, missing, needed := status.LaunchRunning, errors.New("missing"), false
	answer := missing
	done := func(context.Context) error { return answer }
	plan := waitForLaunch(
		[]bringup.Stage{{Name: "needed", Done: done}, {Name: "follower", AfterReady: true, Done: done}},
		func() status.Launch { return status.Launch{State: state} },
		func() bool { return needed },
	)
	assert.Equal(t, missing, plan[0].Done(t.Context()))
	err := plan[1].Done(t.Context())
	assert.True(t, bringup.IsWait(err), "%v", err)
	assert.NotErrorIs(t, err, missing, "it was asked")

	needed = true
	assert.Equal(t, missing, plan[1].Done(t.Context()), "the launch itself needs it")
	needed = false

	for _, over := range []status.LaunchState{status.LaunchNothing, status.LaunchFailed, status.LaunchSucceeded} {
		state = over
		assert.Equal(t, missing, plan[1].Done(t.Context()), over)
	}

	answer = nil
	assert.NoError(t, plan[1].Done(t.Context()))
	state, answer = status.LaunchRunning, missing
	assert.Equal(t, missing, plan[1].Done(t.Context()), "what held once is asked during the next launch, too")
}
