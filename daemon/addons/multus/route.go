package multus

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// setDefaultRoute has a pod's packets to anywhere leave by one of its interfaces, by way of gateways: one for each family
// of addresses. The new route is there before the others go.
func setDefaultRoute(namespace, device string, gateways []string) error {
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer ns.Close()

	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer handle.Close()

	link, err := handle.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", device, err)
	}
	for _, text := range gateways {
		gateway, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("default-route: %w", err)
		}
		if err := replaceDefault(handle, link.Attrs().Index, gateway.Unmap()); err != nil {
			return fmt.Errorf("default-route by %s on %s: %w", gateway, device, err)
		}
	}
	return nil
}

func replaceDefault(handle *netlink.Handle, index int, gateway netip.Addr) error {
	family, everywhere := netlink.FAMILY_V4, netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		family, everywhere = netlink.FAMILY_V6, netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	to := &net.IPNet{IP: everywhere.Addr().AsSlice(), Mask: net.CIDRMask(0, everywhere.Addr().BitLen())}

	before, err := handle.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("read routes: %w", err)
	}
	if err := handle.RouteReplace(&netlink.Route{LinkIndex: index, Dst: to, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("set route: %w", err)
	}

	for _, r := range before {
		if ones := prefixLength(r.Dst); ones != 0 || r.LinkIndex == index {
			continue
		}
		if err := handle.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route by another interface: %w", err)
		}
	}
	return nil
}

func prefixLength(n *net.IPNet) int {
	if n == nil {
		return 0
	}
	ones, _ := n.Mask.Size()
	return ones
}
