package firewall

import (
	"slices"

	"firstlight.dev/firstlight/assets/site"
)

// ListenersFrom are the listeners that machines of a network reach, by the list or because the site allows it, in its order;
// none before the site is known.
func ListenersFrom(network string, s *site.Site) (all []Listener) {
	if s.Networks.Provisioning == nil {
		return nil
	}

	r := newRules(s)
	for _, l := range Listeners() {
		o := opening{network, l.Protocol, l.Port}
		if l.At != OnLoopback && isServed(l, s) && (slices.Contains(r.open, o) || slices.Contains(r.elsewhere, o)) {
			all = append(all, l)
		}
	}
	return all
}
