package ovn4nfv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

// machine is the Node of this machine.
type machine struct{}

var _ Node = machine{}

// inNamespace calls do in a namespace.
func inNamespace(path string, do func(*netlink.Handle, netns.NsHandle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer handle.Close()
	return do(handle, ns)
}

// alias is what an interface's other end says of whose it is.
func alias(container, device string) string { return container + "/" + device }

// Links is of Node.
func (machine) Links(container string) (names []string, err error) {
	if !ovn.HasNamespace(ovn.Namespace) {
		return nil, nil
	}
	err = inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		links, err := h.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Alias, alias(container, "")) {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	return names, err
}

// Create is of Node.
func (machine) Create(container, namespace string, l Link) error {
	if !ovn.HasNamespace(ovn.Namespace) {
		return fmt.Errorf("the node has no Open vSwitch; see the pod ovn of this node in %s", systemNamespace)
	}
	mac, err := net.ParseMAC(l.MAC)
	if err != nil {
		return fmt.Errorf("make the interface: %w", err)
	}
	pod, err := netns.GetFromPath(namespace)
	if err != nil {
		return fmt.Errorf("open the pod's network namespace: %w", err)
	}
	defer pod.Close()

	err = inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = l.Other, l.MTU
		err := h.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: l.Name, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(int(pod)),
			PeerMTU: uint32(l.MTU), PeerTxQLen: -1,
		})
		if err != nil {
			return fmt.Errorf("make the interface: %w", err)
		}
		other, err := h.LinkByName(l.Other)
		if err != nil {
			return fmt.Errorf("find the interface: %w", err)
		}
		if err := h.LinkSetAlias(other, alias(container, l.Name)); err != nil {
			return fmt.Errorf("name the interface: %w", err)
		}
		return h.LinkSetUp(other)
	})
	if err != nil {
		return err
	}
	if l.WritesChecksums {
		return errors.Join(
			ovn.DisableChecksumOffload(ovn.Namespace, l.Other), ovn.DisableChecksumOffload(namespace, l.Name))
	}
	return nil
}

// Configure is of Node.
func (machine) Configure(namespace string, l Link, keep []netip.Prefix) error {
	return inNamespace(namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		link, err := h.LinkByName(l.Name)
		if err != nil {
			return fmt.Errorf("find the interface: %w", err)
		}
		if err := h.AddrAdd(link, &netlink.Addr{IPNet: toIPNet(l.Address)}); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s: %w", l.Address, err)
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("take it up: %w", err)
		}
		if !l.Gateway.IsValid() {
			return nil
		}
		return replaceDefault(h, link, l.Gateway, keep)
	})
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// replaceDefault has the pod's default route go by an interface. The networks of the cluster are reached as before.
func replaceDefault(h *netlink.Handle, link netlink.Link, gateway netip.Addr, keep []netip.Prefix) error {
	routes, err := h.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("read the pod's routes: %w", err)
	}
	for _, r := range routes {
		if !isDefault(r) || r.LinkIndex == link.Attrs().Index {
			continue
		}
		for _, k := range keep {
			one := r
			one.Dst = toIPNet(k)
			if err := h.RouteAdd(&one); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("keep the route to %s: %w", k, err)
			}
		}
		if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("replace the default route: %w", err)
		}
	}

	all := toIPNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	one := netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: gateway.AsSlice()}
	if err := h.RouteReplace(&one); err != nil {
		return fmt.Errorf("add the default route by %s: %w", gateway, err)
	}
	return nil
}

// Check is of Node.
func (machine) Check(namespace string, l Link) error {
	return inNamespace(namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		link, err := h.LinkByName(l.Name)
		if err != nil {
			return fmt.Errorf("find the interface: %w", err)
		}
		addresses, err := h.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("read its addresses: %w", err)
		}
		for _, a := range addresses {
			if a.IPNet.String() == toIPNet(l.Address).String() {
				return nil
			}
		}
		return fmt.Errorf("it has no address %s", l.Address)
	})
}

// Remove is of Node.
func (machine) Remove(link string) error {
	if !ovn.HasNamespace(ovn.Namespace) {
		return nil
	}
	return inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		one, err := h.LinkByName(link)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err == nil {
			err = h.LinkDel(one)
		}
		if errors.Is(err, unix.ENODEV) { // the pod's end went at the same time
			return nil
		}
		return err
	})
}

const (
	installWait = 20 * time.Second
	installPoll = 100 * time.Millisecond
)

// connectOperations make a link a port of br-int, for a logical port of OVN.
func connectOperations(p Port) []ovsdb.Operation {
	return []ovsdb.Operation{
		ovsdb.Insert("Interface", "link", map[string]any{
			"name": p.Link,
			"external_ids": ovsdb.Map(map[string]string{
				"iface-id": p.Name, "iface-id-ver": p.UID, "attached-mac": p.MAC, "pod": p.Pod, ownerKey: ownerName,
			}),
		}),
		ovsdb.Insert("Port", "port", map[string]any{
			"name": p.Link, "interfaces": ovsdb.NamedUUID("link"), "external_ids": ovsdb.Map(map[string]string{ownerKey: ownerName}),
		}),
		ovsdb.Mutate("Bridge", []ovsdb.Condition{ovsdb.Equal("name", ovn.IntegrationBridge)},
			ovsdb.Mutation{"ports", "insert", ovsdb.Set(ovsdb.NamedUUID("port"))}),
		ovn.Reconfigure(),
	}
}

// Connect is of Node.
func (machine) Connect(ctx context.Context, p Port) error {
	c, err := ovsdb.Dial(ctx, ovn.Socket(), nil)
	if err != nil {
		return fmt.Errorf("%w; see the pod ovn of this node in %s", err, systemNamespace)
	}
	defer c.Close()
	if err := disconnect(ctx, c, p.Link); err != nil {
		return err
	}
	results, err := c.Transact(ctx, ovn.Database, connectOperations(p)...)
	if err != nil {
		return err
	}
	if results[2].Count != 1 {
		return fmt.Errorf("the node has no bridge %s; see the pod ovn of this node in %s",
			ovn.IntegrationBridge, systemNamespace)
	}

	deadline := time.Now().Add(installWait)
	for {
		results, err := c.Transact(ctx, ovn.Database, ovsdb.Select("Interface",
			[]ovsdb.Condition{ovsdb.Equal("name", p.Link)}, "external_ids", "error"))
		if err != nil {
			return err
		}
		if len(results[0].Rows) != 1 {
			return errors.New("its port was taken away while OVN set it up")
		}
		row := results[0].Rows[0]
		if fault := row.String("error"); fault != "" {
			return fmt.Errorf("its port has a fault in Open vSwitch: %s", fault)
		}
		if row.Map("external_ids")["ovn-installed"] == "true" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("OVN has not set up port %s within %s; see the pods ovn and %s in %s",
				p.Name, installWait, ovn.CentralName, systemNamespace)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(installPoll):
		}
	}
}

// Disconnect is of Node.
func (machine) Disconnect(ctx context.Context, links ...string) error {
	c, err := ovsdb.Dial(ctx, ovn.Socket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return disconnect(ctx, c, links...)
}

// disconnect takes ports of this add-on from br-int. Rows that nothing refers to go by themselves.
func disconnect(ctx context.Context, c *ovsdb.Conn, links ...string) error {
	var selects []ovsdb.Operation
	for _, l := range links {
		selects = append(selects, ovsdb.Select("Port", []ovsdb.Condition{
			ovsdb.Equal("name", l), ovsdb.Includes("external_ids", ovsdb.Map(map[string]string{ownerKey: ownerName})),
		}, "_uuid"))
	}
	results, err := c.Transact(ctx, ovn.Database, selects...)
	if err != nil {
		return err
	}
	var ports []ovsdb.UUID
	for _, r := range results {
		for _, row := range r.Rows {
			ports = append(ports, row.UUID())
		}
	}
	if len(ports) == 0 {
		return nil
	}
	_, err = c.Transact(ctx, ovn.Database,
		ovsdb.Mutate("Bridge", []ovsdb.Condition{ovsdb.Equal("name", ovn.IntegrationBridge)},
			ovsdb.Mutation{"ports", "delete", ovsdb.Set(ports...)}),
		ovn.Reconfigure())
	return err
}

// readConnected returns the kernel's routes to networks that this machine is in, other than by interfaces of pods.
func readConnected(uplink netip.Addr) ([]netip.Prefix, int, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, 0, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		addresses, err := netlink.AddrList(l, netlink.FAMILY_V4)
		if err != nil {
			return nil, 0, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addresses {
			prefix, ok := toPrefix(a.IPNet)
			if ok && prefix.Addr() == uplink {
				return []netip.Prefix{prefix.Masked()}, l.Attrs().MTU, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("no interface of the node has its address %s", uplink)
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	address, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), ones), ok
}
