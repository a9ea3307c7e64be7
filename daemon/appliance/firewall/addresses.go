package firewall

import (
	"net/netip"
	"slices"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// Addresses are the appliance's own on the networks that a listener is reached from, by the list or because the site
// allows it there, in order. It is for listeners that are bound to those alone (OnReached, OnAllowed).
func Addresses(name string, s *site.Site, networks []status.Address) (addrs []netip.Addr) {
	var reached []string
	for _, l := range Listeners() {
		if l.Name == name {
			reached = l.Networks
		}
	}

	for _, n := range networks {
		of := s.Networks.Role(n.Role)
		if !slices.Contains(reached, n.Role) && (of == nil || !slices.Contains(of.Allow, name)) {
			continue
		}

		for _, text := range n.Addresses {
			prefix, err := netip.ParsePrefix(text)
			if err == nil && !prefix.Addr().IsLinkLocalUnicast() && !slices.Contains(addrs, prefix.Addr()) {
				addrs = append(addrs, prefix.Addr())
			}
		}
	}

	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
