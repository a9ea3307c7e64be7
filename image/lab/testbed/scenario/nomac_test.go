package scenario_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// buttons are those of a simulated server, for a BMC that is not its own.
type buttons struct{ server *simulator.Server }

func (b buttons) IsOn() bool { return b.server.State() != simulator.Off }

func (b buttons) SwitchOn(device string) error {
	b.server.SwitchOn(device == bmc.BootNetwork)
	return nil
}

func (b buttons) SwitchOff() error {
	b.server.Power(false)
	return nil
}

func (b buttons) ShutDown() error { return b.SwitchOff() }

// startIPMI gives a simulated server a BMC that speaks IPMI, at an address of the appliance's network.
func startIPMI(t *testing.T, ctx context.Context, d *scenario.Scenario, h *simulator.Server, address string) *bmc.BMC {
	t.Helper()
	run(t, ctx, d, "ip", "address", "replace", address+"/32", "dev", "lo")
	var front net.PacketConn
	require.NoError(t, netns.Do(netns.PathOf(d.Sandbox.PID()), func() (err error) {
		front, err = net.ListenPacket("udp4", address+":623")
		return err
	}))
	b, err := bmc.Start(bmc.Config{
		Name:     h.Name,
		Dir:      filepath.Join(t.TempDir(), "bmc"),
		User:     d.Servers.Username(),
		Password: d.Servers.Password(),
		Front:    front,
	}, buttons{h})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// TestServersWithoutAMAC takes the document by its letter: an address of a BMC is all that is known of a server. One
// comes by kubectl, one from site.yaml, both by IPMI; each is switched on, boots as an unknown machine, and is found by
// the BMC that its inventory names.
func TestServersWithoutAMAC(t *testing.T) {
	need(t)
	ctx, d := start(t, "nomac", 3, 40*time.Minute)
	hosts := d.Servers.Hosts()
	addresses := []string{"172.31.1.17", "172.31.1.18"}
	for i, address := range addresses {
		startIPMI(t, ctx, d, hosts[i], address)
		hosts[i].SetInBandBMC(address)
	}
	site := fmt.Sprintf(`name: fleet
networks: {provisioning: {interface: eth0}}
nodes:
  - name: node2
    bmc: {address: "ipmi://%s", username: %s, password: %s}
    %s
`, addresses[1], d.Servers.Username(), d.Servers.Password(), scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)

	kubectlApply(t, ctx, d, fmt.Sprintf(`---
{apiVersion: v1, kind: Secret, metadata: {name: node1-bmc-secret}, stringData: {username: %s, password: %s}}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: node1}
spec:
  online: true
  bmc: {address: "ipmi://%s", credentialsName: node1-bmc-secret}
%s`, d.Servers.Username(), d.Servers.Password(), addresses[0], specImage()))
	hosts[2].SwitchOn(true) // a machine that no one named, and that no BMC of ours belongs to
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	all, err := d.Hosts(ctx)
	require.NoError(t, err)
	for _, h := range hosts[:2] {
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, 5*time.Minute, time.Second)
		assert.Equal(t, scenario.ImageSum(scenario.ImageA), h.Disks()[0].Image, h.Name)
		assert.Equal(t, h.MAC, all[h.Name].Spec.BootMACAddress, h.Name)
	}
	assert.Zero(t, hosts[2].Counters().DiskWrites)
}

// TestServersWithAMACOrABMCAlone: of one server the BMC names the MAC, by Redfish; the other has no BMC at all. It waits
// until someone switches it on, goes on from there, and is switched on once more when it is installed. Metal3 itself
// refuses a host with Redfish and without a MAC, and says so.
func TestServersWithAMACOrABMCAlone(t *testing.T) {
	need(t)
	ctx, d := start(t, "alone", 2, 40*time.Minute)
	hosts := d.Servers.Hosts()
	os := scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))
	site := fmt.Sprintf(`name: fleet
networks: {provisioning: {interface: eth0}}
nodes:
  - name: node1
    bmc: {address: %q, username: %s, password: %s}
    %s
  - name: node2
    macs: [%q]
    %[4]s
`, hosts[0].BMC(), d.Servers.Username(), d.Servers.Password(), os, hosts[1].MAC)
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	refused := ""
	require.Eventually(t, func() bool {
		refused, _ = d.Sandbox.Run(ctx, "sh", "-c", "kubectl -n metal3 apply -f - 2>&1 <<'END' || true\n"+
			strings.ReplaceAll(appliedHost(d, hosts[1], specImage()), "node2", "node9")+"\nEND")
		return strings.Contains(refused, "requires a BootMACAddress")
	}, 3*time.Minute, 3*time.Second)
	t.Log(refused)
	statusReads(t, ctx, d, "node2", "it has no BMC in site.yaml, and does not ask on the provisioning network")

	hosts[1].SwitchOn(true)
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	require.Eventually(t, func() bool { return hosts[1].State() == simulator.Off }, time.Minute, time.Second)
	statusReads(t, ctx, d, "node2", "is installed and switched off itself; no BMC can switch it on")
	hosts[1].SwitchOn(false)
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	all, err := d.Hosts(ctx)
	require.NoError(t, err)
	for _, h := range hosts {
		assert.Equal(t, h.MAC, all[h.Name].Spec.BootMACAddress, h.Name)
	}
	assert.Zero(t, hosts[1].Counters().BMCLogins, "the BMC of a server that has none was asked")
}
