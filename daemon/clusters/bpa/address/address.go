package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// NIC is a network card as inspection saw it. A card with two addresses is there twice.
type NIC struct {
	MAC  string // lower case with colons
	Addr netip.Addr
}

// Host is what is known of one host.
type Host struct {
	Name    string
	NICs    []NIC
	BootMAC string
	Static  map[string]Static // by MAC
	Linked  []string          // MACs of the NICs that the site gave a network; nil if it says nothing of the host's links
}

// Where an address is from.
const (
	FromSite       = "site"
	FromLease      = "lease"
	FromInspection = "inspection"
)

// Result is an address, the NIC it is on, and where it is known from.
type Result struct {
	MAC  string
	Addr netip.Addr
	From string
}

// Reasons why there is none.
const (
	NoAddress     = "NoAddress"
	NoActiveLease = "NoActiveLease"
)

// MissingError says why a host has no address; its text begins with ICN's.
type MissingError struct{ Reason, Sentence string }

func (m *MissingError) Error() string { return m.Sentence }

// ForNIC is the address of the NIC mac of a host. In this order:
//
//   - the site's, if it gives one to that NIC: the system was installed with it, and what the
//     NIC leased or showed earlier was the deploy ramdisk's;
//   - the active lease;
//   - what inspection saw, unless the leases know the MAC: then its lease has ended, and the
//     address may be another's by now.
//
// A NIC that the installed system does not use, because the site gives links and none of them is on it, names the
// host and no more: its address is that of ForHost. Files of ICN name a host by the NIC of a network that has no
// place in a site (bootstrap_nic).
func ForNIC(h Host, mac string, leases Leases, now time.Time) (Result, error) {
	if h.Linked != nil && !slices.Contains(h.Linked, mac) {
		return ForHost(h, leases, now)
	}
	return forLinkedNIC(h, mac, leases, now)
}

func forLinkedNIC(h Host, mac string, leases Leases, now time.Time) (Result, error) {
	if s, ok := h.Static[mac]; ok {
		return Result{mac, s.Addr, FromSite}, nil
	}

	lease, leased := leases[mac]
	if lease.IsActive(now) {
		return Result{mac, lease.Addr, FromLease}, nil
	}
	if leased {
		was := "is " + lease.State
		if lease.State == "active" {
			was = "ended at " + lease.Ends.UTC().Format(time.DateTime)
		}
		return Result{}, &MissingError{NoActiveLease, fmt.Sprintf("No active ip address lease found for MAC address %s: host %s: its lease of %s %s; see that it is on and asks for an address", mac, h.Name, lease.Addr, was)}
	}

	var seen netip.Addr
	for _, n := range h.NICs {
		if n.MAC == mac && n.Addr.IsValid() && !n.Addr.IsLinkLocalUnicast() && (!seen.IsValid() || seen.Is6() && n.Addr.Is4()) {
			seen = n.Addr
		}
	}

	if seen.IsValid() {
		return Result{mac, seen, FromInspection}, nil
	}

	return Result{}, &MissingError{NoAddress, fmt.Sprintf("IP address not found for host with MAC address %s: host %s: the site gives that NIC none, it has no lease, and inspection saw none; "+
		"cable it, give it an address in site.yaml, or name another NIC of the host%s", mac, h.Name, otherNICs(h, mac))}
}

// ForHost is the address of a host of which no certain NIC is asked: of the NIC with the
// default route, else of the one that it booted from, else of the first by MAC.
func ForHost(h Host, leases Leases, now time.Time) (Result, error) {
	macs := h.macs()
	if h.Linked != nil {
		macs = slices.DeleteFunc(macs, func(mac string) bool { return !slices.Contains(h.Linked, mac) })
	}

	rank := func(mac string) int {
		switch {
		case h.Static[mac].Default:
			return 0
		case mac == h.BootMAC:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(macs, func(a, b string) int { return rank(a) - rank(b) })
	var first error
	for _, mac := range macs {
		found, err := forLinkedNIC(h, mac, leases, now)
		if err == nil {
			return found, nil
		}
		if first == nil {
			first = err
		}
	}

	if first == nil {
		first = &MissingError{NoAddress, fmt.Sprintf(
			"IP address not found for host %s: nothing is known of its NICs; inspect it, or name its boot MAC", h.Name,
		)}
	}

	return Result{}, first
}

// macs are all by which the host is known, sorted.
func (h Host) macs() []string {
	var all []string
	if h.BootMAC != "" {
		all = append(all, h.BootMAC)
	}

	for mac := range h.Static {
		all = append(all, mac)
	}

	for _, n := range h.NICs {
		all = append(all, n.MAC)
	}

	slices.Sort(all)
	return slices.Compact(all)
}

// otherNICs lists the host's other NICs, for who has named the wrong one.
func otherNICs(h Host, mac string) string {
	rest := slices.DeleteFunc(h.macs(), func(m string) bool { return m == mac })
	if len(rest) == 0 {
		return ""
	}
	return " (" + strings.Join(rest, ", ") + ")"
}
