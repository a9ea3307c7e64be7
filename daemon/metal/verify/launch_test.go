package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// stands are n proven nodes and those given.
func stands(n int, more ...NodeStanding) []NodeStanding {
	var all []NodeStanding
	for i := range n {
		all = append(all, NodeStanding{Name: fmt.Sprintf("node-%d", i+1), Verified: true})
	}
	return append(all, more...)
}

func TestJudge(t *testing.T) {
	dead := NodeStanding{Name: "node-a", Fails: true, Lasts: true, Rule: "bmc-silent", Sentence: "is not switched on: the BMC does not answer"}
	absent := NodeStanding{Name: "node-b", Fails: true, Lasts: true, Rule: "absent", Sentence: "is in site.yaml and has no BareMetalHost"}
	writing := NodeStanding{Name: "node-c", Rule: "writing", Sentence: "writes its image to disk, 500 of 1000 MB"}
	blinks := NodeStanding{Name: "node-d", Fails: true, Rule: "error", Sentence: "failed while registering: …"}
	for _, c := range []struct {
		name    string
		nodes   []NodeStanding
		minutes int
		state   status.LaunchState
		text    string
	}{
		{"empty site", nil, 0, status.LaunchNothing, "nothing to launch: site.yaml names no nodes"},
		{"empty site after an hour", nil, 61, status.LaunchNothing, "nothing to launch: site.yaml names no nodes"},
		{"all", stands(3), 12, status.LaunchSucceeded, "launched: 3 of 3 nodes proven"},
		{"one", stands(1), 60, status.LaunchSucceeded, "launched: 1 of 1 node proven"},
		{"all, too late", stands(3), 61, status.LaunchSucceeded, "launched, later than promised: 3 of 3 nodes proven"},
		{"on their way", stands(8, writing), 59, status.LaunchRunning, "8 of 9 nodes proven"},
		{"8 of 10: both are named", stands(8, dead, absent), 1, status.LaunchFailed,
			"not launched, 8 of 10 nodes proven: node-a is not switched on: the BMC does not answer; node-b is in site.yaml and has no BareMetalHost"},
		{"what has just begun may pass", stands(1, blinks), 1, status.LaunchRunning, "1 of 2 nodes proven"},
		{"but is named with what lasts", stands(0, blinks, dead), 1, status.LaunchFailed,
			"not launched, 0 of 2 nodes proven: node-d failed while registering: …; node-a is not switched on: the BMC does not answer"},
		{"an error is told at once, beside what goes on", stands(0, dead, writing), 0, status.LaunchFailed, "not launched, 0 of 2 nodes proven: node-a is not switched on: the BMC does not answer"},
		{"absent is a failure", stands(1, absent), 3, status.LaunchFailed, "not launched, 1 of 2 nodes proven: node-b is in site.yaml and has no BareMetalHost"},
		{"the time is up: whoever is not proven is named", stands(1, writing, dead), 61, status.LaunchFailed,
			"not launched, 1 of 3 nodes proven: node-c is not proven yet (writing); node-a is not switched on: the BMC does not answer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := JudgeLaunch(c.nodes, time.Duration(c.minutes)*time.Minute, time.Hour)
			assert.Equal(t, c.state, l.State)
			assert.Equal(t, c.text, l.Text)
			assert.Equal(t, len(c.nodes), l.Nodes)
			assert.Equal(t, float64(c.minutes*60), l.Elapsed)
		})
	}
}

func TestConditions(t *testing.T) {
	for state, want := range map[status.LaunchState][2]string{
		status.LaunchNothing: {"False", "False"}, status.LaunchRunning: {"False", "False"}, status.LaunchFailed: {"False", "True"}, status.LaunchSucceeded: {"True", "False"},
	} {
		c := conditionsOf(Outcome{State: state, Message: "a sentence"})
		assert.Equal(t, want, [2]string{string(c[0].Status), string(c[1].Status)}, state)
		assert.NotEmpty(t, c[0].Reason)
		assert.Equal(t, "a sentence", c[0].Message)
	}
}

// The definition is read once; whoever gets it changes a copy.
func TestTheDefinitionOfLaunchStaysAsItWasRead(t *testing.T) {
	var digests []string
	for range 2 {
		objects, err := launchObjects((&site.Site{Name: "rack"}).WithDefaults())
		require.NoError(t, err)
		set, err := apply.New(owner, objects...)
		require.NoError(t, err)
		digests = append(digests, set.Objects[0].GetAnnotations()[apply.Annotation])
	}
	assert.Equal(t, digests[0], digests[1])
}
