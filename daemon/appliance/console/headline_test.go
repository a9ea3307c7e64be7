package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
)

// fifty are fifty nodes of which some wait for a person.
func fifty(waiting int) status.Document {
	d := status.Document{Version: "0.1.0", Name: "rack-7", State: status.StateReady, Next: "Log in: ssh root@10.0.0.7"}
	for i := range 50 {
		n := status.Node{Name: "node-" + string(rune('a'+i)), Verified: i >= waiting}
		if i < waiting {
			n.Next = "correct bmc.password"
		}
		d.Nodes = append(d.Nodes, n)
	}
	d.Launch = status.Launch{State: status.LaunchSucceeded, Nodes: 50, Verified: 50 - waiting}
	if waiting > 0 {
		d.Launch.State = status.LaunchFailed
	}
	return d
}

// TestWhatNeedsAPersonIsTheHeadline: on the screen, on serial lines and in the status.
func TestWhatNeedsAPersonIsTheHeadline(t *testing.T) {
	timeUp := fifty(0)
	timeUp.Launch = status.Launch{State: status.LaunchFailed, Nodes: 50, Verified: 49}
	early := fifty(1)
	early.Launch.State = status.LaunchRunning
	clusters := fifty(0)
	clusters.Clusters = []status.Cluster{{Name: "edge", State: "refused", Error: "no host fits"}, {Name: "far", State: "ready"}}
	both := fifty(8)
	both.Clusters = []status.Cluster{{Name: "edge", Error: "x"}, {Name: "far", Error: "y"}}
	uploads := fifty(0)
	uploads.Artifacts = &status.Artifacts{Conditions: []status.Check{{Name: "serving", State: status.CheckOK}, {Name: "room", State: status.CheckFailed}}}
	components := fifty(0)
	components.Components = []status.Component{{Name: "default/nfd", State: "failed"}, {Name: "default/qat", State: "waiting"}}
	installing := fifty(0)
	installing.Clusters = []status.Cluster{{Name: "edge", State: "installing"}, {Name: "far", State: "ready"}}
	underway := fifty(0)
	underway.Launch = status.Launch{State: status.LaunchRunning, Nodes: 50, Verified: 20}
	underway.Clusters = []status.Cluster{
		{Name: "edge", State: "waiting"}, {Name: "far", State: "new"}, {Name: "near", State: "ready"},
	}
	underway.Components = []status.Component{{Name: "default/nfd", State: "applying"}, {Name: "default/qat", State: "ready"}}
	underway.Source = &status.Source{State: status.SourceWorking}
	underway.Stages = []status.Stage{
		{Name: "links-up", State: status.StateReady}, {Name: "kpa-ready", State: status.StateWorking, AfterReady: true},
	}
	several := fifty(0)
	several.Components = []status.Component{{Name: "a/a", State: "refused"}, {Name: "a/b", State: "degraded"}, {Name: "a/c", State: "skipped"}}
	working := fifty(8)
	working.State = status.StateWorking
	for want, d := range map[string]status.Document{
		"Ready":                                  fifty(0),
		"Needs you: not launched, 8 of 50 nodes": fifty(8),
		"Needs you: not launched, 49 of 50 nodes proven":          timeUp,
		"Needs you: node node-a":                                  early,
		"Needs you: cluster edge":                                 clusters,
		"Needs you: not launched, 8 of 50 nodes; 2 of 2 clusters": both,
		"Needs you: uploads (room)":                               uploads,
		"Needs you: component default/nfd":                        components,
		"Needs you: 2 of 3 components":                            several,
		"Coming up":                                               working,
		"Ready. On its way: cluster edge":                         installing,
		"Ready. On its way: 30 of 50 nodes; 2 of 3 clusters; component default/nfd; " +
			"revision of the source; 1 of 2 stages": underway,
	} {
		assert.Equal(t, want, Headline(d))
		assert.Contains(t, RenderText(d, time.Time{}), "Firstlight 0.1.0   rack-7   "+want+"\n")
		assert.Contains(t, RenderScreen(d, time.Time{}, 25), "Firstlight 0.1.0   rack-7   "+want+"\n")
	}

	// Nothing but the headline changes: a serial line is told all the same, and once.
	assert.Contains(t, RenderChanges(fifty(0), clusters), "firstlight: Needs you: cluster edge. Log in: ssh root@10.0.0.7\n")
	assert.Contains(t, RenderChanges(clusters, fifty(0)), "firstlight: Ready. ")
	assert.NotContains(t, RenderChanges(clusters, clusters), "Needs you")

	// It is not told once more of each node and cluster that is on its way, as those have lines of their own.
	further := underway
	further.Launch.Verified, further.Launch.Text = 21, "21 of 50 nodes proven"
	assert.NotContains(t, RenderChanges(underway, further), "Ready")
	assert.Contains(t, RenderChanges(installing, fifty(0)), "firstlight: Ready. Log in: ssh root@10.0.0.7\n")
	assert.Contains(t, RenderChanges(fifty(0), installing), "firstlight: Ready. On its way: cluster edge. Log in: ssh root@10.0.0.7\n")
}
