package operator

import (
	"context"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// recordPart records what a first installation came to that failed because of some of its workers: one dead
// server does not keep the others from being nodes of a cluster that can be used.
func (r *Provisionings) recordPart(ctx context.Context, w *clusterState) error {
	if !w.jobFailed() || len(w.config) == 0 {
		return nil
	}
	if w.record != nil && w.record.Begun {
		return r.publishResults(ctx, w) // it may have been cut off
	}
	if w.record != nil {
		return nil
	}

	text, err := w.dir.read(contract.FileProgress)
	if err != nil {
		return fmt.Errorf("read progress: %w", err)
	}

	part := w.run.PartialRecord(w.cr.Namespace+"/"+w.cr.Name, string(w.job.UID), contract.ReadProgress(text).Ready)
	if part == nil {
		return nil
	}
	if err := w.dir.write(contract.FileInstalled, part.Encode(), 0o644); err != nil {
		return err
	}

	w.record = part
	return r.publishResults(ctx, w)
}

// isUnready tells whether a node was begun with and is not Ready.
func (w *clusterState) isUnready(m kud.Node) bool {
	if w.record == nil {
		return false
	}
	for _, o := range w.record.Unready {
		if o.Label == m.Label && o.Host == m.Host {
			return true
		}
	}
	return false
}

// partText says what of a cluster is there of which some nodes are not Ready; "" of any other.
func (w *clusterState) partText() string {
	if w.record == nil || len(w.record.Unready) == 0 {
		return ""
	}

	var dead []string
	for _, m := range w.record.Unready {
		dead = append(dead, m.Label)
	}

	return fmt.Sprintf("%d of %d nodes are installed, not %s: fix it, or take it out of this Provisioning; ",
		len(w.record.Members), len(w.record.Members)+len(dead), strings.Join(dead, ", "))
}
