package operator

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
)

// release takes the claim away. The mark of what is on the disk stays, unless the node was taken out by
// a run and cleared; one that did not answer is marked as such, and no cluster gets it by chance.
func (r *Provisionings) release(ctx context.Context, w *clusterState, name string) error {
	node := claimOf(w.bmh[name].Spec.ConsumerRef).Node
	removed := w.isRecorded() && w.run.Action == kud.Remove && slices.Contains(w.run.Nodes, node)
	why := ""
	if removed {
		text, err := w.dir.read(kud.FileRemoved)
		if err != nil {
			return fmt.Errorf("read what was removed: %w", err)
		}
		why = kud.ReadDirty(text)[node]
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

// leftoverWarnings warns of hosts that were taken out of this cluster and still hold what it left there.
func (w *clusterState) leftoverWarnings() []string {
	var all []string
	for name, b := range w.bmh {
		cluster, why := dirtyFrom(b)
		if cluster != w.cluster || b.Spec.ConsumerRef != nil {
			continue
		}
		all = append(all, fmt.Sprintf("host %s was taken out of cluster %s without being cleared: %s; switched on, it comes back as a node of it: "+
			"install its system anew, or name it by its MAC in a Provisioning, whose installer clears it first", name, cluster, why))
	}
	slices.Sort(all)
	return all
}
