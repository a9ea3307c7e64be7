package tenants

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// internet is every public address: the blocks of all addresses, with those that the IANA registries of special-purpose
// addresses reserve for private use, for shared use and for links (RFC 1918, RFC 6598, RFC 3927, RFC 4193, RFC 4291) left
// out. Pods, Services and nodes of a cluster have such addresses, so that the way outside is none into the cluster.
var internet = []networkingv1.IPBlock{
	{
		CIDR: "0.0.0.0/0",
		Except: []string{
			"10.0.0.0/8",
			"100.64.0.0/10",
			"127.0.0.0/8",
			"169.254.0.0/16",
			"172.16.0.0/12",
			"192.168.0.0/16",
		},
	},
	{CIDR: "::/0", Except: []string{"::1/128", "fc00::/7", "fe80::/10"}},
}

func ingressPeers(t *v1alpha1.Tenant) []networkingv1.NetworkPolicyPeer {
	peers := []networkingv1.NetworkPolicyPeer{ownNamespaces(t)}
	if in := t.Spec.Ingress; in != nil {
		if len(in.Namespaces) > 0 {
			peers = append(peers, namespacesCalled(in.Namespaces...))
		}
		peers = append(peers, blocks(in.CIDRs)...)
	}
	return peers
}

func egressPeers(t *v1alpha1.Tenant) []networkingv1.NetworkPolicyPeer {
	peers := []networkingv1.NetworkPolicyPeer{ownNamespaces(t)}
	if out := t.Spec.Egress; out != nil {
		if out.Internet {
			for _, b := range internet {
				peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: b.DeepCopy()})
			}
		}
		peers = append(peers, blocks(out.CIDRs)...)
	}
	return peers
}

// ownNamespaces are those that have the Tenant's label, which nobody else can give to a namespace.
func ownNamespaces(t *v1alpha1.Tenant) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{v1alpha1.LabelTenant: t.Name},
	}}
}

func namespacesCalled(names ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names},
		},
	}}
}

// blocks are peers of CIDRs, written as the API wants them: 192.0.2.7/24 becomes 192.0.2.0/24.
func blocks(cidrs []string) []networkingv1.NetworkPolicyPeer {
	var peers []networkingv1.NetworkPolicyPeer
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			text = p.Masked().String()
		}
		peers = append(peers, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: text}})
	}
	return peers
}

// dnsPeers are the pods of the cluster's DNS as kubeadm labels them.
func dnsPeers() []networkingv1.NetworkPolicyPeer {
	peer := namespacesCalled(metav1.NamespaceSystem)
	peer.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}
	return []networkingv1.NetworkPolicyPeer{peer}
}

func dnsPorts() []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		port := intstr.FromInt32(53)
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return ports
}
