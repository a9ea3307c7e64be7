// Package policy enforces Kubernetes' NetworkPolicy (networking.k8s.io/v1) on a cluster node, by an nftables table of
// its own. The rules follow from the objects of the cluster by a pure function, NewPlan.
//
// The table is in the forward hook, which packets between two pods pass even on one node, since each pod has a route and
// no bridge (daemon/clusters/noderuntime). There the addresses of Services have become those of pods, and sources are
// not masqueraded yet. What a node itself sends to its pods, such as the kubelet's probes, and what pods send to their
// node, does not pass it, and is always allowed: "traffic to and from the node where a Pod is running is always
// allowed" (Kubernetes' documentation, Network Policies).
package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/net"
)

// State is what the rules of a node follow from: its name, and the objects of the whole cluster.
type State struct {
	Node       string
	Ranges     []netip.Prefix // of the addresses that its pods get, masked
	Policies   []*networkingv1.NetworkPolicy
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
}

// Plan is what a node enforces.
type Plan struct {
	Ingress, Egress Direction
	Problems        []Problem
}

// Problem is a policy of which a part cannot be enforced. That part allows nothing.
type Problem struct {
	Policy   *networkingv1.NetworkPolicy
	Sentence string
}

// Direction is what is enforced for connections to pods, or from pods.
type Direction struct {
	Isolated []Isolation // sorted by pod

	// Starting holds the addresses that an isolated pod may be given which has none yet: the node's free ones. Nothing
	// passes to them, or from them. It is nil if no such pod starts.
	Starting *netipx.IPSet
}

// Isolation is a pod of the node for which only what a policy allows passes.
type Isolation struct {
	Pod   string // namespace/name
	Addrs []netip.Addr
	Allow []Allow
}

// Allow is a kind of connection that passes. Zero is any.
type Allow struct {
	Peers     *Peers     // on the other side; nil: anybody
	Endpoints *Endpoints // destinations with protocol and port; with it there is no other condition
	Protocol  corev1.Protocol
	First     uint16 // destination ports; if both are 0: all
	Last      uint16
}

// Peers are the addresses that one rule of a policy names. Several pods may share them.
type Peers struct {
	Rule  string // for people
	Addrs *netipx.IPSet
}

// Endpoints are the named ports of pods that one rule of a policy names.
type Endpoints struct {
	Rule string // for people
	All  []Endpoint
}

// Endpoint is a port of a pod.
type Endpoint struct {
	Addr     netip.Addr
	Protocol corev1.Protocol
	Port     uint16
}

// planner holds what all policies refer to.
type planner struct {
	namespaces map[string]labels.Set
	pods       []pod
	problems   []Problem
}

// pod is one that has a network of its own and has not ended.
type pod struct {
	*corev1.Pod
	addrs []netip.Addr // none while it starts
}

// NewPlan decides what a node enforces.
func NewPlan(s State) Plan {
	p := planner{namespaces: map[string]labels.Set{}, pods: livePods(s.Pods)}
	for _, n := range s.Namespaces {
		p.namespaces[n.Name] = n.Labels
	}

	policies := slices.SortedFunc(slices.Values(s.Policies), func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var own []pod
	for _, o := range p.pods {
		if o.Spec.NodeName == s.Node {
			own = append(own, o)
		}
	}

	// Which policies isolate each of the node's pods, in either direction.
	ingress, egress := make([][]rule, len(own)), make([][]rule, len(own))
	for _, n := range policies {
		selects, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
		if err != nil {
			p.addProblem(n, "spec.podSelector: "+err.Error())
			continue
		}

		var in, out []rule
		isIngress, isEgress := directions(n)
		for i, o := range own {
			if o.Namespace != n.Namespace || !selects.Matches(labels.Set(o.Labels)) {
				continue
			}
			if isIngress {
				if in == nil {
					in = p.ingressRules(n)
				}
				ingress[i] = append(ingress[i], in...)
			}
			if isEgress {
				if out == nil {
					out = p.egressRules(n)
				}
				egress[i] = append(egress[i], out...)
			}
		}
	}

	return Plan{
		Ingress:  newDirection(own, ingress, s.Ranges, rule.allowIngress),
		Egress:   newDirection(own, egress, s.Ranges, rule.allowEgress),
		Problems: p.problems,
	}
}

// newDirection puts one direction together from the rules of each pod: no rules at all leave a pod alone.
func newDirection(own []pod, rules [][]rule, ranges []netip.Prefix, allow func(rule, pod) []Allow) (d Direction) {
	var isolatedStarts bool
	var free netipx.IPSetBuilder
	for _, r := range ranges {
		free.AddPrefix(r)
	}

	for i, o := range own {
		for _, a := range o.addrs {
			free.Remove(a)
		}
		if len(rules[i]) == 0 {
			continue
		}
		if len(o.addrs) == 0 {
			isolatedStarts = isolatedStarts || o.DeletionTimestamp == nil
			continue
		}

		one := Isolation{Pod: o.Namespace + "/" + o.Name, Addrs: o.addrs}
		for _, r := range rules[i] {
			one.Allow = append(one.Allow, allow(r, o)...)
		}
		d.Isolated = append(d.Isolated, one)
	}

	if isolatedStarts {
		d.Starting, _ = free.IPSet() // all that is added is valid
	}
	return d
}

// directions are those in which a policy isolates the pods that it selects. Without policyTypes it is ingress, and
// egress if the policy has rules for it.
func directions(n *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(n.Spec.PolicyTypes) == 0 {
		return true, len(n.Spec.Egress) > 0
	}
	return slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// livePods are those that policies are about, sorted: none of the host's network, none that has ended. An address that
// two pods claim belongs to the one that is not being deleted, then to the younger one.
func livePods(all []*corev1.Pod) []pod {
	var list []pod
	for _, o := range all {
		ended := o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
		if !ended && !o.Spec.HostNetwork {
			list = append(list, pod{Pod: o})
		}
	}

	slices.SortFunc(list, func(a, b pod) int {
		if c := compareBool(a.DeletionTimestamp != nil, b.DeletionTimestamp != nil); c != 0 {
			return c
		}
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), comparePods(a, b))
	})
	taken := map[netip.Addr]bool{}
	for i := range list {
		for _, a := range addresses(list[i].Pod) {
			if !taken[a] {
				taken[a] = true
				list[i].addrs = append(list[i].addrs, a)
			}
		}
	}

	// One whose addresses another pod has now has none, and is not starting.
	list = slices.DeleteFunc(list, func(o pod) bool { return len(o.addrs) == 0 && len(addresses(o.Pod)) > 0 })
	slices.SortFunc(list, comparePods)
	return list
}

func comparePods(a, b pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// addresses are a pod's, each once.
func addresses(o *corev1.Pod) (all []netip.Addr) {
	texts := []string{o.Status.PodIP}
	for _, ip := range o.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

func (p *planner) addProblem(n *networkingv1.NetworkPolicy, sentence string) {
	p.problems = append(p.problems, Problem{Policy: n, Sentence: sentence})
}

// peers are the addresses of those whom a rule names; nil if it names nobody, which is everybody.
func (p *planner) peers(n *networkingv1.NetworkPolicy, field string, all []networkingv1.NetworkPolicyPeer) *Peers {
	if len(all) == 0 {
		return nil
	}

	var b netipx.IPSetBuilder
	for i, peer := range all {
		if err := p.addPeer(&b, n.Namespace, peer); err != nil {
			p.addProblem(n, fmt.Sprintf("spec.%s[%d].%s", field, i, err))
		}
	}

	set, _ := b.IPSet() // all that is added is valid
	return &Peers{Rule: fmt.Sprintf("%s/%s %s", n.Namespace, n.Name, field), Addrs: set}
}

// addPeer adds the addresses of one peer.
func (p *planner) addPeer(b *netipx.IPSetBuilder, namespace string, peer networkingv1.NetworkPolicyPeer) error {
	if peer.IPBlock != nil {
		return addBlock(b, peer.IPBlock)
	}
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return fmt.Errorf("podSelector: it is missing, and so are namespaceSelector and ipBlock")
	}

	pods, spaces := labels.Everything(), labels.SelectorFromSet(nil)
	var err error
	if peer.PodSelector != nil {
		if pods, err = metav1.LabelSelectorAsSelector(peer.PodSelector); err != nil {
			return fmt.Errorf("podSelector: %w", err)
		}
	}
	if peer.NamespaceSelector != nil {
		if spaces, err = metav1.LabelSelectorAsSelector(peer.NamespaceSelector); err != nil {
			return fmt.Errorf("namespaceSelector: %w", err)
		}
	}

	for _, o := range p.pods {
		space, exists := p.namespaces[o.Namespace]
		inSpace := o.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inSpace = exists && spaces.Matches(space)
		}
		if inSpace && pods.Matches(labels.Set(o.Labels)) {
			for _, a := range o.addrs {
				b.Add(a)
			}
		}
	}

	return nil
}

// addBlock adds a range without its exceptions. Only of this range they are exceptions: another peer may name them.
func addBlock(b *netipx.IPSetBuilder, block *networkingv1.IPBlock) error {
	var one netipx.IPSetBuilder
	cidr, err := parsePrefix(block.CIDR)
	if err != nil {
		return fmt.Errorf("ipBlock.cidr: %w", err)
	}

	one.AddPrefix(cidr)
	for i, text := range block.Except {
		except, err := parsePrefix(text)
		if err != nil {
			return fmt.Errorf("ipBlock.except[%d]: %w", i, err)
		}
		one.RemovePrefix(except)
	}

	set, _ := one.IPSet() // all that was added is valid
	b.AddSet(set)
	return nil
}

// parsePrefix reads a range as the API server does, with leading zeros and with bits of a host.
func parsePrefix(text string) (netip.Prefix, error) {
	_, n, err := net.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no range of addresses; write ADDRESS/BITS", text)
	}

	p, ok := netipx.FromStdIPNet(n)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is no range of addresses; write ADDRESS/BITS", text)
	}
	return p, nil
}

// String is a plan in a line, for the log.
func (p Plan) String() string {
	names := func(d Direction) string {
		var all []string
		for _, i := range d.Isolated {
			all = append(all, i.Pod)
		}
		return strings.Join(all, " ")
	}
	return fmt.Sprintf("ingress: %s; egress: %s", names(p.Ingress), names(p.Egress))
}
