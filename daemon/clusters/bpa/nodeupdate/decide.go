package nodeupdate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Decision is what is done now, and how the NodeUpdate stands.
type Decision struct {
	Actions []Action // of every node, control planes first, then by name
	Phase   string
	Reason  string
	Message string
	Ready   int // nodes that are up to date and in service

	hold *Hold // why an outdated node is still in service
}

// Decide is what is done next on the nodes of a cluster. Nodes that are out of service are continued, whatever else
// holds. Another one is taken out only if none failed: a control plane while every other node is in service, a worker
// when all control planes are done and fewer than MaxUnavailable nodes are away.
func Decide(o Order, nodes []Node, now time.Time) Decision {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b Node) int {
		return cmp.Or(-compareBool(a.ControlPlane, b.ControlPlane), cmp.Compare(a.Name, b.Name))
	})
	d := Decision{Actions: make([]Action, len(nodes))}
	for i, n := range nodes {
		if n.Mark != nil && !o.Others[n.Mark.UID] {
			d.Actions[i] = o.continueNode(n, now)
			continue
		}
		d.Actions[i] = o.describeNode(n)
	}

	if !slices.ContainsFunc(d.Actions, func(a Action) bool { return a.Failure != nil }) {
		d.closeNodes(o, nodes)
	}
	d.Conclude()
	return d
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// describeNode is how a node stands that this NodeUpdate has not taken out of service.
func (o Order) describeNode(n Node) Action {
	a := Action{Node: n.Name, Phase: v1alpha1.NodeUpToDate}
	switch {
	case n.Facts == nil:
		a.Phase, a.Message = v1alpha1.NodeUnknown, cmp.Or(n.Error, "not asked yet")
	case n.Facts.Preview.Error != "":
		a.fail(explainPackages(n))
	case o.isOutdated(n):
		a.Phase, a.Message = v1alpha1.NodeOutdated, o.describeOutdated(n)
		if f := o.checkChanges(n.Facts.Preview.Changes); f != nil {
			a.fail(f)
		}
	}
	return a
}

// closeNodes takes as many nodes out of service as may be.
func (d *Decision) closeNodes(o Order, nodes []Node) {
	away := 0
	for _, n := range nodes {
		switch {
		case n.Mark != nil && o.Others[n.Mark.UID]:
			const text = "node %s is out of service for NodeUpdate %s; this one follows"
			d.hold = &Hold{ReasonOtherUpdate, fmt.Sprintf(text, n.Name, n.Mark.Update)}
			return
		case n.Mark != nil, n.Facts == nil, !n.IsReady:
			away++
		}
	}

	for i, n := range nodes {
		if n.Mark != nil && n.ControlPlane {
			return // workers wait, and other control planes
		}
		if d.Actions[i].Phase != v1alpha1.NodeOutdated && (!n.ControlPlane || n.Facts != nil) {
			continue
		}
		if hold := o.checkTurn(n, nodes, away); hold != nil {
			d.hold = cmp.Or(d.hold, hold)
			if n.ControlPlane {
				return
			}
			continue
		}

		d.Actions[i] = Action{
			Node: n.Name, Step: StepClose, IsAway: true,
			Phase: v1alpha1.NodeDraining, Message: "taking it out of service",
		}
		away++
		if n.ControlPlane {
			return
		}
	}
}

// checkTurn is why an outdated node stays in service for now, while so many are away.
func (o Order) checkTurn(n Node, nodes []Node, away int) *Hold {
	most := max(o.MaxUnavailable, 1)
	if n.ControlPlane {
		most = 1
	}
	switch {
	case o.Hold != nil:
		return o.Hold
	case n.Facts == nil || !n.IsReady:
		return describeAbsent(n)
	case away < most:
		return nil
	}

	for _, other := range nodes {
		if other.Mark == nil && (other.Facts == nil || !other.IsReady) {
			return describeAbsent(other)
		}
	}
	return &Hold{ReasonUpdating, "others are out of service"}
}

// describeAbsent says that a node that is not out of service for an update is away.
func describeAbsent(n Node) *Hold {
	switch {
	case n.Facts == nil && n.Error == "":
		return &Hold{ReasonUpdating, fmt.Sprintf("node %s is being asked", n.Name)}
	case n.Facts == nil:
		return &Hold{ReasonNodeSilent, describeSilent(n.Name, n.Error)}
	}
	return &Hold{ReasonNodeNotReady, fmt.Sprintf("node %s is not Ready; see kubectl describe node %s", n.Name, n.Name)}
}

func describeSilent(node, fault string) string {
	return fmt.Sprintf("node %s does not answer: %s; switch it on, or take it out of the cluster", node, fault)
}

// Conclude is how the NodeUpdate stands by its Actions. Whoever adds Failures to them calls it again.
func (d *Decision) Conclude() {
	var doing, failed *Action
	d.Ready = 0
	away := 0
	for i := range d.Actions {
		switch a := &d.Actions[i]; {
		case a.Failure != nil:
			failed = cmp.Or(failed, a)
		case a.IsAway:
			doing = cmp.Or(doing, a)
			away++
		case a.Phase == v1alpha1.NodeUpToDate:
			d.Ready++
		}
	}

	count := fmt.Sprintf("%d of %d nodes are up to date", d.Ready, len(d.Actions))
	switch {
	case failed != nil:
		d.Phase, d.Reason = v1alpha1.PhaseFailed, failed.Failure.Reason
		d.Message = fmt.Sprintf("node %s: %s; no other node is begun with; %s", failed.Node, failed.Message, count)
	case doing != nil:
		name := "node " + doing.Node
		if away > 1 {
			name = fmt.Sprintf("%s and %d more", name, away-1)
		}
		d.Phase, d.Reason = v1alpha1.PhaseUpdating, ReasonUpdating
		d.Message = fmt.Sprintf("%s: %s; %s", name, doing.Message, count)
	case d.hold != nil:
		d.Phase, d.Reason, d.Message = v1alpha1.PhaseWaiting, d.hold.Reason, d.hold.Sentence+"; "+count
	case d.Ready == len(d.Actions):
		d.Phase, d.Reason = v1alpha1.PhaseReady, ReasonUpToDate
		d.Message = fmt.Sprintf("all %d nodes are up to date", d.Ready)
	default:
		d.concludeUnknown(count)
	}
}

// concludeUnknown is how the NodeUpdate stands if nothing is done and nothing fails: of some nodes nothing is known, or
// one was just put back into service and the next follows.
func (d *Decision) concludeUnknown(count string) {
	for _, a := range d.Actions {
		if a.Phase == v1alpha1.NodeUnknown {
			d.Phase, d.Reason = v1alpha1.PhaseWaiting, ReasonNodeSilent
			d.Message = describeSilent(a.Node, a.Message) + "; " + count
			return
		}
	}
	d.Phase, d.Reason, d.Message = v1alpha1.PhaseUpdating, ReasonUpdating, count
}
