package site

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// checkRoom refuses a provisioning network whose DHCP range has fewer addresses than there are nodes: each node boots
// there with an address of its own.
func (r *reader) checkRoom(s *Site) {
	d := s.Networks.withDefaults().Provisioning
	if d == nil || d.DHCP.Mode != "server" || d.DHCP.Range.IsZero() {
		return
	}

	size := d.DHCP.Range.size()
	nodes := s.CountNodes()
	for _, n := range s.Nodes {
		if n.BootsFromDisc() {
			nodes--
		}
	}
	if size == 0 || size >= nodes {
		return
	}

	at, which := "networks.provisioning.dhcp.range", "range"
	if s.Networks.Provisioning == nil || s.Networks.Provisioning.DHCP.Range.IsZero() {
		which = "default range"
	}
	r.refuse(at, refusal{reason: tooFewAddresses, of: d.DHCP.Range.String()}, nodes,
		"%d nodes boot on this network and the %s %s has %d addresses; give a larger one, and a larger cidr if it has no room",
		nodes, which, d.DHCP.Range, size)
}

// size is how many addresses a range has; 0 for none. One whose ends differ before their last 32 bits, by which the
// DHCP server counts, is too large for it.
func (r Range) size() int {
	if !r.First.IsValid() || r.Last.Less(r.First) {
		return 0
	}
	first, last := r.First.As16(), r.Last.As16()
	if [12]byte(first[:12]) != [12]byte(last[:12]) {
		return math.MaxInt
	}
	return int(binary.BigEndian.Uint32(last[12:])) - int(binary.BigEndian.Uint32(first[12:])) + 1
}

// checkRouter checks that a router is on a network. One of IPv6 usually has a link-local address (RFC 4861, 4.2).
func (r *reader) checkRouter(a netip.Addr, cidr netip.Prefix, path string) {
	if a.Is6() && a.IsLinkLocalUnicast() && cidr.Addr().Is6() {
		return
	}
	r.checkInside(a, cidr, path)
}
