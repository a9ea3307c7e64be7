package verify

import (
	"context"
	"net"
	"net/netip"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// Network is the questions that are put to the networks from here.
type Network interface {
	LocalAddrs() ([]netprobe.LocalAddr, error)
	AddressUser(ctx context.Context, ifname string, addr netip.Addr) (mac string, err error)
	CheckResolver(ctx context.Context, server netip.Addr) error
	OwnMACs() []string // MACs of this machine
}

// localNetwork asks as package ask does.
type localNetwork struct{}

func (localNetwork) LocalAddrs() ([]netprobe.LocalAddr, error) { return netprobe.LocalAddrs() }
func (localNetwork) AddressUser(ctx context.Context, ifname string, addr netip.Addr) (string, error) {
	return netprobe.AddressUser(ctx, ifname, addr)
}
func (localNetwork) CheckResolver(ctx context.Context, server netip.Addr) error {
	return netprobe.CheckResolver(ctx, server)
}
func (localNetwork) OwnMACs() []string {
	interfaces, _ := net.Interfaces() // without them nothing works, and other parts say so
	var all []string
	for _, i := range interfaces {
		all = append(all, i.HardwareAddr.String())
	}

	return all
}

// network is what asks the network.
func (e *Engine) network() Network {
	if e.Network == nil {
		return localNetwork{}
	}
	return e.Network
}

// surroundings is what the pre-flights of one round have in common, each by MAC: with a thousand nodes nothing of it
// is gone through for each node.
type surroundings struct {
	traces map[site.MAC]boottrace.Trace
	leases map[site.MAC]netip.Addr
	owners map[site.MAC][]string // names of the hosts that have a MAC
	own    map[site.MAC]bool     // MACs of this machine
	local  []netprobe.LocalAddr  // of this machine
}

// lookAround finds it out, hosts being those of this round.
func (e *Engine) lookAround(hosts []metal3api.BareMetalHost) surroundings {
	s := surroundings{
		traces: map[site.MAC]boottrace.Trace{},
		leases: e.Leases(),
		owners: map[site.MAC][]string{},
		own:    map[site.MAC]bool{},
	}
	for _, t := range e.Records() {
		s.traces[site.MAC(t.MAC)] = t
	}

	for i := range hosts {
		h := fact.HostOf(&hosts[i])
		for _, m := range h.MACs {
			s.owners[site.MAC(m)] = append(s.owners[site.MAC(m)], h.Name)
		}
	}

	for _, m := range e.network().OwnMACs() {
		s.own[site.MAC(m)] = true
	}

	var err error
	if s.local, err = e.network().LocalAddrs(); err != nil {
		e.Logger.Warn("addresses not read", "error", err)
	}

	return s
}

// tracesOf are the boot traces of a node's machines.
func (s surroundings) tracesOf(n site.Node) []boottrace.Trace {
	var all []boottrace.Trace
	for _, m := range nodeMACs(n) {
		if t, ok := s.traces[m]; ok {
			all = append(all, t)
		}
	}
	return all
}

// leasedTo are the addresses that the appliance has leased to a node.
func (s surroundings) leasedTo(n site.Node) []netip.Addr {
	var all []netip.Addr
	for _, m := range nodeMACs(n) {
		if a, ok := s.leases[m]; ok {
			all = append(all, a)
		}
	}
	return all
}

// duplicateMACs are MACs of the node that a host of another name, or this machine, has as well.
func (s surroundings) duplicateMACs(n site.Node) map[site.MAC]string {
	same := map[site.MAC]string{}
	for _, m := range nodeMACs(n) {
		if s.own[m] {
			same[m] = "the appliance itself"
		}
		for _, name := range s.owners[m] {
			if name != string(n.Name) {
				same[m] = "host " + name
			}
		}
	}
	return same
}
