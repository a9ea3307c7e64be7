package host

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// networkLink is a network of the site, and the machine's own link that has its address.
type networkLink struct {
	role string
	link netlink.Link
}

// GuestLinksDone holds when this machine, whose owner makes its links, has the site's address on each network that has a
// static one. Nothing is changed.
func (h *Host) GuestLinksDone(context.Context) error {
	all, err := findNetworks(h.Site().Networks)
	if err != nil {
		return err
	}

	assigned := make([]Assignment, len(all))
	for i, n := range all {
		a := n.link.Attrs()
		assigned[i] = Assignment{
			Role: n.role,
			NICs: []NIC{{Name: a.Name, MAC: a.HardwareAddr.String(), Link: a.OperState != netlink.OperDown}},
			Why:  "it has the address that the site names",
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nets.all = assigned
	return nil
}

// findNetworks finds the links of all networks with a static address. It is the owner of the machine who corrects what is
// missing.
func findNetworks(networks site.Networks) (all []networkLink, err error) {
	if p := networks.Provisioning; p != nil && p.Address.Is6() {
		return nil, fmt.Errorf("networks.provisioning has address %s of IPv6, which a guest of another Kubernetes does not "+
			"serve; use a network such as 172.22.0.0/24, or an appliance of its own machine", p.Address)
	}

	for _, role := range site.Roles() {
		n := networks.Role(role)
		if n == nil || !n.Address.Is4() {
			continue
		}

		link, err := findLink(netip.PrefixFrom(n.Address, n.CIDR.Bits()))
		if err != nil {
			return nil, fmt.Errorf("network %s: %w", role, err)
		}
		if link == nil {
			return nil, bringup.Wait("this node to have networks.%s.address of the site: no interface has %s/%d; give it to "+
				"the one that is on that network", role, n.Address, n.CIDR.Bits())
		}
		all = append(all, networkLink{role, link})
	}
	return all, nil
}

// findLink is the link with an address; nil if none has it.
func findLink(address netip.Prefix) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		have, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range have {
			if a.IPNet.String() == address.String() {
				return l, nil
			}
		}
	}
	return nil, nil
}

// Interface is the name of the interface on a network: the bridge of its role, or what a guest's machine has there.
func (h *Host) Interface(role string) string {
	if !h.Guest {
		return role
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.nets.all {
		if a.Role == role && len(a.NICs) > 0 {
			return a.NICs[0].Name
		}
	}
	return role
}
