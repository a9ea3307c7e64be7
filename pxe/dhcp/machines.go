package dhcp

import (
	"net"
	"net/netip"

	"firstlight.dev/firstlight/pxe"
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
	if !ok || s.journal == nil || !l.IsActive(s.journal.Now()) {
		return false
	}

	_, known := s.plan.known[l.MAC]
	return known
}
