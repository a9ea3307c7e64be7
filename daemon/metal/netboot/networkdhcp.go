package netboot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
)

// NetworkDHCP is the DHCP server of the networks beside provisioning. It answers only where
// the site says so, and offers nothing to boot.
type NetworkDHCP struct {
	Log  *slog.Logger
	Site func() *site.Site

	Interface func(role string) string // as in Server

	dir string // of leases, in a directory for each role; "": the appliance's

	mu      sync.Mutex
	serving map[string]*dhcp.Server // by role
	failed  map[string]error        // why none serves
}

// servedRoles are the roles of networks that may be served.
func servedRoles() []string { return []string{host.BMC, host.Baremetal} }

// dhcpNetwork is the network with that role, if the appliance shall be its DHCP server.
func (a *NetworkDHCP) dhcpNetwork(role string) (site.Network, bool) {
	n := a.Site().Networks.Role(role)
	if n == nil || n.DHCP.Mode != "server" {
		return site.Network{}, false
	}
	return *n, true
}

// Serve answers on one network whenever the site asks for that, and begins anew when the
// site changes the network.
func (a *NetworkDHCP) Serve(ctx context.Context, role string, up func() bool) error {
	log := a.Log.With("part", "dhcp", "network", role)
	network := func() (site.Network, bool) { return a.dhcpNetwork(role) }
	return rerun.OnChange(ctx, up, network, func(ctx context.Context, n site.Network) error {
		conf := networkDHCPConfig(interfaceOf(a.Interface, role), n, filepath.Join(cmp.Or(a.dir, leaseDir), role))
		s, err := dhcp.New(conf, dhcp.Deps{Events: dhcp.EventRecorder{Log: log}, Log: log})
		if err == nil {
			a.setResult(role, s, nil)
			err = s.Run(ctx)
		}

		a.setResult(role, nil, err)
		if err != nil {
			return fmt.Errorf("serve DHCP on %s: %w", role, err)
		}

		return nil
	})
}

// networkDHCPConfig is how a network's addresses are given: with what the site says of the network,
// and without a base URL there are no boot files. Machines there may have addresses by
// hand, BMCs above all, so a stranger's is looked for before it is offered.
func networkDHCPConfig(nic string, n site.Network, dir string) dhcp.Config {
	s := dhcp.Subnet{
		Prefix: n.CIDR,
		Pool:   dhcp.Range{First: n.DHCP.Range.First, Last: n.DHCP.Range.Last},
		Lease:  time.Duration(n.DHCP.Lease),
		Router: n.Gateway,
		DNS:    serversLike(n.Address, n.DNS),
		NTP:    serversLike(n.Address, numericHosts(n.NTP)),
	}
	if n.MTU != 1500 {
		s.MTU = uint16(n.MTU)
	}
	return dhcp.Config{
		Interface:    nic,
		Server:       n.Address,
		Subnets:      []dhcp.Subnet{s},
		LeaseDir:     dir,
		ConflictWait: 500 * time.Millisecond,
		Foreign:      foreignPolicy(n.DHCP),
	}
}

// serversLike are the servers that fit a DHCP option: of the family of own, and eight at most.
func serversLike(own netip.Addr, all []netip.Addr) []netip.Addr {
	var fit []netip.Addr
	for _, a := range all {
		if a.Is4() == own.Is4() && len(fit) < 8 {
			fit = append(fit, a)
		}
	}
	return fit
}

// numericHosts are the hosts that are addresses; DHCP has no place for names.
func numericHosts(hosts []site.Host) []netip.Addr {
	var all []netip.Addr
	for _, h := range hosts {
		if a, err := netip.ParseAddr(h.String()); err == nil {
			all = append(all, a)
		}
	}
	return all
}

func (a *NetworkDHCP) setResult(role string, s *dhcp.Server, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.serving == nil {
		a.serving, a.failed = map[string]*dhcp.Server{}, map[string]error{}
	}

	a.serving[role], a.failed[role] = s, err
}

// dhcpStatus is what the server of a network does now; the zero Status where none is asked for.
func (a *NetworkDHCP) dhcpStatus(role string) dhcp.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, asked := a.dhcpNetwork(role); !asked {
		return dhcp.Status{}
	}
	if s := a.serving[role]; s != nil {
		return s.Status()
	}
	if err := a.failed[role]; err != nil {
		return dhcp.Status{
			Phase: dhcp.PhaseBroken,
			Text:  fmt.Sprintf("no DHCP on %s: %v; it is tried again", role, err),
		}
	}

	return dhcp.Status{Phase: dhcp.PhaseProbing}
}

// Status is what the server of a network does now, and whether the site asks for one.
func (a *NetworkDHCP) Status(role string) (dhcp.Status, bool) {
	_, asked := a.dhcpNetwork(role)
	return a.dhcpStatus(role), asked
}

// AddStatus adds to the status of each network what its DHCP server does, and to the notes why
// one that was asked for gives no addresses.
func (a *NetworkDHCP) AddStatus(d *status.Document) {
	for _, role := range servedRoles() {
		st := a.dhcpStatus(role)
		for i := range d.Addresses {
			if d.Addresses[i].Role == role {
				d.Addresses[i].DHCP = string(st.Phase)
			}
		}
		if st.Phase == dhcp.PhaseSilent || st.Phase == dhcp.PhaseBroken || len(st.Foreign) > 0 {
			d.Notes = append(d.Notes, st.Text)
		}
	}
}

// ActiveLeases are those that machines of a network have now; none where the appliance is not its DHCP server.
func (a *NetworkDHCP) ActiveLeases(role string) []lease.ListedLease {
	a.mu.Lock()
	s := a.serving[role]
	a.mu.Unlock()
	if s == nil {
		return nil
	}

	return filterActive(s.Leases())
}
