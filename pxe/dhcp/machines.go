package dhcp

import (
	"maps"
	"net"
	"net/netip"
	"slices"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// MachineAt implements pxe.Machines: who has addr.
func (s *Server) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.table.LeaseAt(addr.Unmap())
	if !ok || s.journal == nil || !l.IsActive(s.journal.Now()) {
		return pxe.Machine{}, false
	}

	return pxe.Machine{MAC: net.HardwareAddr(l.MAC[:]), Addr: l.Addr, UUID: l.UUID, Arch: l.Arch}, true
}

// IsKnown reports whether an address is that of a known machine: reserved for one, or leased to one. Unknown machines
// get leases, too, so a lease alone says nothing.
func (s *Server) IsKnown(addr netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr = addr.Unmap()
	for _, space := range s.plan.Spaces() {
		if _, reserved := space.Fixed[addr]; reserved {
			return true
		}
	}

	l, ok := s.table.LeaseAt(addr)
	return ok && s.isKnownLease(l)
}

// KnownAddrs are all addresses of which IsKnown holds, in their order.
func (s *Server) KnownAddrs() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[netip.Addr]bool{}
	for _, space := range s.plan.Spaces() {
		for addr := range space.Fixed {
			all[addr] = true
		}
		// By machine: strangers have more leases than nodes, and this is asked for all the time.
		for mac := range s.plan.known {
			if l, ok := s.table.LeaseOf(lease.Query{MAC: mac, Subnet: space.Subnet}); ok && s.isKnownLease(l) {
				all[l.Addr] = true
			}
		}
	}

	return slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)
}

// isKnownLease reports whether a machine that the site names has this lease now.
func (s *Server) isKnownLease(l lease.Lease) bool {
	if s.journal == nil || !l.IsActive(s.journal.Now()) {
		return false
	}
	_, known := s.plan.known[l.MAC]
	return known
}
