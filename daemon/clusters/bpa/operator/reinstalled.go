package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// noteReinstalled finds the nodes of an installed cluster whose host has another system than the last run found there:
// its server was installed again, or is another one under the same name. Such a worker is no member any more and is to
// be joined, as one that was never Ready is. The annotation that start writes on each host says what a run found; a host
// that the appliance restored after a loss of its API has lost it.
func (w *clusterState) noteReinstalled() {
	if w.record == nil {
		return
	}

	record := *w.record
	record.Members = nil
	for _, m := range w.record.Members {
		switch b := w.host(m); {
		case b == nil || installedAt(b) == "" || previousCluster(b) == w.cluster || w.isRestored(m):
			record.Members = append(record.Members, m)
		case m.Master:
			record.Members = append(record.Members, m)
			w.emptied = append(w.emptied, m.Label)
		default:
			record.Unready = append(slices.Clone(record.Unready), m)
			w.rejoining = append(w.rejoining, m.Label)
		}
	}
	if len(w.rejoining) > 0 {
		w.record = &record
	}
}

// isRestored reports whether the host of a member comes from its backup, which has its claim and no annotations. A host
// that is another machine's comes without a claim, and gets an annotation with it (claim).
func (w *clusterState) isRestored(m kud.Node) bool {
	b := w.host(m)
	return b != nil && b.Annotations[label.Installed] == "" &&
		claimOf(b.Spec.ConsumerRef) == match.Claim{Owner: w.owner, Node: m.Label}
}

// markRestored writes the annotation on such hosts again, so that their next system is known for another one.
func (r *Provisionings) markRestored(ctx context.Context, w *clusterState) error {
	for _, m := range w.record.Members {
		if !w.isRestored(m) || installedAt(w.host(m)) == "" {
			continue
		}
		if err := r.markInstalled(ctx, w, m); err != nil {
			return err
		}
	}
	return nil
}

// markEmptied writes it on control planes that a run has made part of the cluster again.
func (r *Provisionings) markEmptied(ctx context.Context, w *clusterState) error {
	for _, m := range w.run.Members {
		if w.run.Action == contract.Remove || !slices.Contains(w.emptied, m.Label) || w.host(m) == nil {
			continue
		}
		if err := r.markInstalled(ctx, w, m); err != nil {
			return err
		}
	}
	return nil
}

// markInstalled writes on a member's host that its system is one of the cluster.
func (r *Provisionings) markInstalled(ctx context.Context, w *clusterState, m kud.Node) error {
	return r.patchHost(ctx, w, m.Host, func(b *host) {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, label.Installed, w.cluster+"@"+installedAt(b))
	})
}

// isAnotherSystem reports whether noteReinstalled found another system at a node.
func (w *clusterState) isAnotherSystem(m kud.Node) bool {
	return slices.Contains(w.rejoining, m.Label) || slices.Contains(w.emptied, m.Label)
}

// saveReinstalled writes down which workers are to be joined, before the annotations of their hosts say that a run has
// begun with them: a run that fails leaves them to the next one.
func (w *clusterState) saveReinstalled() error {
	if len(w.rejoining) == 0 {
		return nil
	}
	return w.dir.write(contract.FileInstalled, w.record.Encode(), 0o644)
}

// rejoinReason is what the status says of a node that is to be joined again; "" of any other.
func (w *clusterState) rejoinReason(m kud.Node) string {
	if !slices.Contains(w.rejoining, m.Label) {
		return ""
	}
	return "its host " + m.Host + " has another system than the one that was part of the cluster; it is joined again"
}

// emptiedSentence is about control planes whose host has another system; "" if there is none.
func (w *clusterState) emptiedSentence() string {
	if len(w.emptied) == 0 {
		return ""
	}
	return fmt.Sprintf("the host of control plane %s has another system than the one that was part of the cluster, and "+
		"the cluster counts on its etcd still; see docs/clusters.md, \"Later\"", strings.Join(w.emptied, ", "))
}
