package ovn4nfv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/addons/ovn"
	"firstlight.dev/firstlight/daemon/addons/ovsdb"
)

const (
	// providerAlias begins the alias of a node's interface that a provider network has: it says so wherever it is.
	providerAlias = "providernetwork "
	providerKey   = "provider" // of external_ids of its bridge
	mappingsKey   = "ovn-bridge-mappings"
)

// bridgeName is that of the bridge between a node's interface and OVN.
func bridgeName(n Network) string {
	sum := sha256.Sum256([]byte(n.switchName()))
	return "pn" + hex.EncodeToString(sum[:])[:13]
}

// device is the interface that a provider network takes: the node's, or that of the VLAN.
func (p Provider) device() string {
	if p.VLAN != 0 {
		return p.Logical
	}
	return p.Interface
}

// connectProviders moves the interfaces of networks into Open vSwitch's namespace and makes a bridge for each. Interfaces of
// other networks go back to the node, unless they are in kept. It returns what is wrong, by network.
func connectProviders(
	ctx context.Context, wanted []Network, kept map[string]bool, uplink netip.Addr,
) (faults map[string]error, err error) {
	faults = map[string]error{}
	if !ovn.HasNamespace(ovn.Namespace) {
		if len(wanted) == 0 {
			return faults, nil
		}
		return faults, fmt.Errorf("the node has no Open vSwitch yet; see the pod ovn of this node in %s", systemNamespace)
	}

	var ready []Network
	users := map[string]string{}
	for _, n := range wanted {
		device := n.Provider.device()
		if other, isUsed := users[device]; isUsed {
			faults[n.String()] = fmt.Errorf("interface %s is network %s's", device, other)
			continue
		}
		users[device] = n.String()
		if fault := takeInterface(n, uplink); fault != nil {
			faults[n.String()] = fault
			continue
		}
		ready = append(ready, n)
	}

	if err := writeBridges(ctx, ready, kept); err != nil {
		return faults, err
	}
	return faults, returnInterfaces(ready, kept)
}

// takeInterface moves an interface of the node into Open vSwitch's namespace. Its alias is set first: whatever moment the
// power goes, it is known where the interface belongs.
func takeInterface(n Network, uplink netip.Addr) error {
	name, mark := n.Provider.device(), providerAlias+n.String()
	isThere := false
	err := inNamespace(ovn.Namespace, func(h *netlink.Handle, ns netns.NsHandle) error {
		if link, err := h.LinkByName(name); err == nil {
			if link.Attrs().Alias != mark {
				return fmt.Errorf("interface %s is %q's", name, strings.TrimPrefix(link.Attrs().Alias, providerAlias))
			}
			isThere = true
			return h.LinkSetUp(link)
		}

		link, err := findDevice(*n.Provider)
		if err == nil {
			err = checkFree(link, uplink)
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkSetAlias(link, mark); err != nil {
			return fmt.Errorf("mark interface %s: %w", name, err)
		}
		if err := netlink.LinkSetNsFd(link, int(ns)); err != nil {
			return fmt.Errorf("interface %s cannot be moved into Open vSwitch's namespace, as those of bonds and bridges "+
				"cannot: %w; use one of its VLANs", name, err)
		}
		return nil
	})
	if err != nil || isThere {
		return err
	}
	return inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		link, err := h.LinkByName(name)
		if err == nil {
			err = h.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("take interface %s up: %w", name, err)
		}
		return nil
	})
}

// findDevice returns the node's interface, and makes that of a VLAN.
func findDevice(p Provider) (netlink.Link, error) {
	link, err := netlink.LinkByName(p.device())
	if err == nil {
		return link, nil
	}
	parent, err := netlink.LinkByName(p.Interface)
	if err != nil || p.VLAN == 0 {
		return nil, fmt.Errorf("the node has no interface %s", p.Interface)
	}

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = p.Logical, parent.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: p.VLAN}); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("the node's kernel has no VLANs (module 8021q); use a network of type DIRECT")
		}
		return nil, fmt.Errorf("make interface %s: %w", p.Logical, err)
	}
	return netlink.LinkByName(p.Logical)
}

// checkFree reports an interface that the node itself uses.
func checkFree(link netlink.Link, uplink netip.Addr) error {
	name := link.Attrs().Name
	if master := link.Attrs().MasterIndex; master != 0 {
		return fmt.Errorf("interface %s is part of another; use that one, or take it out", name)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the addresses of interface %s: %w", name, err)
	}
	for _, a := range addresses {
		if a.IP.Equal(net.IP(uplink.AsSlice())) {
			return fmt.Errorf("interface %s has the node's own address; use another interface, or a VLAN of this one", name)
		}
		if a.IP.IsGlobalUnicast() {
			return fmt.Errorf("interface %s has the address %s, which the node would lose; remove it, or use another interface",
				name, a.IP)
		}
	}
	return nil
}

// returnInterfaces gives the node back what no network has any more.
func returnInterfaces(ready []Network, kept map[string]bool) error {
	marks := map[string]bool{}
	for _, n := range ready {
		marks[providerAlias+n.String()] = true
	}
	node, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the node's network namespace: %w", err)
	}
	defer node.Close()

	return inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		links, err := h.LinkList()
		if err != nil {
			return fmt.Errorf("list interfaces: %w", err)
		}
		failed := restoreMarked(marks)
		for _, link := range links {
			mark := link.Attrs().Alias
			network, isProvider := strings.CutPrefix(mark, providerAlias)
			if !isProvider || marks[mark] || kept[strings.Replace(network, "/", "_", 1)] {
				continue
			}
			if _, isVLAN := link.(*netlink.Vlan); isVLAN {
				failed = append(failed, h.LinkDel(link))
				continue
			}
			err := h.LinkSetNsFd(link, int(node))
			if err == nil {
				err = restoreInterface(link.Attrs().Name)
			}
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	})
}

// restoreMarked restores interfaces that are on the node and say that they are a network's which nothing wants: something
// ended while they were given back.
func restoreMarked(marks map[string]bool) (failed []error) {
	links, err := netlink.LinkList()
	if err != nil {
		return []error{fmt.Errorf("list interfaces: %w", err)}
	}
	for _, link := range links {
		if mark := link.Attrs().Alias; strings.HasPrefix(mark, providerAlias) && !marks[mark] {
			failed = append(failed, restoreInterface(link.Attrs().Name))
		}
	}
	return failed
}

// restoreInterface takes from an interface of the node what Open vSwitch and this add-on set, and takes it up.
func restoreInterface(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	if err := errors.Join(netlink.SetPromiscOff(link), netlink.LinkSetUp(link), netlink.LinkSetAlias(link, "")); err != nil {
		return fmt.Errorf("restore interface %s: %w", name, err)
	}
	return nil
}

// writeBridges makes the bridges of networks, and says to OVN which is which.
func writeBridges(ctx context.Context, ready []Network, kept map[string]bool) error {
	c, err := ovsdb.Dial(ctx, ovn.Socket(), nil)
	if err != nil {
		if len(ready) == 0 {
			return nil // nothing is connected without it
		}
		return err
	}
	defer c.Close()

	results, err := c.Transact(ctx, ovn.Database,
		ovsdb.Select(ovn.Database, nil, "_uuid", "external_ids"),
		ovsdb.Select("Bridge", nil, "_uuid", "name", "external_ids", "datapath_type"))
	if err != nil {
		return err
	}
	if len(results[0].Rows) != 1 {
		return fmt.Errorf("database %s is not set up yet; see the pod ovn of this node in %s", ovn.Database, systemNamespace)
	}
	operations := planBridges(results[0].Rows[0].Map("external_ids")[mappingsKey], results[1].Rows, ready, kept)
	if len(operations) == 0 {
		return nil
	}
	// One bridge at a time: names of rows are unique in a transaction.
	for _, some := range operations {
		if _, err := c.Transact(ctx, ovn.Database, append(some, ovn.Reconfigure())...); err != nil {
			return err
		}
	}
	return nil
}

// planBridges returns the transactions that make bridges, and OVN's list of them, as networks want them.
func planBridges(mappings string, have []ovsdb.Row, ready []Network, kept map[string]bool) (all [][]ovsdb.Operation) {
	isWanted := map[string]bool{}
	wantedMappings := map[string]string{}
	for pair := range strings.SplitSeq(mappings, ",") {
		if network, bridge, ok := strings.Cut(pair, ":"); ok {
			wantedMappings[network] = bridge
		}
	}
	before := maps.Clone(wantedMappings)

	isThere := map[string]bool{}
	datapath := ""
	for _, r := range have {
		isThere[r.String("name")] = true
		if r.String("name") == ovn.IntegrationBridge {
			datapath = r.String("datapath_type")
		}
	}
	for _, n := range ready {
		name := bridgeName(n)
		isWanted[name] = true
		wantedMappings[n.switchName()] = name
		if !isThere[name] {
			all = append(all, ovn.AddBridge(name, map[string]any{
				"datapath_type": datapath,
				"external_ids":  ovsdb.Map(map[string]string{ownerKey: ownerName, providerKey: n.switchName()}),
			}, n.Provider.device()))
		}
	}
	for _, r := range have {
		ids := r.Map("external_ids")
		if ids[ownerKey] != ownerName || isWanted[r.String("name")] || kept[ids[providerKey]] {
			continue
		}
		delete(wantedMappings, ids[providerKey])
		all = append(all, []ovsdb.Operation{
			ovsdb.Mutate(ovn.Database, nil, ovsdb.Mutation{"bridges", "delete", ovsdb.Set(r.UUID())}),
		})
	}
	if maps.Equal(before, wantedMappings) {
		return all
	}

	var pairs []string
	for _, network := range slices.Sorted(maps.Keys(wantedMappings)) {
		pairs = append(pairs, network+":"+wantedMappings[network])
	}
	set := []ovsdb.Mutation{{"external_ids", "delete", ovsdb.Set(mappingsKey)}}
	if len(pairs) > 0 {
		set = append(set, ovsdb.Mutation{
			"external_ids", "insert", ovsdb.Map(map[string]string{mappingsKey: strings.Join(pairs, ",")}),
		})
	}
	return append(all, []ovsdb.Operation{ovsdb.Mutate(ovn.Database, nil, set...)})
}

// removeStalePorts takes ports of br-int away whose interfaces ended with their pods while nobody called the plugin.
func removeStalePorts(ctx context.Context) error {
	if !ovn.HasNamespace(ovn.Namespace) {
		return nil
	}
	c, err := ovsdb.Dial(ctx, ovn.Socket(), nil)
	if err != nil {
		return err
	}
	defer c.Close()

	// Ports first: the plugin makes an interface before its port.
	results, err := c.Transact(ctx, ovn.Database, ovsdb.Select("Port", []ovsdb.Condition{
		ovsdb.Includes("external_ids", ovsdb.Map(map[string]string{ownerKey: ownerName})),
	}, "name"))
	if err != nil {
		return err
	}
	names := map[string]bool{}
	err = inNamespace(ovn.Namespace, func(h *netlink.Handle, _ netns.NsHandle) error {
		links, err := h.LinkList()
		for _, l := range links {
			names[l.Attrs().Name] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	var stale []string
	for _, r := range results[0].Rows {
		if name := r.String("name"); !names[name] {
			stale = append(stale, name)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	return disconnect(ctx, c, stale...)
}
