package operator

import (
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// noteReinstalled finds the nodes of an installed cluster whose host has another system than the last run found there:
// its server was installed again, or is another one under the same name. Such a worker is no member any more and is to
// be joined, as one that was never Ready is. The annotation that start writes on each host says what a run found.
func (w *clusterState) noteReinstalled() {
	if w.record == nil {
		return
	}

	record := *w.record
	record.Members = nil
	for _, m := range w.record.Members {
		switch b := w.host(m); {
		case b == nil || installedAt(b) == "" || previousCluster(b) == w.cluster:
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
