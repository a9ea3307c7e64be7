package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// TestWhatPrecedesComesBeforeWhatFollowsReady: a stage after Ready is asked when nothing precedes it any more, and from
// then on always.
func TestWhatPrecedesComesBeforeWhatFollowsReady(t *testing.T) {
	preceding, missing := "servers", errors.New("missing")
	answer := missing
	done := func(context.Context) error { return answer }
	follower := holdFollowers([]bringup.Stage{{Name: "follower", Done: done}}, func() string { return preceding })[0]
	err := follower.Done(t.Context())
	assert.True(t, bringup.IsWait(err), "%v", err)
	assert.NotErrorIs(t, err, missing, "it was asked")

	preceding = ""
	assert.Equal(t, missing, follower.Done(t.Context()))

	answer = nil
	assert.NoError(t, follower.Done(t.Context()))
	preceding, answer = "servers", missing
	assert.Equal(t, missing, follower.Done(t.Context()), "what held once is asked during the next launch, too")
}

func TestWhatPrecedesFollowers(t *testing.T) {
	wanted := []site.Cluster{{Name: "edge"}}
	for _, c := range []struct {
		name   string
		launch status.LaunchState
		state  string // of the site's cluster; "" while it is not there
		want   string
	}{
		{"servers are being installed", status.LaunchRunning, "ready", "the servers that are being inspected and installed"},
		{"all are proven, and the cluster is not handed over yet", status.LaunchSucceeded, "", "the installation of the site's cluster edge"},
		{"it takes its servers", status.LaunchSucceeded, "waiting", "the installation of the site's cluster edge"},
		{"it is being installed", status.LaunchSucceeded, "installing", "the installation of the site's cluster edge"},
		{"it is installed", status.LaunchSucceeded, "ready", ""},
		{"it is changed", status.LaunchSucceeded, "changing", ""},
		{"it failed", status.LaunchSucceeded, "failed", ""},
		{"it was refused", status.LaunchSucceeded, "refused", ""},
		{"a server failed, and the cluster waits for it", status.LaunchFailed, "waiting", ""},
		{"a server failed, and the cluster is installed without it", status.LaunchFailed, "installing", ""},
		{"the site names no server, and its cluster takes others", status.LaunchNothing, "installing", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			clusters := []status.Cluster{{Name: "of-objects", State: "installing"}}
			if c.state != "" {
				clusters = append(clusters, status.Cluster{Name: "edge", State: c.state})
			}
			assert.Equal(t, c.want, precedingWork(c.launch, wanted, clusters))
		})
	}

	assert.Empty(t, precedingWork(status.LaunchNothing, nil, []status.Cluster{{Name: "of-objects", State: "installing"}}))
}
