package site

import (
	"fmt"
	"net/netip"
	"slices"
)

// InnerIPv4 is the address of the appliance's own Kubernetes where provisioning is of IPv6. It is of the block for
// hosts that need IPv4 for themselves on networks without it (RFC 7335), and no packet leaves the appliance with it.
func InnerIPv4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 0, 1}) }

// InnerAddress is where the appliance's own Kubernetes is, whose pods and Services have IPv4: the appliance's address on
// provisioning, or one of its own where that network is of IPv6. The site has its defaults filled in.
func (s *Site) InnerAddress() netip.Addr {
	if a := s.Networks.Provisioning.Address; a.Is4() {
		return a
	}
	return InnerIPv4()
}

// LeasesIPv6 reports whether the address that a link of a node gets by DHCP is one of IPv6: it is on provisioning, or the
// site names no links and it is the NIC that boots, and that network has no other. The site has its defaults filled in.
func (s *Site) LeasesIPv6(n Node, l Link) bool {
	isBooted := l.Network == "" && slices.Contains(l.nics(), n.BootMAC)
	return s.Networks.Provisioning.Address.Is6() && (l.Network == "provisioning" || isBooted)
}

// checkIPv6Provisioning checks what holds for a provisioning network of IPv6 alone, n as it is given. It returns false
// if the network cannot be checked further.
func (r *reader) checkIPv6Provisioning(s *Site, n *Network) bool {
	const path, other = "networks.provisioning", "a network such as 172.22.0.0/24"
	d := s.WithDefaults()
	switch cidr := d.Networks.Provisioning.CIDR; {
	case !cidr.Addr().IsGlobalUnicast() || cidr.Addr().Is4In6():
		r.Report(path+".cidr", "%s has no addresses that machines are given; use one such as fd00:22::/64", cidr)
		return false
	case cidr.Bits() > 112:
		r.Report(path+".cidr", "a network of length %d is too small for IPv6; use /64", cidr.Bits())
		return false
	}

	if d.Networks.Provisioning.DHCP.Mode != "server" {
		r.Report(path+".dhcp.mode", "by IPv6 machines are known by the addresses that the appliance gives them; use server")
	}
	if n.Gateway.IsValid() {
		r.Report(path+".gateway", "nodes are told of no router by IPv6; remove the line")
	}
	for _, role := range Roles() {
		if of := s.Networks.Role(role); of != nil && slices.Contains(of.Allow, "kubernetes") {
			r.Report("networks."+role+".allow", "with provisioning by IPv6 the API has no address there; remove kubernetes")
		}
	}

	if mode := s.NodeDefaults.BootMode; mode != "" && mode != "UEFI" {
		r.Report("nodeDefaults.bootMode", "%s does not boot by IPv6; use UEFI, or %s", mode, other)
	}

	for i, n := range d.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		if n.BootMode != "UEFI" {
			r.Report(at+".bootMode", "%s does not boot by IPv6; use UEFI, or %s", n.BootMode, other)
		}
		if n.BootsFromDisc() {
			r.Report(at+".bmc.address", "virtual media is not served with provisioning by IPv6; use redfish, or %s", other)
		}
	}

	if len(s.Clusters) > 0 {
		r.Report("clusters", "clusters are not installed on nodes whose provisioning network is of IPv6; remove them, or use %s", other)
	}

	return true
}
