package metal3provider

import (
	"context"
	"encoding/json"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
)

const (
	pausedByProvider    = "metal3.io/capm3"                        // value of metal3api.PausedAnnotation
	annotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move" // of a host that is not ready to be moved

	// labelMove has `clusterctl move` take a host along, with what it owns: those of machines, and no others.
	labelMove = "clusterctl.cluster.x-k8s.io/move-hierarchy"
)

// pauseHost pauses the host of a machine whose Cluster is paused, with what its status says, so that clusterctl can
// move it; and takes that back.
func (r *Machines) pauseHost(ctx context.Context, m *machine, s surroundings, paused bool) error {
	name := hostName(m)
	if name == "" || s.cluster == nil {
		return nil
	}

	h, err := r.readHost(ctx, m.Namespace, name)
	if err != nil || h == nil || !choice.IsConsumedBy(h, m.Namespace, m.Name) {
		return err
	}

	moving := paused && ptr.Deref(s.cluster.Spec.Paused, false)
	text := ""
	if _, already := h.Annotations[metal3api.PausedAnnotation]; moving && !already {
		if text, err = statusAnnotation(h); err != nil {
			return err
		}
	}

	_, err = r.writeHost(ctx, h, func(h *host) { setPause(h, moving, text, s.cluster.Name) })
	return err
}

// setPause writes the annotations of a host whose Cluster is paused, or not. One that somebody else paused is left so.
// It is pure.
func setPause(h *host, moving bool, status, cluster string) {
	if h.Annotations == nil {
		h.Annotations = map[string]string{}
	}

	by, paused := h.Annotations[metal3api.PausedAnnotation]
	switch {
	case moving:
		if !paused {
			h.Annotations[metal3api.PausedAnnotation] = pausedByProvider
			h.Annotations[metal3api.StatusAnnotation] = status
		}
		delete(h.Annotations, annotationBlockMove)
	default:
		if paused && by == pausedByProvider && h.Labels[clusterv1.ClusterNameLabel] == cluster {
			delete(h.Annotations, metal3api.PausedAnnotation)
		}
		h.Annotations[annotationBlockMove] = ""
	}
}

// statusAnnotation is a host's status without its hardware, from which the operator rebuilds it where it was moved to.
func statusAnnotation(h *host) (string, error) {
	text, err := json.Marshal(h.Status)
	if err != nil {
		return "", fmt.Errorf("encode status of host %s: %w", h.Name, err)
	}

	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", fmt.Errorf("encode status of host %s: %w", h.Name, err)
	}
	delete(fields, "hardware")
	if text, err = json.Marshal(fields); err != nil {
		return "", fmt.Errorf("encode status of host %s: %w", h.Name, err)
	}

	return string(text), nil
}
