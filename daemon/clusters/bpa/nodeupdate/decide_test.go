package nodeupdate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

var now = time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)

// node is one in service that is up to date; change makes it another.
func node(name string, change ...func(*Node)) Node {
	n := Node{
		Name: name, ControlPlane: strings.HasPrefix(name, "m"), IsReady: true, BootID: "first", UpdatedBy: "u/1",
		Facts: &Facts{BootID: "first"},
	}
	for _, f := range change {
		f(&n)
	}
	return n
}

// What a node may be like besides.
func outdated(n *Node) {
	n.Facts.Preview.Changes = []software.Change{{Name: "jq", From: "1.6", To: "1.7"}}
}
func wantsReboot(n *Node) { n.Facts.NeedsReboot = true }
func notReady(n *Node)    { n.IsReady = false }
func closed(n *Node)      { n.Mark, n.IsClosed = &Mark{Update: "default/u", UID: "u", Since: now}, true }
func silenced(n *Node)    { n.Facts, n.Error = nil, "no route to host" }
func longAgo(n *Node)     { n.Mark.Since = now.Add(-time.Hour) }
func rebooting(n *Node)   { n.Mark.BootID = "first" }
func rebooted(n *Node)    { n.Mark.BootID, n.Facts.BootID, n.BootID = "first", "second", "second" }
func withPods(n *Node)    { n.Pods.Movable = []string{"a/b", "a/c"} }
func otherGeneration(n *Node) {
	n.UpdatedBy = "u/0"
}

func TestDecide(t *testing.T) {
	hold := &Hold{ReasonPaused, "paused by spec.paused"}
	for name, c := range map[string]struct {
		order Order
		nodes []Node
		want  string // NAME STEP for each node with a step, then phase, reason and message
	}{
		"all is done": {nodes: []Node{node("m1"), node("w1")}, want: "Ready UpToDate: all 2 nodes are up to date"},
		"the control plane comes first": {
			nodes: []Node{node("w1", outdated), node("m1", outdated)},
			want:  "m1 close; Updating Updating: node m1: taking it out of service; 0 of 2 nodes are up to date",
		},
		"one control plane at a time, whatever maxUnavailable is": {
			order: Order{MaxUnavailable: 5}, nodes: []Node{node("m1", outdated), node("m2", outdated), node("w1", outdated)},
			want: "m1 close; Updating Updating: node m1: taking it out of service; 0 of 3 nodes are up to date",
		},
		"no control plane while another node is away": {
			nodes: []Node{node("m1", outdated), node("m2"), node("w1", notReady)},
			want:  "Waiting NodeNotReady: node w1 is not Ready; see kubectl describe node w1; 2 of 3 nodes are up to date",
		},
		"no worker while a control plane is out of service": {
			order: Order{MaxUnavailable: 5}, nodes: []Node{node("m1", closed, outdated), node("w1", outdated)},
			want: "m1 install; Updating Updating: node m1: installing jq 1.7; 0 of 2 nodes are up to date",
		},
		"no worker before every control plane has answered": {
			nodes: []Node{node("m1", silenced), node("w1", outdated)},
			want:  "Waiting NodeSilent: node m1 does not answer: no route to host; switch it on, or take it out of the cluster; 0 of 2 nodes are up to date",
		},
		"one worker at a time": {
			nodes: []Node{node("m1"), node("w1", outdated), node("w2", outdated)},
			want:  "w1 close; Updating Updating: node w1: taking it out of service; 1 of 3 nodes are up to date",
		},
		"as many workers as may be": {
			order: Order{MaxUnavailable: 2}, nodes: []Node{node("m1"), node("w1", outdated), node("w2", outdated), node("w3", outdated)},
			want: "w1 close; w2 close; Updating Updating: node w1 and 1 more: taking it out of service; 1 of 4 nodes are up to date",
		},
		"a dead worker counts": {
			nodes: []Node{node("m1"), node("w1", silenced), node("w2", outdated)},
			want:  "Waiting NodeSilent: node w1 does not answer: no route to host; switch it on, or take it out of the cluster; 1 of 3 nodes are up to date",
		},
		"with room for it, a dead worker stops nobody": {
			order: Order{MaxUnavailable: 2}, nodes: []Node{node("m1"), node("w1", outdated, notReady), node("w2", outdated)},
			want: "w2 close; Updating Updating: node w2: taking it out of service; 1 of 3 nodes are up to date",
		},
		"a worker that is continued takes the place": {
			nodes: []Node{node("m1"), node("w1", outdated), node("w2", closed, outdated)},
			want:  "w2 install; Updating Updating: node w2: installing jq 1.7; 1 of 3 nodes are up to date",
		},
		"paused": {
			order: Order{Hold: hold}, nodes: []Node{node("m1"), node("w1", outdated)},
			want: "Waiting Paused: paused by spec.paused; 1 of 2 nodes are up to date",
		},
		"paused with nothing to do": {
			order: Order{Hold: hold}, nodes: []Node{node("m1"), node("w1")}, want: "Ready UpToDate: all 2 nodes are up to date",
		},
		"what was begun is completed": {
			order: Order{Hold: hold}, nodes: []Node{node("w1", outdated), node("w2", closed, outdated)},
			want: "w2 install; Updating Updating: node w2: installing jq 1.7; 0 of 2 nodes are up to date",
		},
		"no other node after a failure": {
			order: Order{MaxUnavailable: 5}, nodes: []Node{node("w1", closed, silenced), node("w2", outdated)},
			want: "Failed NodeSilent: node w1: does not answer: no route to host; switch it on, then the update continues; no other node is begun with; 0 of 2 nodes are up to date",
		},
		"another NodeUpdate is at work": {
			order: Order{Others: map[string]bool{"u": true}}, nodes: []Node{node("w1", closed, outdated), node("w2", outdated)},
			want: "Waiting OtherUpdate: node w1 is out of service for NodeUpdate default/u; this one follows; 0 of 2 nodes are up to date",
		},
		"a NodeUpdate that is no more left a node": {
			nodes: []Node{node("w1", closed, func(n *Node) { n.Mark.UID = "gone" })},
			want:  "w1 open; Updating Updating: node w1: putting it back into service; 0 of 1 nodes are up to date",
		},
		"a version that no repository has": {
			nodes: []Node{node("w1", func(n *Node) { n.Facts.Preview.Error = "version 9 of package jq is unavailable; there are: 1.7" }), node("w2", outdated)},
			want:  "Failed PackagesUnknown: node w1: version 9 of package jq is unavailable; there are: 1.7; correct the NodeUpdate, or the node's repositories; no other node is begun with; 0 of 2 nodes are up to date",
		},
		"a kubelet of the next minor release": {
			order: Order{Minor: 36}, nodes: []Node{node("w1", func(n *Node) {
				n.Facts.Preview.Changes = []software.Change{{Name: "kubelet", From: "1.36.3-0a", To: "1.37.0-0a"}}
			})},
			want: "Failed KubernetesTooNew: node w1: kubelet 1.37.0-0a is newer than the cluster's API server, v1.36; upgrade the control plane by kubeadm first, or take it out of packages; no other node is begun with; 0 of 1 nodes are up to date",
		},
		"a reboot alone": {
			nodes: []Node{node("w1", wantsReboot)},
			want:  "w1 close; Updating Updating: node w1: taking it out of service; 0 of 1 nodes are up to date",
		},
		"a reboot that nobody wants": {
			order: Order{Reboot: v1alpha1.RebootNever}, nodes: []Node{node("w1", wantsReboot)}, want: "Ready UpToDate: all 1 nodes are up to date",
		},
		"each generation restarts all nodes": {
			order: Order{Reboot: v1alpha1.RebootAlways}, nodes: []Node{node("w1"), node("w2", otherGeneration)},
			want: "w2 close; Updating Updating: node w2: taking it out of service; 1 of 2 nodes are up to date",
		},
	} {
		c.order.UID, c.order.Token = "u", "u/1"
		assert.Equal(t, c.want, describe(Decide(c.order, c.nodes, now)), name)
	}
}

// describe is a decision as TestDecide writes it.
func describe(d Decision) string {
	var all []string
	for _, a := range d.Actions {
		if a.Step != StepWait {
			all = append(all, a.Node+" "+string(a.Step))
		}
	}
	return strings.Join(append(all, fmt.Sprintf("%s %s: %s", d.Phase, d.Reason, d.Message)), "; ")
}

// TestContinueNode follows one node that is out of service, step by step.
func TestContinueNode(t *testing.T) {
	always := Order{Reboot: v1alpha1.RebootAlways, Token: "u/1"}
	for name, c := range map[string]struct {
		order Order
		node  Node
		want  string // PHASE step: message
	}{
		"pods are left":              {node: node("w", outdated, closed, withPods), want: "Draining evict: draining: 2 pods are still there: a/b"},
		"a budget refuses":           {node: node("w", outdated, closed, withPods, func(n *Node) { n.Refusal = "pod a/b: web needs 2" }), want: "Draining evict: draining: 2 pods are still there: pod a/b: web needs 2"},
		"a budget refuses for long":  {node: node("w", outdated, closed, withPods, longAgo), want: "Failed evict: 2 pods are still there after 10m0s: a/b"},
		"a pod that would be lost":   {node: node("w", outdated, closed, func(n *Node) { n.Pods.Unmovable = []string{"pod a/b has none"} }), want: "Failed : pod a/b has none"},
		"it was uncordoned":          {node: node("w", outdated, closed, func(n *Node) { n.IsClosed = false }), want: "Draining close: taking it out of service again: somebody uncordoned it"},
		"drained":                    {node: node("w", outdated, closed), want: "Installing install: installing jq 1.7"},
		"installed":                  {node: node("w", closed), want: "Checking open: putting it back into service"},
		"a kernel came":              {node: node("w", closed, wantsReboot), want: "Rebooting reboot: restarting"},
		"and the appliance was cut":  {node: node("w", closed, wantsReboot, rebooting), want: "Rebooting reboot: restarting"},
		"it is away":                 {node: node("w", closed, rebooting, silenced), want: "Rebooting : restarting"},
		"it is away for long":        {node: node("w", closed, rebooting, silenced, longAgo), want: "Failed : did not come back since it was restarted at 21:00:00: no route to host; check its console, or switch it off and on"},
		"it does not restart":        {node: node("w", closed, wantsReboot, rebooting, longAgo), want: "Failed reboot: was told to restart at 21:00:00 and still runs; check its console, or switch it off and on"},
		"it is back":                 {node: node("w", closed, rebooted), want: "Checking open: putting it back into service"},
		"its kubelet is not":         {node: node("w", closed, rebooted, func(n *Node) { n.BootID = "first" }), want: "Checking : waiting until it is healthy: its kubelet has not started since the restart"},
		"it still wants one":         {node: node("w", closed, rebooted, wantsReboot), want: "Checking open: putting it back into service"},
		"not Ready":                  {node: node("w", closed, notReady), want: "Checking : waiting until it is healthy: its kubelet is not Ready"},
		"not Ready for long":         {node: node("w", closed, notReady, longAgo), want: "Failed : is updated and not healthy: its kubelet is not Ready; see kubectl describe node w and journalctl -u kubelet on it"},
		"its own pods are not":       {node: node("w", closed, func(n *Node) { n.Pods.Unready = []string{"kube-system/etcd-w"} }), want: "Checking : waiting until it is healthy: not ready on it: kube-system/etcd-w"},
		"always, after packages":     {order: always, node: node("w", closed), want: "Rebooting reboot: restarting"},
		"always, and it is back":     {order: always, node: node("w", closed, rebooted), want: "Checking open: putting it back into service"},
		"power cut while installing": {node: node("w", closed, silenced), want: "Failed : does not answer: no route to host; switch it on, then the update continues"},
		"packages came after the restart": {
			node: node("w", closed, rebooted, outdated, withPods), want: "Installing install: installing jq 1.7",
		},
	} {
		a := c.order.continueNode(c.node, now)
		assert.Equal(t, c.want, fmt.Sprintf("%s %s: %s", a.Phase, a.Step, a.Message), name)
		assert.Equal(t, a.Phase == v1alpha1.NodeUpdateFailed, a.Failure != nil, name)
		assert.True(t, a.IsAway, name)
	}
}

// TestEveryRolloutEnds takes a cluster from any beginning to its end by doing what is decided, and counts what is done on
// each node and how many are away at once. A decision that is asked for again before it was done is the same.
func TestEveryRolloutEnds(t *testing.T) {
	for _, most := range []int{0, 1, 3} {
		order := Order{UID: "u", Token: "u/1", MaxUnavailable: most}
		nodes := []Node{
			node("m1", outdated), node("m2", outdated, wantsReboot), node("m3"),
			node("w1", outdated), node("w2", wantsReboot), node("w3", outdated, wantsReboot), node("w4"), node("w5", outdated),
		}
		done := map[string][]string{}
		var order1 []string
		for range 100 {
			d := Decide(order, nodes, now)
			assert.Equal(t, d, Decide(order, nodes, now))
			away, control := 0, 0
			for _, a := range d.Actions {
				n := &nodes[slices.IndexFunc(nodes, func(n Node) bool { return n.Name == a.Node })]
				if a.IsAway {
					away++
					if n.ControlPlane {
						control++
					}
				}
				if a.Step != StepWait {
					done[n.Name] = append(done[n.Name], string(a.Step))
				}
				if a.Step == StepOpen {
					order1 = append(order1, n.Name)
				}
				perform(n, a.Step)
			}
			assert.LessOrEqual(t, away, max(most, 1))
			assert.True(t, control == 0 || away == 1, "a node is away beside a control plane")
			if d.Phase == v1alpha1.PhaseReady {
				break
			}
		}
		install, reboot := []string{"close", "install", "open"}, []string{"close", "reboot", "open"}
		both := []string{"close", "install", "reboot", "open"}
		assert.Equal(t, map[string][]string{"m1": install, "m2": both, "w1": install, "w2": reboot, "w3": both, "w5": install}, done)
		assert.Equal(t, []string{"m1", "m2"}, order1[:2])
	}
}

// perform is what becomes of a node by a step.
func perform(n *Node, s Step) {
	switch s {
	case StepClose:
		closed(n)
	case StepInstall:
		n.Facts.Preview.Changes = nil
	case StepReboot:
		rebooted(n)
		n.Facts.NeedsReboot = false
	case StepOpen:
		n.Mark, n.IsClosed, n.UpdatedBy = nil, false, "u/1"
	}
}
