package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// RenderScreen is Text for a screen of so many lines. If that is too small for it, what a person may have to act on
// stands first: what to do, the launch, stages that are not ready, nodes that are not proven, those which wait
// for a person at their head. What is as it should be is counted; frame cuts off what comes last.
func RenderScreen(d status.Document, now time.Time, height int) string {
	if text := RenderText(d, now); strings.Count(text, "\n") <= height {
		return text
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Firstlight %s   %s   %s\n", d.Version, d.Name, Headline(d))
	if d.Next != "" {
		fmt.Fprintf(&b, "%s\n", d.Next)
	}

	b.WriteByte('\n')
	ready := 0
	for _, s := range d.Stages {
		if s.State == status.StateReady {
			ready++
			continue
		}
		if s.State != status.StateWaiting { // those that wait for their turn say nothing
			writeStage(&b, s, now)
		}
	}

	fmt.Fprintf(&b, "[%s] %d of %d stages\n", stateMark(status.StateReady), ready, len(d.Stages))
	for _, a := range d.Addresses {
		writeAddress(&b, a)
	}

	writeLaunch(&b, d.Launch)
	for _, c := range d.Clusters {
		c.Members, c.Warnings = nil, nil // firstlightd why CLUSTER
		writeCluster(&b, c)
	}

	nodes := slices.DeleteFunc(sortByNeed(d.Nodes), func(n status.Node) bool { return n.Verified })
	if proven := len(d.Nodes) - len(nodes); proven > 0 {
		fmt.Fprintf(&b, "nodes                  %d of %d are installed and proven\n", proven, len(d.Nodes))
	}

	for _, n := range nodes {
		writeNode(&b, n, now)
	}

	if d.Artifacts != nil {
		writeArtifacts(&b, d.Artifacts)
	}

	for _, n := range d.Notes {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}

	return b.String()
}
