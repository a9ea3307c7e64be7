package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeMetric orders the default routes of the networks. Each has its own, so that none takes
// another's place: the owner's network is the way out, and there is room below for a route
// that a person adds.
func routeMetric(role string) int {
	switch role {
	case Baremetal:
		return 100
	case BMC:
		return 200
	default:
		return 300
	}
}

// change is one difference between a link as it is and as it shall be.
type change struct {
	text string
	do   func() error
}

// readNICs lists the physical interfaces: devices of the kernel's own making that speak
// Ethernet. In a namespace a veth named like a NIC (eth0) is one; those of pods are not.
func readNICs() ([]NIC, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}

	var nics []NIC
	for _, l := range links {
		a := l.Attrs()
		isVeth := l.Type() == "veth" && strings.HasPrefix(a.Name, "e")
		if l.Type() != "device" && !isVeth || a.EncapType != "ether" || a.Flags&net.FlagLoopback != 0 {
			continue
		}

		mac := a.HardwareAddr
		if len(a.PermHWAddr) == 6 && !bytes.Equal(a.PermHWAddr, make([]byte, 6)) {
			mac = a.PermHWAddr // a member of a bond wears the bond's
		}

		if len(mac) != 6 {
			continue
		}

		nics = append(nics, NIC{
			Name: a.Name,
			MAC:  mac.String(),
			PCI:  pciAddress(a.Name),
			Link: a.Flags&net.FlagUp != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
		})
	}

	return nics, nil
}

// pciAddress is the PCI function a NIC sits on, "" if none.
func pciAddress(name string) string {
	device, err := filepath.EvalSymlinks(filepath.Join("/sys/class/net", name, "device"))
	if err != nil {
		return ""
	}
	return pciFunction(device)
}

// pciFunction is the PCI function that a device of sysfs is, or that it is on: a NIC of virtio is a device on one.
func pciFunction(device string) string {
	for _, path := range []string{device, filepath.Dir(device)} {
		if base := filepath.Base(path); strings.Count(base, ":") == 2 && strings.Contains(base, ".") {
			return base
		}
	}
	return ""
}

// linkChanges lists what to change, in order, so that the links are as wanted. NICs
// without a role are taken out of our bridges, links of ours that nobody wants are removed.
func linkChanges(wanted []Link, nics []NIC) ([]change, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}

	byName, byIndex := map[string]netlink.Link{}, map[int]string{}
	for _, l := range links {
		byName[l.Attrs().Name], byIndex[l.Attrs().Index] = l, l.Attrs().Name
	}

	isWanted := func(name string) bool {
		return slices.ContainsFunc(wanted, func(w Link) bool { return w.Name == name })
	}
	var all []change
	for _, name := range []string{"vlan-prov", "vlan-bmc", "vlan-baremetal", "bond-prov", "bond-bmc", "bond-baremetal", BMC, Baremetal} {
		if l, there := byName[name]; there && !isWanted(name) {
			all = append(all, change{name + " is not wanted any more", func() error { return netlink.LinkDel(l) }})
		}
	}

	for _, n := range nics {
		l := byName[n.Name]
		if l == nil {
			continue
		}

		if !isWanted(n.Name) && l.Attrs().MasterIndex != 0 && isOurLink(byIndex[l.Attrs().MasterIndex]) {
			all = append(
				all, change{n.Name + " has no role any more", func() error { return netlink.LinkSetNoMaster(l) }},
			)
		}

		if l.Attrs().Flags&net.FlagUp == 0 { // also those without a role: a link shows only on one that is up
			all = append(all, change{n.Name + " is down", func() error { return netlink.LinkSetUp(l) }})
		}
	}

	for _, w := range wanted {
		l := byName[w.Name]
		if l == nil || !isSameLink(l, w, byName) {
			all = append(
				all, change{fmt.Sprintf("%s %s is missing", w.Kind, w.Name), func() error { return createLink(w) }},
			)
			l = nil
		}
		all = append(all, linkSettingChanges(w, l, byIndex)...)
	}

	return all, nil
}

// isOurLink tells bridges and bonds of Layout from a pod network's.
func isOurLink(name string) bool {
	return name == Provisioning || name == BMC || name == Baremetal || strings.HasPrefix(name, "bond-")
}

// isSameLink tells whether an existing link can become the wanted one without being made anew.
func isSameLink(l netlink.Link, w Link, byName map[string]netlink.Link) bool {
	switch w.Kind {
	case KindNIC:
		return true
	case KindVLAN:
		v, ok := l.(*netlink.Vlan)
		parent := byName[w.Parent]
		return ok && v.VlanId == w.VLAN && parent != nil && v.ParentIndex == parent.Attrs().Index
	case KindBond:
		b, ok := l.(*netlink.Bond)
		return ok && b.Mode == netlink.StringToBondMode(w.Mode)
	default:
		return l.Type() == string(w.Kind)
	}
}

func createLink(w Link) error {
	if old, err := netlink.LinkByName(w.Name); err == nil && w.Kind != KindNIC {
		if err := netlink.LinkDel(old); err != nil {
			return fmt.Errorf("remove old %s: %w", w.Name, err)
		}
	}

	attrs := netlink.NewLinkAttrs()
	attrs.Name = w.Name
	var l netlink.Link
	switch w.Kind {
	case KindBridge:
		l = &netlink.Bridge{LinkAttrs: attrs}
	case KindBond:
		b := netlink.NewLinkBond(attrs)
		b.Mode, b.Miimon = netlink.StringToBondMode(w.Mode), 100
		l = b
	case KindVLAN:
		parent, err := netlink.LinkByName(w.Parent)
		if err != nil {
			return fmt.Errorf("find %s below %s: %w", w.Parent, w.Name, err)
		}

		attrs.ParentIndex = parent.Attrs().Index
		l = &netlink.Vlan{LinkAttrs: attrs, VlanId: w.VLAN}
	default:
		return fmt.Errorf("NIC %s is gone", w.Name)
	}

	if err := netlink.LinkAdd(l); err != nil {
		return fmt.Errorf("make %s %s: %w", w.Kind, w.Name, err)
	}

	return nil
}

// linkSettingChanges compares one link. l is nil when it is still to be made: then all is to be set.
func linkSettingChanges(w Link, l netlink.Link, byIndex map[int]string) []change {
	var all []change
	add := func(text string, do func(netlink.Link) error) {
		all = append(all, change{text, func() error {
			l, err := netlink.LinkByName(w.Name)
			if err != nil {
				return fmt.Errorf("find %s: %w", w.Name, err)
			}
			return do(l)
		}})
	}
	var have netlink.LinkAttrs
	if l != nil {
		have = *l.Attrs()
	}

	if w.MTU != 0 && have.MTU != w.MTU {
		add(
			fmt.Sprintf("%s has MTU %d, not %d", w.Name, have.MTU, w.MTU),
			func(l netlink.Link) error { return netlink.LinkSetMTU(l, w.MTU) },
		)
	}

	if w.MAC != "" && have.HardwareAddr.String() != w.MAC {
		mac, _ := net.ParseMAC(w.MAC)
		add(
			w.Name+" has another MAC than its NIC",
			func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac) },
		)
	}

	if master := byIndex[have.MasterIndex]; w.Master != master {
		add(
			fmt.Sprintf("%s belongs to %q, not %q", w.Name, master, w.Master),
			func(l netlink.Link) error { return enslave(l, w.Master) },
		)
	}

	if have.Flags&net.FlagUp == 0 {
		add(w.Name+" is down", netlink.LinkSetUp)
	}

	if w.Kind == KindBridge {
		all = append(all, addressChanges(w, l)...)
	}

	return all
}

func enslave(l netlink.Link, master string) error {
	if master == "" {
		return netlink.LinkSetNoMaster(l)
	}

	m, err := netlink.LinkByName(master)
	if err != nil {
		return fmt.Errorf("find %s: %w", master, err)
	}

	if m.Type() == string(KindBond) { // the kernel takes a bond's member only while it is down
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
	}

	if err := netlink.LinkSetMaster(l, m); err != nil {
		return fmt.Errorf("put %s into %s: %w", l.Attrs().Name, master, err)
	}

	return netlink.LinkSetUp(l)
}

// addressChanges compares a bridge's static addresses and default route. Leased ones have a
// lifetime and are left to run out; the kernel takes the route with the last address.
func addressChanges(w Link, l netlink.Link) []change {
	var have []netlink.Addr
	if l != nil {
		have, _ = netlink.AddrList(l, netlink.FAMILY_ALL)
	}

	var all []change
	var found []netip.Prefix
	for _, a := range have {
		p, err := netip.ParsePrefix(a.IPNet.String())
		switch {
		case err == nil && (p == w.Address || p == w.Inner):
			found = append(found, p)
		case isOurAddress(a):
			all = append(
				all,
				change{fmt.Sprintf(
					"%s has address %s", w.Name, a.IPNet,
				), func() error { return netlink.AddrDel(l, &a) }},
			)
		}
	}

	for _, p := range []netip.Prefix{w.Address, w.Inner} {
		if p.IsValid() && !slices.Contains(found, p) {
			all = append(all, change{fmt.Sprintf(
				"%s has no address %s", w.Name, p,
			), func() error { return addAddress(w.Name, p, 0) }})
		}
	}

	there := false
	for _, r := range ourRoutes(l) {
		isReplaced := w.Gateway.IsValid() && w.Gateway.Is4() == (r.Gw.To4() != nil) // by addRoute
		switch {
		case w.Gateway.IsValid() && r.Gw.Equal(w.Gateway.AsSlice()):
			there = true
		case !isReplaced && !w.DHCP:
			all = append(all, change{fmt.Sprintf(
				"default route by %s is not wanted any more", r.Gw,
			), func() error { return netlink.RouteDel(&r) }})
		}
	}

	if w.Gateway.IsValid() && !there {
		all = append(all, change{fmt.Sprintf(
			"no default route by %s", w.Gateway,
		), func() error { return addRoute(w.Name, w.Gateway) }})
	}

	return all
}

// isOurAddress tells static addresses from leased ones, and those of IPv6 from the ones that the kernel makes up or is
// advertised: addAddress alone has it not look whether another machine has the address.
func isOurAddress(a netlink.Addr) bool {
	return a.Flags&unix.IFA_F_PERMANENT != 0 && (a.IP.To4() != nil || a.Flags&unix.IFA_F_NODAD != 0)
}

// addAddress puts an address on a link for seconds, or for ever if 0. One of IPv6 is there at once, as one of IPv4 is:
// on a bridge without a cable nobody answers whether another machine has it, and it would never be used (RFC 4862, 5.4).
func addAddress(name string, p netip.Prefix, seconds int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}

	ip := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: ip, ValidLft: seconds, PreferedLft: seconds}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrReplace(l, addr); err != nil {
		return fmt.Errorf("give %s to %s: %w", p, name, err)
	}

	return nil
}

func addRoute(name string, gateway netip.Addr) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}

	// On-link, since the gateway of a bridge without a link cannot be looked up.
	r := &netlink.Route{
		LinkIndex: l.Attrs().Index,
		Gw:        gateway.AsSlice(),
		Priority:  routeMetric(name),
		Flags:     int(netlink.FLAG_ONLINK),
	}
	if err := netlink.RouteReplace(r); err != nil {
		return fmt.Errorf("route by %s: %w", gateway, err)
	}

	return nil
}

// ourRoutes are the default routes of a bridge that addRoute made: one, or while the site changes one of each family. l
// may be nil.
func ourRoutes(l netlink.Link) []netlink.Route {
	if l == nil {
		return nil
	}

	routes, _ := netlink.RouteList(l, netlink.FAMILY_ALL)
	return slices.DeleteFunc(routes, func(r netlink.Route) bool {
		isDefault := r.Dst == nil || r.Dst.IP.IsUnspecified()
		return !isDefault || r.Gw == nil || r.Priority != routeMetric(l.Attrs().Name)
	})
}

// linkUp brings NICs up: only then they tell whether there is a link.
func linkUp(nics []NIC) error {
	var errs []error
	for _, n := range nics {
		l, err := netlink.LinkByName(n.Name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("bring up %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// apply makes the changes, stopping at the first that fails.
func apply(ctx context.Context, all []change) error {
	for _, c := range all {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.do(); err != nil {
			return fmt.Errorf("%s: %w", c.text, err)
		}
	}
	return nil
}
