package ovn4nfv

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"
)

// Network is a Network or a ProviderNetwork, as it is understood.
type Network struct {
	Namespace, Name string
	Subnet          netip.Prefix
	Gateway         netip.Addr // of the router; a provider network's is outside, and may be zero
	Free            *netipx.IPSet
	Provider        *Provider // nil for a Network
}

// Provider says by which interface of which nodes a network goes outside.
type Provider struct {
	Interface string // of the node
	VLAN      int    // its number; 0 for none
	Logical   string // the interface of the VLAN, which is made
	Nodes     labels.Selector
}

// String is NAMESPACE/NAME.
func (n Network) String() string { return n.Namespace + "/" + n.Name }

// switchName is that of its logical switch. No name of a namespace has an underscore.
func (n Network) switchName() string { return n.Namespace + "_" + n.Name }

// ReadNetwork understands what a Network says.
func ReadNetwork(namespace, name string, spec NetworkSpec) (Network, error) {
	n, err := readSubnet(namespace, name, spec)
	if err != nil {
		return n, err
	}
	if !n.Gateway.IsValid() { // the first address, as upstream's
		n.Gateway = n.Subnet.Addr().Next()
	}
	return n, n.removeFree(n.Gateway)
}

func readSubnet(namespace, name string, spec NetworkSpec) (Network, error) {
	n := Network{Namespace: namespace, Name: name}
	switch {
	case spec.CNIType != cniType:
		return n, fmt.Errorf("spec.cniType %q is not %s", spec.CNIType, cniType)
	case len(spec.IPv6Subnets) > 0:
		return n, errors.New("spec.ipv6Subnets: IPv6 is not there; take them out")
	case len(spec.IPv4Subnets) != 1:
		return n, fmt.Errorf("spec.ipv4Subnets: it has %d subnets; a network has one", len(spec.IPv4Subnets))
	}

	s := spec.IPv4Subnets[0]
	const longest = 29 // shorter than a network of two
	subnet, err := netip.ParsePrefix(s.Subnet)
	if err != nil || !subnet.Addr().Is4() || subnet != subnet.Masked() || subnet.Bits() > longest {
		return n, fmt.Errorf("spec.ipv4Subnets[0].subnet %q is no network; write 172.16.33.0/24", s.Subnet)
	}
	n.Subnet = subnet
	if n.Gateway, err = parseAddress(s.Gateway); err != nil {
		return n, fmt.Errorf("spec.ipv4Subnets[0].gateway: %w", err)
	}
	if n.Gateway.IsValid() && !isHost(subnet, n.Gateway) {
		return n, fmt.Errorf("spec.ipv4Subnets[0].gateway %s is none of the addresses of %s", n.Gateway, subnet)
	}

	var free netipx.IPSetBuilder
	hosts := netipx.RangeOfPrefix(subnet)
	free.AddRange(netipx.IPRangeFrom(hosts.From().Next(), hosts.To().Prev()))
	for _, text := range strings.Fields(s.ExcludeIPs) {
		first, last, isRange := strings.Cut(text, "..")
		if !isRange {
			last = first
		}
		from, fromErr := netip.ParseAddr(first)
		to, toErr := netip.ParseAddr(last)
		excluded := netipx.IPRangeFrom(from, to)
		if fromErr != nil || toErr != nil || !excluded.IsValid() {
			return n, fmt.Errorf("spec.ipv4Subnets[0].excludeIps: %q is neither an address nor a range FROM..TO", text)
		}
		free.RemoveRange(excluded)
	}
	if n.Gateway.IsValid() {
		free.Remove(n.Gateway)
	}
	n.Free, err = free.IPSet()
	return n, err
}

// removeFree takes an address from those that pods may get.
func (n *Network) removeFree(a netip.Addr) error {
	var b netipx.IPSetBuilder
	b.AddSet(n.Free)
	b.Remove(a)
	var err error
	n.Free, err = b.IPSet()
	return err
}

// isHost reports whether an address is one that a host of a network may have.
func isHost(n netip.Prefix, a netip.Addr) bool {
	all := netipx.RangeOfPrefix(n)
	return n.Contains(a) && a != all.From() && a != all.To()
}

// ReadProvider understands what a ProviderNetwork says.
func ReadProvider(namespace, name string, spec ProviderSpec) (Network, error) {
	n, err := readSubnet(namespace, name, spec.NetworkSpec)
	if err != nil {
		return n, err
	}

	p := &Provider{}
	var field, nodes string
	var list []string
	switch {
	case strings.EqualFold(spec.Type, "DIRECT") && spec.Direct != nil:
		field, nodes, list = "spec.direct.directNodeSelector", spec.Direct.Nodes, spec.Direct.Labels
		p.Interface = spec.Direct.Interface
	case strings.EqualFold(spec.Type, "VLAN") && spec.VLAN != nil:
		field, nodes, list = "spec.vlan.vlanNodeSelector", spec.VLAN.Nodes, spec.VLAN.Labels
		const lastVLAN = 4094
		p.Interface, p.Logical = spec.VLAN.Interface, spec.VLAN.Logical
		if p.VLAN, err = strconv.Atoi(spec.VLAN.ID); err != nil || p.VLAN < 1 || p.VLAN > lastVLAN {
			return n, fmt.Errorf("spec.vlan.vlanId %q is not from 1 to %d", spec.VLAN.ID, lastVLAN)
		}
		if p.Logical == "" {
			p.Logical = p.Interface + "." + spec.VLAN.ID
		}
		if !isInterfaceName(p.Logical) {
			return n, fmt.Errorf("spec.vlan.logicalInterfaceName %q is no name of an interface", p.Logical)
		}
	default:
		return n, fmt.Errorf("spec.providerNetType %q: write VLAN with spec.vlan, or DIRECT with spec.direct", spec.Type)
	}
	if !isInterfaceName(p.Interface) {
		return n, fmt.Errorf("providerInterfaceName %q is no name of an interface", p.Interface)
	}
	if p.Nodes, err = readNodes(nodes, list); err != nil {
		return n, fmt.Errorf("%s: %w", field, err)
	}
	n.Provider = p
	return n, nil
}

func readNodes(nodes string, list []string) (labels.Selector, error) {
	switch {
	case strings.EqualFold(nodes, "all"):
		return labels.Everything(), nil
	case strings.EqualFold(nodes, "specific") && len(list) > 0:
		selector, err := labels.Parse(strings.Join(list, ","))
		if err != nil {
			return nil, fmt.Errorf("nodeLabelList: %w", err)
		}
		return selector, nil
	case strings.EqualFold(nodes, "specific"):
		return nil, errors.New("specific needs a nodeLabelList")
	}
	return nil, fmt.Errorf("%q is not there; write all, or specific with a nodeLabelList", nodes)
}
