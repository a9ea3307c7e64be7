package verify

import (
	"fmt"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// NodeStanding is how one node of the site stands.
type NodeStanding struct {
	Name     string
	Verified bool
	Fails    bool   // it needs a person
	Lasts    bool   // and has done so for a while: the launch has failed as long as that is so
	Rule     string // of docs/why.md
	Sentence string
}

// JudgeLaunch says how the launch of all nodes stands after elapsed. An error is told at once, and
// taken back when it is mended; after limit every node that is not proven is an error. A site
// without nodes is no success.
func JudgeLaunch(nodes []NodeStanding, elapsed, limit time.Duration) status.Launch {
	l := status.Launch{
		State:   status.LaunchRunning,
		Nodes:   len(nodes),
		Elapsed: elapsed.Seconds(),
		Limit:   limit.Seconds(),
	}
	late := elapsed > limit
	var bad []string
	failed := false
	for _, n := range nodes {
		switch {
		case n.Verified:
			l.Verified++
		case n.Fails:
			bad = append(bad, n.Name+" "+n.Sentence)
			failed = failed || n.Lasts || late
		case late:
			bad, failed = append(bad, fmt.Sprintf("%s is not proven yet (%s)", n.Name, n.Rule)), true
		}
	}

	switch {
	case len(nodes) == 0:
		l.State, l.Text = status.LaunchNothing, "nothing to launch: site.yaml names no nodes"
	case l.Verified == len(nodes) && late:
		l.State, l.Text = status.LaunchSucceeded, fmt.Sprintf(
			"launched, later than promised: %s proven", count(l.Verified, len(nodes)),
		)
	case l.Verified == len(nodes):
		l.State, l.Text = status.LaunchSucceeded, fmt.Sprintf("launched: %s proven", count(l.Verified, len(nodes)))
	case failed:
		l.State, l.Text = status.LaunchFailed, fmt.Sprintf(
			"not launched, %s proven: %s", count(l.Verified, len(nodes)), strings.Join(bad, "; "),
		)
	default:
		l.Text = count(l.Verified, len(nodes)) + " proven"
	}

	return l
}

func count(n, of int) string {
	if of == 1 {
		return fmt.Sprintf("%d of 1 node", n)
	}
	return fmt.Sprintf("%d of %d nodes", n, of)
}
