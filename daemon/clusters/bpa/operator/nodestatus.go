package operator

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// maxChanges is how many packages of one node are in a status: all of a large cluster's do not fit into an object.
const maxChanges = 20

// describe is how the nodes stand. What the packages were before an update is kept from the status before: the node
// does not know it any more.
func (u *nodeUpdate) describe(nodes []nodeupdate.Node, d nodeupdate.Decision) {
	before := u.status.Nodes
	u.status.Nodes = nil
	for _, a := range d.Actions {
		n := nodes[slices.IndexFunc(nodes, func(n nodeupdate.Node) bool { return n.Name == a.Node })]
		s := v1alpha1.UpdatedNode{Name: n.Name}
		if i := slices.IndexFunc(before, func(o v1alpha1.UpdatedNode) bool { return o.Name == n.Name }); i >= 0 {
			s = before[i]
		}

		s.ControlPlane, s.Phase, s.Message = n.ControlPlane, a.Phase, a.Message
		s.Version = n.Version
		if n.Facts != nil && len(n.Facts.Preview.Changes) > 0 {
			s = addChanges(s, n.Facts.Preview.Changes, n.Mark != nil)
		}
		if a.Step == nodeupdate.StepOpen && !a.IsAway {
			s.Updated = &metav1.Time{Time: u.now}
		}
		u.status.Nodes = append(u.status.Nodes, s)
	}
	u.status.NodesReady = fmt.Sprintf("%d/%d", d.Ready, len(nodes))
}

// addChanges adds what changes on a node. While it is out of service, they are the rest of an update: some packages may
// have changed already, and one whose installation was interrupted does not say what it was before.
func addChanges(s v1alpha1.UpdatedNode, changes []software.Change, continues bool) v1alpha1.UpdatedNode {
	all := slices.Clone(s.Packages)
	more := max(int(s.Changes)-len(all), 0)
	if !continues {
		all, more = nil, 0
	}
	for _, c := range changes {
		i := slices.IndexFunc(all, func(p v1alpha1.PackageChange) bool { return p.Name == c.Name })
		switch {
		case i >= 0:
			all[i].After = c.To
		case more > 0:
			more-- // it is one of those that were only counted
			fallthrough
		default:
			all = append(all, v1alpha1.PackageChange{Name: c.Name, Before: c.From, After: c.To})
		}
	}

	s.Changes = int32(len(all) + more)
	s.Packages = all[:min(len(all), maxChanges)]
	return s
}
