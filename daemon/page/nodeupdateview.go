package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/status"
	bpaapi "firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// maxUpdatedNodes is how many nodes of a NodeUpdate are listed.
const maxUpdatedNodes = 100

// nodeUpdateView is one NodeUpdate.
type nodeUpdateView struct {
	status.NodeUpdate
	Percent int    // of its nodes
	When    string // nodes are taken out of service
	Pace    string
	Listed  []updatedNodeView // those that are not up to date first
	Hidden  int               // nodes that are not listed
	Offers  []offer
}

// updatedNodeView is one of its nodes.
type updatedNodeView struct {
	status.UpdatedNode
	Class string // of its row
}

func newNodeUpdates(p *picture, by Role, c status.Cluster) (all []nodeUpdateView) {
	for _, u := range c.Updates {
		v := nodeUpdateView{
			NodeUpdate: u,
			When:       describeWindow(u.Window),
			Pace:       describePace(u),
			Offers:     newOffers(p, by, onNodeUpdate, u.Name),
		}
		var done, of int
		if n, _ := fmt.Sscanf(u.Nodes, "%d/%d", &done, &of); n == 2 && of > 0 {
			v.Percent = 100 * done / of
		}

		nodes := slices.SortedStableFunc(slices.Values(u.Members), func(a, b status.UpdatedNode) int {
			return cmp.Compare(rankUpdated(a), rankUpdated(b))
		})
		for _, n := range nodes[:min(maxUpdatedNodes, len(nodes))] {
			v.Listed = append(v.Listed, updatedNodeView{n, classOfUpdated(n)})
		}
		v.Hidden = len(nodes) - len(v.Listed)
		all = append(all, v)
	}
	return all
}

// rankUpdated puts those first that are not up to date.
func rankUpdated(n status.UpdatedNode) int {
	if n.State == bpaapi.NodeUpToDate {
		return 1
	}
	return 0
}

func classOfUpdated(n status.UpdatedNode) string {
	return map[string]string{
		bpaapi.NodeUpToDate: "ok", bpaapi.NodeUpdateFailed: "failed", bpaapi.NodeUnknown: "failed",
	}[n.State]
}

// describeWindow says when nodes are taken out of service.
func describeWindow(w *status.UpdateWindow) string {
	if w == nil {
		return "at any time"
	}
	days := "every day"
	if len(w.Days) > 0 {
		days = strings.Join(w.Days, ", ")
	}
	return fmt.Sprintf("%s from %s UTC, for %d hours", days, w.Start, w.Hours)
}

// describePace says how many nodes are away at once, and whether they restart.
func describePace(u status.NodeUpdate) string {
	workers := "one worker at a time"
	if u.Workers > 1 {
		workers = fmt.Sprintf("%d workers at a time", u.Workers)
	}
	restarts := map[string]string{
		bpaapi.RebootNever:      "nodes do not restart",
		bpaapi.RebootIfRequired: "nodes restart if they must",
		bpaapi.RebootAlways:     "nodes always restart",
	}[u.Reboot]
	return strings.Join([]string{"control planes one after the other", workers, restarts}, "; ")
}
