package operator

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/address"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

const kindProvisioning = "Provisioning"

// ownerName is how a Provisioning is named as the owner of a host.
func ownerName(namespace, name string) string { return kindProvisioning + " " + namespace + "/" + name }

// consumerRef is what a host's consumerRef says when it is that node of that Provisioning.
func consumerRef(p *v1alpha1.Provisioning, label string) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       kindProvisioning,
		Namespace:  p.Namespace,
		Name:       p.Name,
		UID:        p.UID,
		FieldPath:  "node{" + label + "}",
	}
}

// claimOf reads a consumerRef; another consumer's, such as Cluster API's, is a claim too.
func claimOf(ref *corev1.ObjectReference) match.Claim {
	if ref == nil {
		return match.Claim{}
	}
	label, _ := strings.CutPrefix(ref.FieldPath, "node{")
	return match.Claim{Owner: ref.Kind + " " + ref.Namespace + "/" + ref.Name, Node: strings.TrimSuffix(label, "}")}
}

// checkVerified is the small interface to whoever proves hosts: nil, or why it is not proven.
func checkVerified(b *metal3api.BareMetalHost) error {
	if b.Labels[label.Verified] != "true" {
		return fmt.Errorf("is provisioned, but not proven to work yet (label %s)", label.Verified)
	}
	return nil
}

// hostFacts is a host as matching sees it.
func hostFacts(b *metal3api.BareMetalHost) match.Host {
	h := match.Host{
		Name:            b.Namespace + "/" + b.Name,
		Claim:           claimOf(b.Spec.ConsumerRef),
		MACs:            hostMACs(b),
		PreviousCluster: previousCluster(b),
	}
	if cluster, why := dirtyFrom(b); cluster != "" {
		h.DirtyFrom = cluster + ", " + why
	}

	if d := b.Status.HardwareDetails; d != nil {
		h.CPU, h.Memory = d.CPU.Count, int64(d.RAMMebibytes)<<20
		h.SRIOV = slices.ContainsFunc(d.NIC, func(n metal3api.NIC) bool { return hasVirtualFunctions(n.Model) })
	}

	// The owner's word, else what inspection found by the server's PCI devices, else by the table of NICs.
	h.SRIOV = says(b, h.SRIOV, label.SRIOV, label.FoundSRIOV)
	h.QAT = says(b, false, label.QAT, label.FoundQAT)
	switch state := b.Status.Provisioning.State; {
	case b.DeletionTimestamp != nil:
		h.UnusableReason = "is being deleted"
	case state != metal3api.StateProvisioned && state != metal3api.StateExternallyProvisioned:
		if state == "" {
			state = "new"
		}
		h.UnusableReason = fmt.Sprintf("is %s, not provisioned yet", state)
		if b.Status.ErrorMessage != "" {
			h.UnusableReason += ": " + apply.RedactIronicError(b.Status.ErrorMessage)
		}
	case b.Annotations[label.UserData] == "ignition":
		h.UnusableReason = "has an image that reads Ignition; clusters are made of Debian nodes with cloud-init"
	default:
		if err := checkVerified(b); err != nil {
			h.UnusableReason = err.Error()
		}
	}

	return h
}

// says is what the first of some labels that a host has says; otherwise if it has none.
func says(b *metal3api.BareMetalHost, otherwise bool, labels ...string) bool {
	for _, l := range labels {
		if v, said := b.Labels[l]; said {
			return v == "true"
		}
	}
	return otherwise
}

// hostMACs are all by which a host is known, in lower case: those of its NICs and the one it
// boots from.
func hostMACs(b *metal3api.BareMetalHost) []string {
	var all []string
	if b.Spec.BootMACAddress != "" {
		all = append(all, strings.ToLower(b.Spec.BootMACAddress))
	}

	if b.Status.HardwareDetails != nil {
		for _, n := range b.Status.HardwareDetails.NIC {
			all = append(all, strings.ToLower(n.MAC))
		}
	}

	slices.Sort(all)
	return slices.Compact(all)
}

// installedAt tells one installation of a host's disk from the next.
func installedAt(b *metal3api.BareMetalHost) string {
	at := b.Status.OperationHistory.Provision.End
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// previousCluster is the cluster that was installed on what is on the host's disk now.
func previousCluster(b *metal3api.BareMetalHost) string {
	cluster, at, _ := strings.Cut(b.Annotations[label.Installed], "@")
	if at != installedAt(b) {
		return ""
	}
	return cluster
}

// dirtyFrom is the cluster that let go of a host without clearing it, and why; "" if none did, or if the
// host's disk was installed anew since.
func dirtyFrom(b *metal3api.BareMetalHost) (cluster, why string) {
	if previousCluster(b) == "" {
		return "", ""
	}
	cluster, why, _ = strings.Cut(b.Annotations[label.Dirty], ": ")
	return cluster, why
}

// addressHost is a host as looking for its address sees it; networkData may be empty.
func addressHost(b *metal3api.BareMetalHost, networkData []byte) (address.Host, error) {
	h := address.Host{Name: b.Namespace + "/" + b.Name, BootMAC: strings.ToLower(b.Spec.BootMACAddress)}
	if b.Status.HardwareDetails != nil {
		for _, n := range b.Status.HardwareDetails.NIC {
			ip, _ := netip.ParseAddr(n.IP)
			h.NICs = append(h.NICs, address.NIC{MAC: strings.ToLower(n.MAC), Addr: ip})
		}
	}

	if len(networkData) == 0 {
		return h, nil
	}

	text, err := yaml.YAMLToJSON(networkData) // Metal3 takes both
	if err == nil {
		h.Static, err = address.ParseNetworkData(text)
	}

	if err == nil {
		h.Linked, err = address.ParseLinked(text)
	}

	if err != nil {
		return h, fmt.Errorf("host %s: %w", h.Name, err)
	}

	return h, nil
}

// hostKey is the SSH host key that an owner's own user data gives a host; "" if it gives none. Hosts to which the
// appliance gives user data make theirs, and are annotated with it.
func hostKey(userData []byte) string {
	var d struct {
		Keys struct {
			Public string `json:"ed25519_public"`
		} `json:"ssh_keys"`
	}
	if yaml.Unmarshal(userData, &d) != nil {
		return ""
	}
	return strings.TrimSpace(d.Keys.Public)
}

// Annotations of virtlet's pods, as ICN read them.
const (
	annotationRuntime  = "kubernetes.io/target-runtime"
	runtimeVirtlet     = "virtlet.cloud"
	annotationNetworks = "k8s.v1.cni.cncf.io/networks-status"
)

// virtualMachine is a running pod of virtlet's as a host with one NIC; false for any other.
func virtualMachine(p *corev1.Pod) (match.Host, address.Host, bool) {
	if p.Status.Phase != corev1.PodRunning || p.Annotations[annotationRuntime] != runtimeVirtlet || p.DeletionTimestamp != nil {
		return match.Host{}, address.Host{}, false
	}

	var networks []struct {
		MAC string `json:"mac"`
	}
	if json.Unmarshal(
		[]byte(p.Annotations[annotationNetworks]), &networks,
	) != nil || len(networks) == 0 || networks[0].MAC == "" {
		return match.Host{}, address.Host{}, false
	}

	mac := strings.ToLower(networks[0].MAC)
	ip, _ := netip.ParseAddr(p.Status.PodIP)
	name := p.Namespace + "/" + p.Name
	return match.Host{
		Name: name,
		MACs: []string{mac},
	}, address.Host{Name: name, NICs: []address.NIC{{MAC: mac, Addr: ip}}}, true
}

// virtualFunctions are NICs with SR-IOV by PCI vendor and device, as inspection writes them
// (https://pci-ids.ucw.cz). The list is not complete: that is what the label is for.
var virtualFunctions = map[string]string{
	"0x8086": "0x10c9 0x10e6 0x10e7 0x10e8 0x1521 0x1522 0x1523 0x1524 " + // 82576, I350
		"0x10f7 0x10f8 0x10fb 0x10fc 0x151c 0x154d 0x1528 0x1560 0x1563 0x15d1 " + // 82599, X540, X550
		"0x1572 0x1580 0x1581 0x1583 0x1584 0x1585 0x1586 0x1587 0x1588 0x1589 0x158a 0x158b 0x15ff 0x37d0 0x37d1 0x37d2 " + // X710, XL710, XXV710, X722
		"0x1591 0x1592 0x1593 0x1599 0x159a 0x159b", // E810
	"0x15b3": "0x1003 0x1007 0x1013 0x1015 0x1017 0x1019 0x101b 0x101d 0x101f 0x1021 0xa2d2 0xa2d6 0xa2dc", // ConnectX-3 to 7, BlueField
	"0x14e4": "0x16d6 0x16d7 0x16d8 0x16d9 0x16e2 0x16e3 0x1750 0x1751 0x1752",                             // NetXtreme-E
}

// hasVirtualFunctions reads a NIC's model, "VENDOR DEVICE".
func hasVirtualFunctions(model string) bool {
	vendor, device, _ := strings.Cut(strings.ToLower(model), " ")
	return device != "" && slices.Contains(strings.Fields(virtualFunctions[vendor]), strings.TrimSpace(device))
}

// controllerRef makes the Provisioning the owner of what is made for it.
func controllerRef(p *v1alpha1.Provisioning) metav1.OwnerReference {
	return *metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind(kindProvisioning))
}
