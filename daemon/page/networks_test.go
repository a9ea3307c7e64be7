package page

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
)

// servedNetworks is provisioning with two leases, of a node and of a machine that nobody knows.
func servedNetworks() []NetworkDHCP {
	return []NetworkDHCP{{
		Role:   "provisioning",
		Status: dhcp.Status{Phase: dhcp.PhaseServing, Text: "gives addresses"},
		Leases: []lease.ListedLease{
			{Addr: netip.MustParseAddr("172.22.0.60"), MAC: "52:54:00:ff:ff:ff", Hostname: "laptop", Ends: time.Now().Add(time.Hour)},
			{Addr: netip.MustParseAddr("172.22.0.51"), MAC: mac(1), Ends: time.Now().Add(time.Hour)},
		},
	}}
}

// foreignServers are two servers that are not ours.
func foreignServers() []dhcp.Foreign {
	return []dhcp.Foreign{
		{Server: netip.MustParseAddr("10.0.0.1"), Source: netip.MustParseAddr("10.0.0.2"), MACText: "52:54:00:aa:00:01",
			Offered: netip.MustParseAddr("10.0.0.77"), Appliance: "rack-8"},
		{Server: netip.MustParseAddr("10.0.0.9"), Source: netip.MustParseAddr("10.0.0.9"), MACText: "52:54:00:aa:00:02",
			Offered: netip.MustParseAddr("10.0.0.78")},
	}
}

func TestNetworksShowWhoIsWhere(t *testing.T) {
	d := logIn(t, newServer(t, rack(10))).open("/networks")
	net := d.id("network-provisioning")
	assert.Contains(t, net.text(), "172.22.0.1/24")
	assert.Contains(t, net.text(), "serving: gives addresses")
	heads := texts(rowHeads(net))
	assert.Equal(t, []string{"ssh", "dhcp", "pxe", "tftp", "boot", "registry", "ironic", "uploads", "time", "172.22.0.51", "172.22.0.60"}, heads)
	assert.Contains(t, net.text(), "67/udp")
	assert.Equal(t, []string{"/nodes/node-001"}, hrefs(d.id("lease-172.22.0.51").all("td")))
	assert.Contains(t, d.id("lease-172.22.0.60").text(), "not knownlaptop")
	assert.Nil(t, d.id("foreign-provisioning"))

	owner := d.id("network-baremetal")
	assert.Contains(t, owner.text(), "none of ours")
	assert.Contains(t, owner.text(), "eno1 52:54:00:00:00:01, link")
	assert.Contains(t, owner.text(), "The appliance has given no address here.")
	assert.NotContains(t, texts(rowHeads(owner)), "dhcp", "no server of ours is asked for there")

	heard := d.id("heard")
	assert.Equal(t, []string{"52:54:00:00:00:01", "52:54:00:99:00:01"}, texts(rowHeads(heard)), "the latest comes first")
	assert.Equal(t, []string{"/nodes/node-001", "/nodes/52:54:00:99:00:01"}, hrefs(heard.all("tr")))
	assert.Contains(t, heard.text(), "Loads a ramdiskthe connection ended")

	svg := d.id("drawing").all("svg")[0]
	assert.Equal(t, "img", svg.attr("role"))
	assert.Contains(t, d.id(svg.attr("aria-labelledby")).text(), "The tables after it say the same.")
	boxes := texts(svg.with("box"))
	require.Len(t, boxes, 3)
	assert.Contains(t, boxes[1], "our DHCP: serving, 2 leases")
	assert.Contains(t, boxes[1], "ssh dhcp pxe tftp boot registry ironic uploads time")
	assert.Contains(t, boxes[2], "no DHCP of ours")
	assert.Len(t, svg.with("cut"), 1, "provisioning has no NIC with a link")
}

func TestOtherDHCPServersAreNamed(t *testing.T) {
	of := rack(10)
	of.dhcp[0].Status = dhcp.Status{Phase: dhcp.PhaseSilent, Text: "gives nothing while 10.0.0.1 does", Foreign: foreignServers()}
	d := logIn(t, newServer(t, of)).open("/networks")
	net := d.id("network-provisioning")
	assert.Contains(t, net.text(), "silent: gives nothing while 10.0.0.1 does")
	assert.Contains(t, net.text(), "10.0.0.110.0.0.252:54:00:aa:00:0110.0.0.77rack-8")
	assert.Contains(t, net.text(), "10.0.0.78none of ours")
	assert.Contains(t, strings.Join(texts(d.with("missing")), ""), "10.0.0.1 and 1 more")
}

func TestNetworksThatAreNotThereSaySo(t *testing.T) {
	d := logIn(t, newServer(t, begun())).open("/networks")
	assert.Contains(t, d.id("empty").text(), "No network has its role yet")
	assert.Nil(t, d.id("drawing"))
	assert.Contains(t, d.id("heard").text(), "None since the daemon started")

	of := ready()
	of.doc.Addresses = []status.Address{{Role: "provisioning", Interface: "provisioning"}}
	of.dhcp = []NetworkDHCP{{Role: "provisioning", Status: dhcp.Status{Phase: dhcp.PhaseProbing}}}
	net := logIn(t, newServer(t, of)).open("/networks").id("network-provisioning")
	assert.Contains(t, net.text(), "none yet")
	assert.Contains(t, net.text(), "probing")
}

// TestLeasesAreBounded: those that are not listed are counted.
func TestLeasesAreBounded(t *testing.T) {
	var n networkView
	d := NetworkDHCP{Status: dhcp.Status{Phase: dhcp.PhaseServing}}
	addr := netip.MustParseAddr("10.0.0.1")
	for range maxLeases + 3 {
		d.Leases = append(d.Leases, lease.ListedLease{Addr: addr})
		addr = addr.Next()
	}
	n.addDHCP(d, nil)
	assert.Equal(t, []int{maxLeases, 3}, []int{len(n.Leases), n.Hidden})
	assert.Equal(t, "our DHCP: serving, 503 leases", dhcpLabel(n))
}
