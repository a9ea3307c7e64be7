package metal3provider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// reuseLabel is the value of choice.LabelNodeReuse for machines of the same control plane or deployment; "" for a
// Machine of neither.
func reuseLabel(m *clusterv1.Machine) string {
	if m == nil {
		return ""
	}
	if name := m.Labels[clusterv1.MachineControlPlaneNameLabel]; name != "" {
		return "cp-" + name
	}
	if name := m.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return "md-" + name
	}
	return ""
}

// isKept reports whether the host of a deleted machine waits for the next machine of its kind: its template says so,
// and the cluster stays.
func (r *Machines) isKept(ctx context.Context, m *machine, s surroundings) (bool, error) {
	if s.cluster == nil || !s.cluster.DeletionTimestamp.IsZero() || reuseLabel(s.machine) == "" {
		return false, nil
	}
	name := m.Annotations[clusterv1.TemplateClonedFromNameAnnotation]
	if name == "" {
		return false, nil
	}

	t := &v1beta2.Metal3MachineTemplate{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, t)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Metal3MachineTemplate %s: %w", name, err)
	}

	return ptr.Deref(t.Spec.NodeReuse, false), nil
}

// keepFor books a released host for its cluster.
func keepFor(h *host, reuse string, cluster *clusterv1.Cluster) {
	if h.Labels == nil {
		h.Labels = map[string]string{}
	}
	h.Labels[choice.LabelNodeReuse] = reuse
	h.Spec.ConsumerRef = &corev1.ObjectReference{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       "Cluster",
		Namespace:  cluster.Namespace,
		Name:       cluster.Name,
	}
}
