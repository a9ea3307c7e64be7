package operator

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// release takes the claim away. The mark of what is on the disk stays, unless the node was taken out by
// a run and cleared; one that did not answer is marked as such, and no cluster gets it by chance.
func (r *Provisionings) release(ctx context.Context, w *clusterState, name string) error {
	node := claimOf(w.bmh[name].Spec.ConsumerRef).Node
	removed := w.isRecorded() && w.run.Action == contract.Remove && slices.Contains(w.run.Nodes, node)
	why := ""
	if removed {
		text, err := w.dir.read(contract.FileRemoved)
		if err != nil {
			return fmt.Errorf("read what was removed: %w", err)
		}
		why = contract.ReadRemoved(text).Dirty[node]
	}

	return r.patchHost(ctx, w, name, func(b *host) {
		b.Spec.ConsumerRef = nil
		switch {
		case why != "":
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, label.Installed, w.cluster+"@"+installedAt(b))
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, label.Dirty, w.cluster+": "+node+": "+why)
		case removed:
			delete(b.Annotations, label.Installed)
			delete(b.Annotations, label.Dirty)
		}
	})
}

// leftovers are the members, by label, whose host another cluster, or another life in this one, let go of
// without clearing it: the installer may clear away what that cluster left there, and nothing else.
func (w *clusterState) leftovers(members []kud.Node) map[string]string {
	all := map[string]string{}
	for _, m := range members {
		b := w.host(m)
		if b == nil || recordedNode(w.record, m) != nil {
			continue
		}
		if cluster, _ := dirtyFrom(b); cluster != "" {
			all[m.Label] = cluster
		}
	}
	return all
}

// clearLeftoverMark takes the mark off hosts that are nodes of the cluster now: they were cleared.
func (r *Provisionings) clearLeftoverMark(ctx context.Context, w *clusterState) error {
	for _, m := range w.record.Members {
		b := w.host(m)
		if b == nil || b.Annotations[label.Dirty] == "" {
			continue
		}
		if err := r.patchHost(ctx, w, m.Host, func(b *host) { delete(b.Annotations, label.Dirty) }); err != nil {
			return err
		}
	}
	return nil
}

// Leftover is a host that was taken out of a cluster and still holds what that left there.
type Leftover struct {
	Host    string // namespace/name
	Cluster string
	Why     string // it was not cleared
}

// Sentence says what is wrong and what to do.
func (l Leftover) Sentence() string {
	return fmt.Sprintf("host %s was taken out of cluster %s without being cleared: %s; switched on, it comes back as a node of it: "+
		"install its system again, or name it by its MAC in a Provisioning, whose installer clears it first", l.Host, l.Cluster, l.Why)
}

// FindLeftovers returns a cluster's leftovers on hosts that nobody has claimed since, by the name of the host.
func FindLeftovers(cluster string, hosts iter.Seq[*host]) []Leftover {
	var all []Leftover
	for b := range hosts {
		from, why := dirtyFrom(b)
		if from == cluster && b.Spec.ConsumerRef == nil {
			all = append(all, Leftover{Host: b.Namespace + "/" + b.Name, Cluster: cluster, Why: why})
		}
	}

	slices.SortFunc(all, func(a, b Leftover) int { return strings.Compare(a.Host, b.Host) })
	return all
}
