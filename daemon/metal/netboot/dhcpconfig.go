package netboot

import (
	"net/netip"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
)

// provisioningDHCP is who gets which address on the provisioning network; nil: DHCP is nobody's or
// somebody else's. The site's nodes are out of strangers' reach.
func provisioningDHCP(s *site.Site) *dhcp.Config {
	n := s.Networks.Provisioning
	if n.DHCP.Mode == "none" {
		return nil
	}

	c := &dhcp.Config{LeaseDir: leaseDir, ISCFile: LeaseFile, Foreign: foreignPolicy(n.DHCP)}
	if n.DHCP.Mode == "proxy" {
		c.Mode = dhcp.ModeProxy
		return c
	}

	local := dhcp.Subnet{Prefix: n.CIDR, Lease: time.Duration(n.DHCP.Lease), Router: n.Gateway, DNS: serversLike(n.Address, n.DNS)}
	local.NTP = append(local.NTP, n.Address)
	if n.MTU != 1500 {
		local.MTU = uint16(n.MTU)
	}

	var nodes, floating int
	c.Reservations, nodes, floating = reservations(s)
	local.Pool, local.Known = splitRange(
		dhcp.Range{First: n.DHCP.Range.First, Last: n.DHCP.Range.Last}, nodes, floating,
	)
	c.Subnets = []dhcp.Subnet{local}
	return c
}

// foreignPolicy is what is done while another server answers.
func foreignPolicy(d site.DHCP) dhcp.ForeignPolicy {
	if d.Foreign == "ignore-unknown" {
		return dhcp.ForeignIgnoreUnknown
	}
	return dhcp.ForeignSilent
}

// splitRange parts a range into what anybody may have and what is kept for the site's nodes: an
// address for each of their MACs without its own as long as half is left for strangers, and
// in any case one for each node. It is the end of the range, so that one more node moves
// nobody but whoever has the one address before it.
func splitRange(r dhcp.Range, nodes, macs int) (pool, known dhcp.Range) {
	return r.Split(max(nodes, min(macs, r.Len()/2)))
}

// reservations are all MACs of the site's nodes. One that the site gives a static address
// on the provisioning network has it from the beginning; the others float: how many do, and
// of how many nodes.
func reservations(s *site.Site) (all []dhcp.Reservation, nodes, floating int) {
	seen := map[site.MAC]bool{}
	for _, n := range s.Nodes {
		fixed := staticAddrs(n, *s.Networks.Provisioning)
		before := floating
		for _, mac := range nodeMACs(n) {
			if seen[mac] {
				continue
			}

			seen[mac] = true
			if !fixed[mac].IsValid() {
				floating++
			}

			all = append(all, dhcp.Reservation{MAC: mac.HardwareAddr(), Addr: fixed[mac]})
		}

		if floating > before {
			nodes++
		}
	}
	return all, nodes, floating
}

// nodeMACs are a node's, each once, wherever the site names them.
func nodeMACs(n site.Node) []site.MAC {
	all := append([]site.MAC{n.BootMAC}, n.MACs...)
	for _, l := range n.Links {
		all = append(all, linkMACs(l)...)
	}

	var once []site.MAC
	for _, m := range all {
		if m != "" && !slices.Contains(once, m) {
			once = append(once, m)
		}
	}

	return once
}

func linkMACs(l site.Link) []site.MAC {
	if l.Bond != nil {
		return l.Bond.MACs
	}
	return []site.MAC{l.MAC}
}

// staticAddrs is which NIC of a node has which address on the provisioning network. Of a bond it
// is the NIC that boots, else the first.
func staticAddrs(n site.Node, network site.Network) map[site.MAC]netip.Addr {
	fixed := map[site.MAC]netip.Addr{}
	for _, l := range n.Links {
		a, nics := l.Address.Prefix.Addr(), linkMACs(l)
		if l.Network != "provisioning" || l.Address.Method != "static" || len(nics) == 0 || !isFree(a, network) {
			continue
		}

		mac := nics[0]
		if slices.Contains(nics, n.BootMAC) {
			mac = n.BootMAC
		}

		if !fixed[mac].IsValid() {
			fixed[mac] = a
		}
	}
	return fixed
}

// isFree tells whether an address may be a node's own: a machine's, not ours, and not given to others.
func isFree(a netip.Addr, n site.Network) bool {
	return a.Is4() == n.Address.Is4() && lease.IsHost(a, n.CIDR) && a != n.Address && a != n.Gateway && !n.DHCP.Range.Contains(a)
}
