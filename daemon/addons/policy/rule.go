package policy

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rule is one rule of a policy, with its peers found. The zero value isolates and allows nothing.
type rule struct {
	allows bool
	peers  *Peers // nil: anybody
	ports  []networkingv1.NetworkPolicyPort

	endpoints *Endpoints // of egress: the named ports of the peers
}

// ingressRules are those of a policy, and one that isolates.
func (p *planner) ingressRules(n *networkingv1.NetworkPolicy) []rule {
	all := []rule{{}}
	for i, r := range n.Spec.Ingress {
		field := fmt.Sprintf("ingress[%d]", i)
		p.checkPorts(n, field, r.Ports)
		all = append(all, rule{allows: true, peers: p.peers(n, field+".from", r.From), ports: r.Ports})
	}
	return all
}

// egressRules are those of a policy, and one that isolates.
func (p *planner) egressRules(n *networkingv1.NetworkPolicy) []rule {
	all := []rule{{}}
	for i, r := range n.Spec.Egress {
		field := fmt.Sprintf("egress[%d]", i)
		p.checkPorts(n, field, r.Ports)
		one := rule{allows: true, peers: p.peers(n, field+".to", r.To), ports: r.Ports}
		one.endpoints = p.endpoints(n, field+".ports", one)
		all = append(all, one)
	}
	return all
}

// endpoints are the named ports of a rule at all pods that are its peers; nil if it has none.
func (p *planner) endpoints(n *networkingv1.NetworkPolicy, field string, r rule) *Endpoints {
	var all []Endpoint
	for _, port := range r.ports {
		if port.Port == nil || port.Port.Type != intstr.String {
			continue
		}
		for _, o := range p.pods {
			numbers := portsNamed(o.Pod, protocol(port), port.Port.StrVal)
			for _, a := range o.addrs {
				if r.peers != nil && !r.peers.Addrs.Contains(a) {
					continue
				}
				for _, number := range numbers {
					all = append(all, Endpoint{Addr: a, Protocol: protocol(port), Port: number})
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}

	slices.SortFunc(all, func(a, b Endpoint) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return &Endpoints{Rule: fmt.Sprintf("%s/%s %s", n.Namespace, n.Name, field), All: slices.Compact(all)}
}

// allowIngress is what a rule allows to a pod: its named ports are the pod's.
func (r rule) allowIngress(o pod) (all []Allow) {
	if !r.hasPeers() {
		return nil
	}

	for _, port := range r.ports {
		if port.Port == nil || port.Port.Type != intstr.String {
			all = append(all, r.allowNumber(port)...)
			continue
		}
		for _, number := range portsNamed(o.Pod, protocol(port), port.Port.StrVal) {
			all = append(all, Allow{Peers: r.peers, Protocol: protocol(port), First: number, Last: number})
		}
	}

	return r.orAnyPort(all)
}

// allowEgress is what a rule allows from a pod: its named ports are those of the destinations.
func (r rule) allowEgress(pod) (all []Allow) {
	if !r.hasPeers() {
		return nil
	}

	for _, port := range r.ports {
		if port.Port == nil || port.Port.Type != intstr.String {
			all = append(all, r.allowNumber(port)...)
		}
	}
	if r.endpoints != nil {
		all = append(all, Allow{Endpoints: r.endpoints})
	}

	return r.orAnyPort(all)
}

// hasPeers reports whether a rule allows anything.
func (r rule) hasPeers() bool {
	return r.allows && (r.peers == nil || len(r.peers.Addrs.Ranges()) > 0)
}

// orAnyPort is what the ports of a rule allow; without ports it is every port of every protocol.
func (r rule) orAnyPort(all []Allow) []Allow {
	if len(r.ports) == 0 {
		return []Allow{{Peers: r.peers}}
	}
	return all
}

// allowNumber is a port by number, a range of them, or all of a protocol.
func (r rule) allowNumber(port networkingv1.NetworkPolicyPort) []Allow {
	if checkPort(port) != nil {
		return nil
	}

	a := Allow{Peers: r.peers, Protocol: protocol(port)}
	if port.Port != nil {
		a.First, a.Last = uint16(port.Port.IntVal), uint16(port.Port.IntVal)
		if port.EndPort != nil {
			a.Last = uint16(*port.EndPort)
		}
	}
	return []Allow{a}
}

// checkPorts finds what the API server does not let through.
func (p *planner) checkPorts(n *networkingv1.NetworkPolicy, field string, all []networkingv1.NetworkPolicyPort) {
	for i, port := range all {
		if err := checkPort(port); err != nil {
			p.addProblem(n, fmt.Sprintf("spec.%s.ports[%d]: %s", field, i, err))
		}
	}
}

func checkPort(port networkingv1.NetworkPolicyPort) error {
	switch protocol(port) {
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return fmt.Errorf("protocol %q is none of TCP, UDP and SCTP", protocol(port))
	}

	if port.Port == nil || port.Port.Type == intstr.String {
		return nil
	}
	last := port.Port.IntVal
	if port.EndPort != nil {
		last = *port.EndPort
	}
	if port.Port.IntVal < 1 || last < port.Port.IntVal || last > 65535 {
		return fmt.Errorf("%d to %d are no ports; write 1 to 65535, the lower one first", port.Port.IntVal, last)
	}
	return nil
}

// protocol is that of a port; TCP if it says none.
func protocol(port networkingv1.NetworkPolicyPort) corev1.Protocol {
	if port.Protocol == nil {
		return corev1.ProtocolTCP
	}
	return *port.Protocol
}

// portsNamed are the numbers that a pod's containers have for a name, those of sidecars included.
func portsNamed(o *corev1.Pod, protocol corev1.Protocol, name string) (all []uint16) {
	containers := slices.Clone(o.Spec.Containers)
	for _, c := range o.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}

	for _, c := range containers {
		for _, port := range c.Ports {
			number := uint16(port.ContainerPort)
			if port.Name == name && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol && !slices.Contains(all, number) {
				all = append(all, number)
			}
		}
	}
	return all
}
