package noderuntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/engine/nodehealth"
)

// The pods' network: every node has a part of the pods' addresses, given by the control plane, and a
// route to the part of every other node by that node's own address. No tunnel, no encapsulation: the
// nodes of a cluster are on one network (docs/decisions/0007-clusters-of-nodes.md).
const (
	routeProtocol = 70 // marks our routes among others (rtnetlink(7): above 4 is free)
	netTable      = "firstlight-pods"
	confFile      = "/etc/cni/net.d/10-firstlight.conflist"
	healthAddr    = "127.0.0.1:9879"
	resync        = 30 * time.Second
)

// networkPlan is what the network of one node is.
type networkPlan struct {
	addr   netip.Addr                  // of this node
	own    []netip.Prefix              // pods here
	routes map[netip.Prefix]netip.Addr // pods there, and by whom
}

// planNetwork decides from the nodes of the cluster. A node without an address or without a part of the pods'
// addresses is new and comes again.
func planNetwork(nodes []node, self string) (networkPlan, error) {
	w := networkPlan{routes: map[netip.Prefix]netip.Addr{}}
	for _, n := range nodes {
		for _, text := range n.Spec.PodCIDRs {
			cidr, err := netip.ParsePrefix(text)
			if err != nil {
				return networkPlan{}, fmt.Errorf("node %s: %w", n.Metadata.Name, err)
			}
			if n.Metadata.Name == self {
				w.own = append(w.own, cidr)
				w.addr, _ = n.address(w.own[0].Addr().Is4())
			} else if via, ok := n.address(cidr.Addr().Is4()); ok {
				w.routes[cidr] = via
			}
		}
	}

	if len(w.own) == 0 || !w.addr.IsValid() {
		return networkPlan{}, fmt.Errorf("node %s has no addresses for pods yet", self)
	}

	return w, nil
}

// cniConfig is the configuration of the CNI plugins. Pods are reached by routes, not over a bridge:
// every packet passes the host's rules, also between two pods of one node.
func cniConfig(own []netip.Prefix, mtu int) []byte {
	ranges := make([]string, len(own))
	routes := make([]string, len(own))
	for i, p := range own {
		ranges[i] = fmt.Sprintf(`[{"subnet": "%s"}]`, p)
		routes[i] = `{"dst": "0.0.0.0/0"}`
		if p.Addr().Is6() {
			routes[i] = `{"dst": "::/0"}`
		}
	}

	return fmt.Appendf(nil, `{
  "cniVersion": "1.0.0",
  "name": "firstlight",
  "plugins": [
    {
      "type": "ptp",
      "mtu": %d,
      "ipam": {"type": "host-local", "dataDir": "/run/firstlight/cni", "ranges": [%s], "routes": [%s]}
    },
    {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}
  ]
}
`, mtu, strings.Join(ranges, ", "), strings.Join(routes, ", "))
}

// rules hide the pods' addresses from everybody but the pods of this cluster: what is outside knows the
// way to the node only.
func rules(own []netip.Prefix, pods netip.Prefix) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %[1]s\ndelete table inet %[1]s\ntable inet %[1]s {\n", netTable)
	b.WriteString("\tchain postrouting {\n\t\ttype nat hook postrouting priority srcnat;\n")
	for _, p := range own {
		family := "ip"
		if p.Addr().Is6() {
			family = "ip6"
		}
		if p.Addr().Is4() == pods.Addr().Is4() {
			fmt.Fprintf(&b, "\t\t%[1]s saddr %[2]s %[1]s daddr != %[3]s masquerade\n", family, p, pods)
		}
	}

	b.WriteString("\t}\n}\n")
	return b.String()
}

// Network keeps the pods' network of one node as the nodes of the cluster want it.
type Network struct {
	Node           string       // this node's name
	Pods, Services netip.Prefix // of the whole cluster, masked
	Log            *slog.Logger
}

// Run follows the nodes and answers at healthAddr how the network stands, until ctx ends. It needs a pod's account.
func (n *Network) Run(ctx context.Context) error {
	nodes, err := newNodes(os.Getenv)
	if err != nil {
		return err
	}

	health := nodehealth.New("pods' network", n.Log)
	failed, err := health.Serve(ctx, healthAddr)
	if err != nil {
		return err
	}

	changed := nodes.follow(ctx, n.Log)
	var last []node
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() == nil {
				return fmt.Errorf("serve health: %w", err)
			}
		case last = <-changed:
		case <-time.After(resync): // somebody may have flushed routes or rules
		}
		if last != nil {
			health.Set(n.apply(ctx, last))
		}
	}
}

// apply makes routes, rules and configuration as the nodes want them. The configuration comes last: it
// lets pods start.
func (n *Network) apply(ctx context.Context, nodes []node) error {
	w, err := planNetwork(nodes, n.Node)
	if err != nil {
		return err
	}

	mtu, err := setRoutes(w, n.Services)
	if err != nil {
		return err
	}
	if err := enableForwarding(); err != nil {
		return err
	}

	nft := exec.CommandContext(ctx, "nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules(w.own, n.Pods))
	if out, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("set rules for pods' packets: %w: %s", err, bytes.TrimSpace(out))
	}

	return atomicfile.WriteChanged(confFile, cniConfig(w.own, mtu), 0o644)
}

// setRoutes makes our routes those wanted, and one to Services: what runs on the node itself addresses
// them too, and a node without a default route has no way there. It returns the size of packet that
// the network takes.
func setRoutes(w networkPlan, services netip.Prefix) (mtu int, err error) {
	home, err := linkOf(w.addr)
	if err != nil {
		return 0, err
	}

	have, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{
		Protocol: routeProtocol,
		Table:    unix.RT_TABLE_MAIN,
	},
		netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return 0, fmt.Errorf("read routes: %w", err)
	}

	for _, r := range have {
		if _, wanted := w.routes[prefixOf(r.Dst)]; !wanted && prefixOf(r.Dst) != services {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return 0, fmt.Errorf("remove route to %s: %w", r.Dst, err)
			}
		}
	}

	toServices := netlink.Route{
		LinkIndex: home.Attrs().Index,
		Dst:       ipNet(services),
		Src:       w.addr.AsSlice(),
		Scope:     netlink.SCOPE_LINK,
	}
	wrong := []error{setRoute(toServices)}
	for to, via := range w.routes {
		link, err := onLink(via)
		if err == nil {
			err = setRoute(netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()})
		}
		wrong = append(wrong, err)
	}

	return home.Attrs().MTU, errors.Join(wrong...)
}

func setRoute(r netlink.Route) error {
	r.Protocol, r.Table = routeProtocol, unix.RT_TABLE_MAIN
	if err := netlink.RouteReplace(&r); err != nil {
		return fmt.Errorf("set route to %s: %w", r.Dst, err)
	}
	return nil
}

// linkOf is the interface that has an address of this node.
func linkOf(addr netip.Addr) (netlink.Link, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read addresses: %w", err)
	}

	for _, a := range all {
		if a.IP.Equal(addr.AsSlice()) {
			return netlink.LinkByIndex(a.LinkIndex)
		}
	}

	return nil, fmt.Errorf("no interface has this node's address %s", addr)
}

// onLink is the interface on which a node is a neighbour.
func onLink(via netip.Addr) (netlink.Link, error) {
	found, err := netlink.RouteGet(via.AsSlice())
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("find the way to node %s: %w", via, err)
	}
	if gw := found[0].Gw; gw != nil && !gw.IsUnspecified() {
		return nil, fmt.Errorf(
			"node %s is behind the router %s; the nodes of a cluster must be on one network", via, gw,
		)
	}

	return netlink.LinkByIndex(found[0].LinkIndex)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}

	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits)
}

// enableForwarding lets the host pass packets on.
func enableForwarding() error {
	for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		have, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(have)) == "1" {
			continue
		}
		if err := os.WriteFile(path, []byte("1"), 0); err != nil {
			return fmt.Errorf("let packets pass: %w", err)
		}
	}
	return nil
}
