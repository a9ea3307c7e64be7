package ovn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// Underlay keeps a node's part of the network that OVN's tunnels need, and the settings of its ovn-controller.
type Underlay struct {
	Node    string     // its name
	Address netip.Addr // its own, by which other nodes reach it
	Log     *slog.Logger

	datapath Datapath            // "" until the kernel was asked
	central  netip.Addr          // of the Service, as it was resolved last
	resolved time.Time           // when that was tried
	nft      knftables.Interface // nil until it was asked for
	rules    string              // as they were written
	checked  time.Time           // when that was compared with what is there
	said     string              // the last fault, to say each once
}

// underlayEvery is how often all is compared with what it should be. Addresses of interfaces that ovs-vswitchd makes are
// lost when it starts again.
const underlayEvery = time.Second

// Prepare makes what Open vSwitch needs to start: its namespace.
func (u *Underlay) Prepare() error { return ensureNamespace(Namespace) }

// Run repairs all of it until ctx ends. All of it stays then: pods go on with what they have.
func (u *Underlay) Run(ctx context.Context) error {
	for {
		err := u.ensure(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && u.said != err.Error():
			u.said = err.Error()
			u.Log.Warn("the underlay is not as it should be", "node", u.Node, "error", err)
		case err == nil && u.said != "ready":
			u.said = "ready"
			u.Log.Info("the underlay is ready", "node", u.Node, "address", u.Address)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(underlayEvery):
		}
	}
}

func (u *Underlay) ensure(ctx context.Context) error {
	if err := ensureNamespace(Namespace); err != nil {
		return err
	}
	uplink, err := findUplink(u.Address)
	if err != nil {
		return err
	}
	if u.datapath == "" {
		u.datapath = FindDatapath()
	}
	if err := u.ensureLink(uplink.Attrs().MTU); err != nil {
		return fmt.Errorf("link the node and its namespace: %w", err)
	}
	if err := u.ensureRules(ctx, uplink.Attrs().Name); err != nil {
		return err
	}

	failed := u.resolve(ctx)
	if err := u.ensureSettings(ctx); err != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(u.ensureAddress(ctx), failed)
}

// resolveEvery is how often the Service's address is asked for: it stays, unless somebody makes the Service again.
const resolveEvery = 30 * time.Second

// resolve finds the Service of the central part. If nobody answers, it is where it was.
func (u *Underlay) resolve(ctx context.Context) error {
	if time.Since(u.resolved) < resolveEvery && u.central.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", CentralHost)
	u.resolved = time.Now()
	if err == nil && len(all) > 0 {
		u.central = all[0].Unmap()
	}
	if err != nil {
		return fmt.Errorf("find Service %s: %w", CentralHost, err)
	}
	return nil
}

// FindDatapath asks the kernel for its module, which is loaded if it is there. A kernel without it looks for it each time.
func FindDatapath() Datapath {
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return Userspace
	}
	return Kernel
}

// findUplink returns the interface that has the node's address.
func findUplink(address netip.Addr) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		all, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range all {
			if a.IP.Equal(address.AsSlice()) {
				return link, nil
			}
		}
	}
	return nil, fmt.Errorf("no interface of the node has its address %s; the add-on ovn needs nodes with IPv4", address)
}

// ensureLink makes the link between the node and the namespace, and the node's end as it should be.
func (u *Underlay) ensureLink(mtu int) error {
	ns, err := netns.GetFromPath(Namespace)
	if err != nil {
		return err
	}
	defer ns.Close()

	link, err := netlink.LinkByName(hostLink)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = hostLink, mtu, hostMAC
		veth := &netlink.Veth{
			LinkAttrs: attrs, PeerName: namespaceLink, PeerNamespace: netlink.NsFd(int(ns)), PeerMTU: uint32(mtu),
			PeerTxQLen: -1,
		}
		if u.datapath == Kernel {
			veth.PeerHardwareAddr = underlayMAC
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		link, err = netlink.LinkByName(hostLink)
	}
	if err != nil {
		return err
	}

	if u.datapath == Userspace {
		err := errors.Join(DisableChecksumOffload("", hostLink), DisableChecksumOffload(Namespace, namespaceLink))
		if err != nil {
			return err
		}
	}
	if err := ensureUp(&netlink.Handle{}, link, &hostPrefix); err != nil {
		return err
	}
	// No ARP is answered where both ends have the node's address.
	handle := &netlink.Handle{}
	return errors.Join(
		setNeighbour(handle, link, u.Address, underlayMAC), setNeighbour(handle, link, insideAddr, underlayMAC))
}

// setNeighbour says whose MAC an address has, for good.
func setNeighbour(h *netlink.Handle, link netlink.Link, address netip.Addr, mac net.HardwareAddr) error {
	err := h.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
		IP: address.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("set neighbour %s of %s: %w", address, link.Attrs().Name, err)
	}
	return nil
}

// ensureUp takes an interface up, with an address if there is one.
func ensureUp(h *netlink.Handle, link netlink.Link, address *netip.Prefix) error {
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("take %s up: %w", link.Attrs().Name, err)
		}
	}
	if address == nil {
		return nil
	}
	one := &netlink.Addr{IPNet: &net.IPNet{
		IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen()),
	}}
	if err := h.AddrAdd(link, one); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add %s to %s: %w", address, link.Attrs().Name, err)
	}
	return nil
}

// ensureAddress gives the tunnels their address: on the link itself, or on the bridge by which ovs-vswitchd sends.
func (u *Underlay) ensureAddress(ctx context.Context) error {
	ns, err := netns.GetFromPath(Namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()

	link, err := h.LinkByName(namespaceLink)
	if err != nil {
		return fmt.Errorf("find %s: %w", namespaceLink, err)
	}
	if u.datapath == Userspace {
		if err := ensureUp(h, link, nil); err != nil {
			return err
		}
		if link, err = h.LinkByName(underlayBridge); err != nil {
			return fmt.Errorf("wait for ovs-vswitchd to make %s: %w", underlayBridge, err)
		}
	}
	// The node's address is what tunnels have. By the other one ovs-vswitchd finds that the gateway is there.
	own := netip.PrefixFrom(u.Address, u.Address.BitLen())
	inside := netip.PrefixFrom(insideAddr, hostPrefix.Bits())
	if err := errors.Join(ensureUp(h, link, &inside), ensureUp(h, link, &own)); err != nil {
		return err
	}

	gateway := hostPrefix.Addr()
	if err := setNeighbour(h, link, gateway, hostMAC); err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: &everywhere, Gw: gateway.AsSlice()}
	if err := h.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the default route: %w", err)
	}
	if u.datapath == Kernel {
		return nil
	}
	// What the kernel knows of neighbours ovs-vswitchd does not.
	_, err = control(ctx, controlSocket(Run, switchName), "tnl/arp/set", underlayBridge, gateway.String(), hostMAC.String())
	return err
}

// TableName is the nftables table of family ip on each node.
const TableName = "firstlight-ovn"

// rulesEvery is how often the table is looked for: whoever flushes all rules takes it away.
const rulesEvery = 30 * time.Second

// ensureRules writes the table if it is another than the last one, or gone.
func (u *Underlay) ensureRules(ctx context.Context, uplink string) (err error) {
	if u.nft == nil {
		if u.nft, err = knftables.New(knftables.IPv4Family, TableName); err != nil {
			return fmt.Errorf("open table %s: %w", TableName, err)
		}
	}
	tx := u.nft.NewTransaction()
	writeRules(tx, u.Address, uplink)
	if u.rules == tx.String() {
		if time.Since(u.checked) < rulesEvery {
			return nil
		}
		u.checked = time.Now()
		if chains, err := u.nft.List(ctx, "chain"); err == nil && len(chains) == 3 {
			return nil
		}
	}
	if err := u.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("set table %s: %w", TableName, err)
	}
	u.rules, u.checked = tx.String(), time.Now()
	return nil
}

// writeRules takes Geneve to the node's address through its routing into the namespace, and what comes out of it the other
// way. Connections are not tracked: each flow in a tunnel would be some. Pods send no Geneve: it would have their node's
// address, and other nodes would take it for tunnelled.
func writeRules(tx *knftables.Transaction, node netip.Addr, uplink string) {
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("Geneve of OVN")})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("Geneve of OVN")})

	chain := func(name string, hook knftables.BaseChainHook, priority knftables.BaseChainPriority, rules ...string) {
		tx.Add(&knftables.Chain{
			Name: name, Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(hook),
			Priority: knftables.PtrTo(priority),
		})
		for _, r := range rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: r})
		}
	}
	inside := insideAddr.String()
	chain("prerouting", knftables.PreroutingHook, knftables.RawPriority,
		knftables.Concat("iifname", quote(uplink), "ip daddr", node.String(), "udp dport", genevePort,
			"notrack ip daddr set", inside),
		knftables.Concat("iifname", quote(hostLink), "ip saddr", node.String(), "udp dport", genevePort,
			"notrack ip saddr set", inside))
	chain("forward", knftables.ForwardHook, knftables.FilterPriority,
		knftables.Concat("iifname !=", quote(hostLink), "oifname !=", quote(hostLink), "udp dport", genevePort, "drop"))
	chain("postrouting", knftables.PostroutingHook, knftables.SNATPriority,
		knftables.Concat("oifname", quote(hostLink), "ip daddr", inside, "ip daddr set", node.String()),
		knftables.Concat("oifname !=", quote(hostLink), "ip saddr", inside, "ip saddr set", node.String()))
}

func quote(name string) string { return `"` + name + `"` }
