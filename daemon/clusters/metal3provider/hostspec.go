package metal3provider

import (
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// consumerRef is the claim of a Metal3Machine on a host.
func consumerRef(m *machine) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1beta2.GroupVersion.String(),
		Kind:       "Metal3Machine",
		Namespace:  m.Namespace,
		Name:       m.Name,
	}
}

// claim makes a host the machine's, and nothing else of it.
func claim(h *host, m *machine, cluster string) {
	h.Spec.ConsumerRef = consumerRef(m)
	if h.Labels == nil {
		h.Labels = map[string]string{}
	}
	h.Labels[clusterv1.ClusterNameLabel], h.Labels[labelMove] = cluster, ""
	delete(h.Labels, choice.LabelNodeReuse)
}

// unclaim takes that back.
func unclaim(h *host, cluster string) {
	h.Spec.ConsumerRef = nil
	if h.Labels[clusterv1.ClusterNameLabel] == cluster {
		delete(h.Labels, clusterv1.ClusterNameLabel)
		delete(h.Labels, labelMove)
	}
}

// specify is what a host is told once all that it is to boot with is there. A host that has an image is never given
// another one. It is pure.
func specify(h *host, m *machine, cluster string) {
	claim(h, m, cluster)
	if h.Spec.Image != nil || h.Spec.CustomDeploy != nil || m.Status.UserData == nil {
		return
	}

	h.Spec.Online = true
	h.Spec.UserData = m.Status.UserData.DeepCopy()
	h.Spec.MetaData = m.Status.MetaData.DeepCopy()
	if m.Status.NetworkData != nil {
		h.Spec.NetworkData = m.Status.NetworkData.DeepCopy()
	}
	if d := m.Spec.CustomDeploy; d != nil {
		h.Spec.CustomDeploy = &metal3api.CustomDeploy{Method: d.Method}
	}
	if i := m.Spec.Image; i != nil && i.URL != "" {
		h.Spec.Image = hostImage(i)
	}
	// The host is checked again before this image is written: an earlier one of the same URL says nothing of the disk.
	delete(h.Annotations, label.Cleared)
}

func hostImage(i *v1beta2.Image) *metal3api.Image {
	out := &metal3api.Image{URL: i.URL, Checksum: i.Checksum}
	if i.ChecksumType != nil {
		out.ChecksumType = metal3api.ChecksumType(*i.ChecksumType)
	}
	if i.DiskFormat != nil && *i.DiskFormat != "" {
		format := *i.DiskFormat
		out.DiskFormat = &format
	}
	return out
}

// empty takes from a host what the machine gave it, and switches it off. It is pure.
func empty(h *host) {
	h.Spec.Image, h.Spec.CustomDeploy = nil, nil
	h.Spec.UserData, h.Spec.MetaData, h.Spec.NetworkData = nil, nil, nil
	h.Spec.Online = false
}

// isEmpty reports whether empty has been written.
func isEmpty(h *host) bool {
	return h.Spec.Image == nil && h.Spec.CustomDeploy == nil && h.Spec.UserData == nil && h.Spec.MetaData == nil &&
		h.Spec.NetworkData == nil && !h.Spec.Online
}

// idleStates are those of a host that nothing of a machine is on any more.
var idleStates = map[metal3api.ProvisioningState]bool{
	metal3api.StateNone:         true,
	metal3api.StateUnmanaged:    true,
	metal3api.StateRegistering:  true,
	metal3api.StateMatchProfile: true,
	metal3api.StateInspecting:   true,
	metal3api.StateReady:        true,
	metal3api.StateAvailable:    true,
}

// isDeprovisioned reports whether an empty host may go to the next owner. It is pure.
func isDeprovisioned(h *host) bool {
	if h.Status.Provisioning.State == metal3api.StateExternallyProvisioned {
		return !h.Status.PoweredOn
	}
	return idleStates[h.Status.Provisioning.State]
}

func failureDomain(h *host) string { return h.Labels[choice.LabelFailureDomain] }

// hostAddresses are what inspection found: Machine addresses come from here until the Node has its own.
func hostAddresses(h *host) []v1beta2.MachineAddress {
	var all []v1beta2.MachineAddress
	name := h.Name
	if d := h.Status.HardwareDetails; d != nil {
		for _, n := range d.NIC {
			if n.IP != "" {
				all = append(all, v1beta2.MachineAddress{Type: string(clusterv1.MachineInternalIP), Address: n.IP})
			}
		}
		if d.Hostname != "" {
			name = d.Hostname
		}
	}
	return append(all,
		v1beta2.MachineAddress{Type: string(clusterv1.MachineHostName), Address: name},
		v1beta2.MachineAddress{Type: string(clusterv1.MachineInternalDNS), Address: name},
	)
}

func secretRef(namespace, name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: namespace, Name: name}
}

// ownSecret is a reference with its namespace filled in; nil stays nil. Another namespace is an error: a machine is
// lent nothing from elsewhere.
func ownSecret(namespace string, ref *corev1.SecretReference) (*corev1.SecretReference, error) {
	if ref == nil || ref.Name == "" {
		return nil, nil
	}
	if ref.Namespace != "" && ref.Namespace != namespace {
		return nil, fmt.Errorf("Secret %s is of namespace %s; put it into %s", ref.Name, ref.Namespace, namespace)
	}
	return secretRef(namespace, ref.Name), nil
}
