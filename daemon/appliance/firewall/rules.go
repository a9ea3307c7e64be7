package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// pods is the bridge of the appliance's own pods, which are trusted as the appliance's programs are.
const pods = "cni0"

// opening is a port that is reached from a network, at the appliance's address there.
type opening struct {
	network  string
	protocol string
	port     uint16
}

// rules are what the packet filter lets through, for one site.
type rules struct {
	open      []opening
	elsewhere []opening   // also reached from there, at Address
	address   netip.Addr  // on provisioning, where what listens nowhere else is
	forward   [][2]string // from a network to another
	networks  []string    // all that a site can have
	allowed   []string    // what the site added, as sentences without an end
}

// newRules decides what is let through: the list of listeners, and what the site adds to it.
func newRules(s *site.Site) rules {
	r := rules{address: s.Networks.Provisioning.Address, networks: site.Roles()}
	for _, l := range Listeners() {
		if !isServed(l, s) {
			continue
		}
		for _, network := range l.Networks {
			switch network {
			case owner:
				network = ownerNetwork(s)
			case bmcs:
				network = s.DiscNetwork()
			}
			r.open = append(r.open, opening{network, l.Protocol, l.Port})
		}
	}

	for _, role := range site.Roles() {
		if n := s.Networks.Role(role); n != nil {
			r.allow(s, role, n)
		}
	}

	return r
}

// uploadsByS3 is the listener that a site has only if it says so. It is where uploads are.
const uploadsByS3 = "s3"

// discs is the listener that a site has only if a node boots from a disc.
const discs = "discs"

// Of these a site has one, by the addresses of its provisioning network.
const (
	pxe4  = "pxe"
	dhcp6 = "dhcpv6"
)

func isServed(l Listener, s *site.Site) bool {
	switch l.Name {
	case uploadsByS3:
		return s.Artifacts.S3
	case discs:
		return s.DiscNetwork() != ""
	case pxe4:
		return !s.Networks.Provisioning.Address.Is6()
	case dhcp6:
		return s.Networks.Provisioning.Address.Is6()
	}
	return true
}

// allowedAs is what a site calls a listener that it allows.
func allowedAs(l Listener) string {
	if l.Name == uploadsByS3 {
		return "uploads"
	}
	return l.Name
}

// allow adds what the site allows on one network.
func (r *rules) allow(s *site.Site, role string, n *site.Network) {
	for _, l := range Listeners() {
		if !isServed(l, s) || !slices.Contains(n.Allow, allowedAs(l)) {
			continue
		}

		o := opening{role, l.Protocol, l.Port}
		if l.At == OnProvisioning && role != provisioning {
			r.elsewhere = append(r.elsewhere, o)
		}
		if !slices.Contains(r.open, o) {
			r.open = append(r.open, o)
		}
		r.allowed = append(r.allowed, l.Name+" from "+role)
	}

	for _, to := range n.Forward {
		r.forward = append(r.forward, [2]string{role, to})
		r.allowed = append(r.allowed, "packets from "+role+" to "+to)
	}
}

// ownerNetwork is the network that people come from. A baremetal network that is detected, not named, does not close
// the other one: it may come and go.
func ownerNetwork(s *site.Site) string {
	b := s.Networks.Baremetal
	isNamed := b != nil && (!b.Interface.IsZero() || b.Bond != nil || b.CIDR.IsValid() || b.Address.IsValid())
	if s.Networks.BMC != nil && !isNamed {
		return bmc
	}
	return baremetal
}

// Table is what the rules are called in nftables; kube-proxy and the pods' network have tables of their own.
const Table = "inet firstlight"

// render is the table as nft reads it. It replaces the one that is loaded in one transaction (nft(8), ATOMICITY).
func (r rules) render() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("table %s", Table)
	line("delete table %s", Table)
	line("table %s {", Table)

	// A machine reaches the appliance at its address on that machine's network, and at no other: Linux alone would
	// answer at all of them (RFC 1122 3.3.4.2, weak host). Before connection tracking, so that it costs nothing.
	line("\tchain addresses {")
	line("\t\ttype filter hook prerouting priority raw; policy accept;")
	for _, o := range r.elsewhere {
		line("\t\tiifname %q ip daddr %s %s dport %d accept", o.network, r.address, o.protocol, o.port)
	}
	line("\t\tiifname { %s } fib daddr type local fib daddr . iif type != local counter drop", quoteAll(r.networks))
	line("\t}")

	line("\tchain input {")
	line("\t\ttype filter hook input priority filter; policy drop;")
	line("\t\tiifname { \"lo\", %q } accept", pods)
	line("\t\tct state established,related accept")
	line("\t\ticmp type echo-request accept")
	line("\t\ticmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert } accept")
	if r.address.Is6() { // who asks for an advertisement there is told that addresses are had by DHCPv6
		line("\t\tiifname %q icmpv6 type nd-router-solicit accept", provisioning)
	}
	line("\t\tiifname . meta l4proto . th dport { %s } accept", joinOpenings(r.open))
	line("\t\tcounter drop")
	line("\t}")

	line("\tchain forward {")
	line("\t\ttype filter hook forward priority filter; policy drop;")
	line("\t\tct state established,related accept")
	line("\t\tiifname %q accept", pods)
	for _, f := range r.forward {
		line("\t\tiifname %q oifname %q accept", f[0], f[1])
	}
	line("\t\tcounter drop")
	line("\t}")
	line("}")
	return b.String()
}

func joinOpenings(all []opening) string {
	var words []string
	for _, o := range all {
		words = append(words, fmt.Sprintf("%q . %s . %d", o.network, o.protocol, o.port))
	}
	return strings.Join(words, ", ")
}

func quoteAll(names []string) string {
	var words []string
	for _, n := range names {
		words = append(words, fmt.Sprintf("%q", n))
	}
	return strings.Join(words, ", ")
}
