package metal3provider

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// syncLabels makes the labels of a host that its Metal3Cluster names by their prefixes those of its Node.
func (r *Machines) syncLabels(ctx context.Context, s surroundings, h *host) error {
	prefixes := labelPrefixes(s.infra.Annotations[v1beta2.AnnotationLabelSync])
	name := s.machine.Status.NodeRef.Name
	if len(prefixes) == 0 || name == "" {
		return nil
	}

	workload, err := r.Workload(ctx, key(s.cluster))
	if err != nil {
		return fmt.Errorf("label Node %s: %v", name, err)
	}

	// An error of the cluster's own API server is no refusal of this appliance's.
	node := &corev1.Node{}
	if err := workload.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return fmt.Errorf("label Node %s: %v", name, err)
	}

	changes := labelChanges(h.Labels, node.Labels, prefixes)
	if len(changes) == 0 {
		return nil
	}

	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changes}})
	if err != nil {
		return fmt.Errorf("label Node %s: %w", name, err)
	}

	node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := workload.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("label Node %s: %v", name, err)
	}

	return nil
}

// labelPrefixes reads the annotation: prefixes with commas between.
func labelPrefixes(text string) []string {
	var all []string
	for p := range strings.SplitSeq(text, ",") {
		if p = strings.TrimSpace(p); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// labelChanges is what must change of a Node's labels, nil for one that goes: those with one of the prefixes are the
// host's, all others the Node's own. It is pure.
func labelChanges(host, node map[string]string, prefixes []string) map[string]any {
	isSynced := func(label string) bool {
		prefix, _, found := strings.Cut(label, "/")
		return found && slices.Contains(prefixes, prefix)
	}

	changes := map[string]any{}
	for label := range node {
		if _, stays := host[label]; isSynced(label) && !stays {
			changes[label] = nil
		}
	}
	for label, value := range host {
		if have, had := node[label]; isSynced(label) && (!had || have != value) {
			changes[label] = value
		}
	}
	return changes
}
