package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
	"firstlight.dev/firstlight/image/lab/redfish"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// discless is a server whose BMC has no drive for discs.
type discless struct{ buttons }

func (discless) Insert(string) error { return errors.New("it has no drive") }

// leaseAddress plugs a machine into a network and returns its namespace and the address that it leases there.
func leaseAddress(t *testing.T, ctx context.Context, wire *netns.Bridge, port string) (path string, addr netip.Addr) {
	t.Helper()
	pid := netnstest.New(t)
	path = netns.PathOf(pid)
	require.NoError(t, netns.IP(ctx, pid, "link set lo up"))
	require.NoError(t, wire.Connect(ctx, pid, port, "eth0"))

	var client *nclient4.Client
	require.NoError(t, netns.Do(path, func() (err error) {
		client, err = nclient4.New("eth0", nclient4.WithTimeout(10*time.Second), nclient4.WithRetry(60))
		return err
	}))
	defer client.Close()
	lease, err := client.Request(ctx, dhcpv4.WithBroadcast(true))
	require.NoError(t, err)
	addr, _ = netip.AddrFromSlice(lease.ACK.YourIPAddr.To4())
	require.NoError(t, netns.IP(ctx, pid, "addr add "+addr.String()+"/24 dev eth0"))
	return path, addr
}

// TestServersThatAreOffAreFoundByTheirBMCs: a site of some ten lines that names no server. Two are off; their BMCs, one
// by IPMI and one by Redfish, lease their addresses, and both are switched on and installed with no one touching
// anything. A third machine leases an address and is no BMC: it is told nothing.
func TestServersThatAreOffAreFoundByTheirBMCs(t *testing.T) {
	need(t)
	ctx, d := start(t, "leases", 2, 40*time.Minute)
	hosts := d.Servers.Hosts()
	wire, err := d.AddNetwork(ctx, "eth1")
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, d.Begin(ctx, fmt.Sprintf(`name: fleet
networks:
  provisioning: {interface: eth0}
  bmc: {interface: eth1, cidr: 172.31.2.0/24, address: 172.31.2.1, dhcp: {range: 172.31.2.10-172.31.2.99}}
nodeDefaults:
  %s
discover:
  {count: 2, leases: true, approve: none, names: "{serial}", credentials: [{username: %s, password: %s}]}
`, scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)), d.Servers.Username(), d.Servers.Password())))
	_, err = d.Sandbox.AwaitStage(ctx, "links-up", t.Output())
	require.NoError(t, err)

	path, printer := leaseAddress(t, ctx, wire, "printer")
	var told net.PacketConn
	require.NoError(t, netns.Do(path, func() (err error) {
		told, err = net.ListenPacket("udp4", ":623")
		return err
	}))
	defer told.Close()

	path, byIPMI := leaseAddress(t, ctx, wire, "bmc1")
	var front net.PacketConn
	require.NoError(t, netns.Do(path, func() (err error) {
		front, err = net.ListenPacket("udp4", ":623")
		return err
	}))
	b, err := bmc.Start(bmc.Config{
		Name:     hosts[0].Name,
		Dir:      filepath.Join(t.TempDir(), "bmc"),
		User:     d.Servers.Username(),
		Password: d.Servers.Password(),
		Serial:   "node-a",
		Front:    front,
	}, buttons{hosts[0]})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	hosts[0].SetInBandBMC(byIPMI.String())

	path, byRedfish := leaseAddress(t, ctx, wire, "bmc2")
	var listener net.Listener
	require.NoError(t, netns.Do(path, func() (err error) {
		listener, err = net.Listen("tcp4", ":443")
		return err
	}))
	mac, err := net.ParseMAC(hosts[1].MAC)
	require.NoError(t, err)
	r, err := redfish.Start(redfish.Config{
		Name:     hosts[1].Name,
		Dir:      t.TempDir(),
		User:     d.Servers.Username(),
		Password: d.Servers.Password(),
		Serial:   "node-b",
		MACs:     []net.HardwareAddr{mac},
		UEFI:     true,
		Front:    listener,
	}, discless{buttons{hosts[1]}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close()) })

	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	all, err := d.Hosts(ctx)
	require.NoError(t, err)
	for i, want := range []struct{ node, address string }{
		{"node-a", "ipmi://" + byIPMI.String()}, {"node-b", "redfish://" + byRedfish.String() + redfish.SystemPath},
	} {
		h := hosts[i]
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, 5*time.Minute, time.Second)
		assert.Equal(t, scenario.ImageSum(scenario.ImageA), h.Disks()[0].Image, h.Name)
		assert.Equal(t, h.MAC, all[want.node].Spec.BootMACAddress, h.Name)
		assert.Equal(t, want.address, all[want.node].Spec.BMC.Address)
	}

	var unknown []status.UnknownMachine
	require.NoError(t, json.Unmarshal([]byte(run(t, ctx, d, "firstlightd", "discovered", "-o", "json")), &unknown))
	assert.Empty(t, unknown)
	user := d.Servers.Username()
	for {
		packet := make([]byte, 2048)
		require.NoError(t, told.SetReadDeadline(time.Now().Add(time.Second)))
		n, _, err := told.ReadFrom(packet)
		if err != nil {
			break
		}
		assert.Equal(t, byte(6), packet[3], "more than a presence ping (class ASF) came to %s", printer)
		assert.False(t, strings.Contains(string(packet[:n]), user))
	}
}
