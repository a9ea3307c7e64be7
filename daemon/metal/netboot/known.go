package netboot

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// IsKnown reports whether an address is that of a node of the site: a static one of its links, or one that the DHCP
// server of the provisioning network gave it or keeps for it. It is asked for every connection.
func (s *Server) IsKnown(addr netip.Addr) bool {
	if s.static.has(addr, s.Site) {
		return true
	}
	serving := s.serving.Load()
	return serving != nil && serving.DHCP() != nil && serving.DHCP().IsKnown(addr)
}

// KnownAddrs are all addresses of which IsKnown holds, in their order.
func (s *Server) KnownAddrs() []netip.Addr {
	var all []netip.Addr
	if serving := s.serving.Load(); serving != nil && serving.DHCP() != nil {
		all = serving.DHCP().KnownAddrs()
	}

	all = append(all, s.static.list(s.Site)...)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// staticAddresses are those that the site gives its nodes, each with the MAC that a node which boots from a disc has it
// by; "" for all others. They are looked up again after a while: the site may have been edited, and it takes too long
// to read it for every connection.
type staticAddresses struct {
	mu   sync.Mutex
	all  map[netip.Addr]site.MAC
	read time.Time
}

// staticValidity is how long they are good for.
const staticValidity = 5 * time.Second

func (s *staticAddresses) has(addr netip.Addr, current func() *site.Site) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(current)
	_, ok := s.all[addr]
	return ok
}

// discMAC is the MAC that has an address while its node boots from a disc; "" if no such node has it.
func (s *staticAddresses) discMAC(addr netip.Addr, current func() *site.Site) site.MAC {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(current)
	return s.all[addr]
}

func (s *staticAddresses) list(current func() *site.Site) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh(current)
	return slices.Collect(maps.Keys(s.all))
}

// refresh looks them up if that is due.
func (s *staticAddresses) refresh(current func() *site.Site) {
	if s.all == nil || time.Since(s.read) > staticValidity {
		s.all, s.read = map[netip.Addr]site.MAC{}, time.Now()
		for _, n := range current().Nodes {
			for _, l := range n.Links {
				if a := l.Address.Prefix.Addr(); a.IsValid() {
					s.all[a] = ""
				}
			}
			if l, ok := n.DiscLink(); ok {
				s.all[l.Address.Prefix.Addr()] = n.BootMAC
			}
		}
	}
}
