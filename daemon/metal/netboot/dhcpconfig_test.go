package netboot

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
)

// nodesOfRack have a NIC beside the one that boots; node-3 has a static address.
const nodesOfRack = `
nodes:
  - {name: node-1, macs: ["52:54:00:00:00:11", "52:54:00:00:00:12"], bootMAC: "52:54:00:00:00:12"}
  - {name: node-2, macs: ["52:54:00:00:00:21"]}
  - {name: node-3, macs: ["52:54:00:00:00:31"], links: [{network: provisioning, mac: "52:54:00:00:00:31", address: 172.22.0.203/24}]}
`

// rackDHCP decides as the DHCP server of a site does, without a wire.
type rackDHCP struct {
	t     *testing.T
	plan  *dhcp.Plan
	table *lease.Table
}

func newRackDHCP(t *testing.T, text string) *rackDHCP {
	r := &rackDHCP{t: t}
	r.serve(text)
	r.table = lease.NewTable(r.plan.Spaces(), nil)
	return r
}

func (r *rackDHCP) serve(text string) {
	m, s := wired(r.t, text)
	c := m.config(s)
	d := *c.DHCP
	d.Interface, d.Server, d.HTTP = c.Interface, c.Addr, m.FileURL() // as package server fills them in
	var err error
	r.plan, err = dhcp.NewPlan(d)
	require.NoError(r.t, err)
	if r.table != nil {
		r.table.SetSpaces(r.plan.Spaces())
	}
}

// boot is DISCOVER to ACK of one machine: its address, invalid if it gets none.
func (r *rackDHCP) boot(mac string) netip.Addr {
	hw, err := net.ParseMAC(mac)
	require.NoError(r.t, err)
	own, _ := lease.MACFrom(hw)
	discover, err := dhcpv4.NewDiscovery(hw)
	require.NoError(r.t, err)
	offer := r.decide(discover)
	if !offer.Hold.IsValid() {
		return netip.Addr{}
	}
	q := lease.Query{MAC: own, Subnet: r.plan.Subnets[0].Prefix}
	r.table.Hold(q, offer.Hold, lease.Tick(time.Minute))
	request, err := dhcpv4.NewRequestFromOffer(offer.Reply)
	require.NoError(r.t, err)
	ack := r.decide(request)
	require.NotNil(r.t, ack.Put, mac)
	r.table.Put(*ack.Put)
	return ack.Put.Addr
}

func (r *rackDHCP) decide(p *dhcpv4.DHCPv4) dhcp.Answer {
	req, err := dhcp.ParseRequest(p.ToBytes(), dhcp.PortServer, netip.AddrPort{})
	require.NoError(r.t, err)
	return dhcp.Decide(r.t.Context(), r.plan, r.table, lease.Tick(time.Minute), nil, false, req)
}

// flood is as many strangers as there may be: how many got an address.
func (r *rackDHCP) flood() (served int) {
	for n := range 150 {
		if r.boot(fmt.Sprintf("02:00:00:00:00:%02x", n)).IsValid() {
			served++
		}
	}
	return served
}

// TestStrangersKeepNoNodeFromBooting: the site's nodes are known to the DHCP server that the
// daemon wires, by every MAC.
func TestStrangersKeepNoNodeFromBooting(t *testing.T) {
	r := newRackDHCP(t, nodesOfRack)
	assert.Equal(t, 91-3, r.flood(), "strangers get what is not kept for the nodes")
	for _, mac := range []string{"52:54:00:00:00:11", "52:54:00:00:00:12", "52:54:00:00:00:21"} {
		assert.True(t, r.boot(mac).IsValid(), mac)
	}
	assert.Equal(t, "172.22.0.203", r.boot("52:54:00:00:00:31").String(), "the static address of its installed system")
}

// TestNodeOfEditedSiteIsKnown: a stranger that was inspected and is now listed keeps its
// address, and one that was never seen has one kept.
func TestNodeOfEditedSiteIsKnown(t *testing.T) {
	r := newRackDHCP(t, "")
	was := r.boot("52:54:00:00:00:21")
	r.serve(nodesOfRack)
	r.flood()
	assert.Equal(t, was, r.boot("52:54:00:00:00:21"))
	assert.True(t, r.boot("52:54:00:00:00:11").IsValid())
}

func TestRangeIsShared(t *testing.T) {
	a := netip.MustParseAddr
	all := dhcp.Range{First: a("172.22.0.10"), Last: a("172.22.0.19")}
	for _, x := range []struct {
		nodes, macs, known int
	}{
		{0, 0, 0}, {1, 2, 2}, {5, 5, 5},
		{3, 9, 5},    // half is left for strangers
		{7, 14, 7},   // every node boots
		{11, 11, 10}, // as far as there are addresses
	} {
		pool, known := splitRange(all, x.nodes, x.macs)
		assert.Equal(t, x.known, known.Len(), x)
		assert.Equal(t, 10-x.known, pool.Len(), x)
		assert.False(t, pool.Overlaps(known), x)
	}
}

// TestStaticAddressIsReservedOnce: DHCP must start whatever links a valid site gives its nodes.
func TestStaticAddressIsReservedOnce(t *testing.T) {
	for text, want := range map[string]string{
		`macs: ["52:54:00:00:00:11"], links: [{network: provisioning, mac: "52:54:00:00:00:11", address: dhcp}]`:                                                                                               "52:54:00:00:00:11=invalid IP",
		`macs: ["52:54:00:00:00:11"], links: [{network: provisioning, mac: "52:54:00:00:00:11", address: 172.22.0.200/24}]`:                                                                                    "52:54:00:00:00:11=172.22.0.200",
		`macs: ["52:54:00:00:00:11"], links: [{network: data, mac: "52:54:00:00:00:11", address: 172.23.0.200/24}]`:                                                                                            "52:54:00:00:00:11=invalid IP",
		`macs: ["52:54:00:00:00:11"], links: [{network: provisioning, mac: "52:54:00:00:00:12", address: 172.22.0.200/24}]`:                                                                                    "52:54:00:00:00:11=invalid IP 52:54:00:00:00:12=172.22.0.200",
		`bootMAC: "52:54:00:00:00:12", macs: ["52:54:00:00:00:11", "52:54:00:00:00:12"], links: [{network: provisioning, bond: {macs: ["52:54:00:00:00:11", "52:54:00:00:00:12"]}, address: 172.22.0.200/24}]`: "52:54:00:00:00:12=172.22.0.200 52:54:00:00:00:11=invalid IP",
	} {
		_, s := wired(t, "nodes: [{name: node-1, "+text+"}]")
		all, _, _ := reservations(s)
		var words []string
		for _, r := range all {
			words = append(words, r.MAC.String()+"="+r.Addr.String())
		}
		assert.Equal(t, want, strings.Join(words, " "), text)
	}
	n := site.Network{CIDR: netip.MustParsePrefix("172.22.0.0/24"), Address: netip.MustParseAddr("172.22.0.1")}
	for _, ours := range []string{"172.22.0.0", "172.22.0.1", "172.22.0.255", "172.22.1.9", "2001:db8::1"} {
		assert.False(t, isFree(netip.MustParseAddr(ours), n), ours)
	}
}

// TestASiteOfIPv6IsServed: the DHCP server takes what such a site becomes, and node-2 has its static address.
func TestASiteOfIPv6IsServed(t *testing.T) {
	r := newRackDHCP(t, `networks: {provisioning: {cidr: "fd00:22::/64", mtu: 9000, dns: ["fd00:22::53", 10.0.0.53]}}
nodes:
  - {name: node-1, macs: ["52:54:00:00:00:11"]}
  - {name: node-2, macs: ["52:54:00:00:00:21"], links: [{network: provisioning, mac: "52:54:00:00:00:21", address: "fd00:22::200/64"}]}
`)
	at := netip.MustParseAddr
	c := r.plan.Config
	assert.Equal(t, at("fd00:22::1"), c.Server)
	assert.Equal(t, "http://[fd00:22::1]:6180", c.HTTP)
	require.Len(t, c.Subnets, 1)
	assert.Equal(t, []netip.Addr{at("fd00:22::53")}, c.Subnets[0].DNS)
	assert.Equal(t, []netip.Addr{at("fd00:22::1")}, c.Subnets[0].NTP)
	assert.Equal(t, dhcp.Range{First: at("fd00:22::64"), Last: at("fd00:22::64")}, c.Subnets[0].Known)
	require.Len(t, c.Reservations, 2)
	assert.False(t, c.Reservations[0].Addr.IsValid())
	assert.Equal(t, at("fd00:22::200"), c.Reservations[1].Addr)
}

// TestTheSiteSaysWhatAForeignServerDoes: who answers our probes silences us, unless the site's owner says that the
// network is the appliance's alone.
func TestTheSiteSaysWhatAForeignServerDoes(t *testing.T) {
	assert.Equal(t, dhcp.ForeignSilent, foreignPolicy(site.DHCP{Foreign: "silent"}))
	assert.Equal(t, dhcp.ForeignIgnoreUnknown, foreignPolicy(site.DHCP{Foreign: "ignore-unknown"}))
}
