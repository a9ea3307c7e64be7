package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/redfish"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// driven is a simulated server with a drive for discs.
type driven struct {
	buttons
	disc string // image in the drive; "": it is empty

	isCutOff atomic.Bool // its BMC has no way to what it is to load
}

func (h *driven) Insert(file string) error {
	h.disc = file
	return nil
}

func (h *driven) SwitchOn(device string) error {
	if device == string(lab.BootCD) && h.disc != "" {
		h.server.SwitchOnFromDisc(h.disc)
		return nil
	}
	return h.buttons.SwitchOn(device)
}

// startBMC gives a server a BMC with virtual media at an address of the appliance's network. It returns the BMC, and its
// address in site.yaml.
func (h *driven) startBMC(
	t *testing.T, ctx context.Context, d *scenario.Scenario, address string,
) (b *redfish.BMC, bmc string) {
	t.Helper()
	run(t, ctx, d, "ip", "address", "replace", address+"/32", "dev", "lo")
	space := netns.PathOf(d.Sandbox.PID())
	var front net.Listener
	require.NoError(t, netns.Do(space, func() (err error) {
		front, err = net.Listen("tcp4", address+":443")
		return err
	}))
	mac, err := net.ParseMAC(h.server.MAC)
	require.NoError(t, err)
	own := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	b, err = redfish.Start(redfish.Config{
		Name:     h.server.Name,
		Dir:      filepath.Join(t.TempDir(), "bmc"),
		User:     d.Servers.Username(),
		Password: d.Servers.Password(),
		MACs:     []net.HardwareAddr{mac},
		UEFI:     true,
		Front:    front,
		Dial: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
			if h.isCutOff.Load() {
				return nil, errors.New("no route to host")
			}
			err = netns.Do(space, func() (err error) {
				conn, err = own.DialContext(ctx, network, to)
				return err
			})
			return conn, err
		},
	}, h)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b, "redfish-virtualmedia+https://" + address + redfish.SystemPath
}

// TestAServerIsInstalledFromADisc: its BMC reads the disc and starts the server from it, once it has a way to the
// appliance; the agent has the address that the site says, and the token of that disc. Nobody gives addresses on its
// network.
func TestAServerIsInstalledFromADisc(t *testing.T) {
	need(t)
	ctx, d := start(t, "disc", 1, 40*time.Minute)
	h := &driven{buttons: buttons{d.Servers.Hosts()[0]}}
	h.isCutOff.Store(true)
	// It is alone on its network, and what answers at its address is its own NIC.
	require.NoError(t, d.Wire().IP(ctx, "link set dev "+netns.BridgeName+" address "+h.server.MAC))
	b, address := h.startBMC(t, ctx, d, "172.22.0.2")
	site := fmt.Sprintf(`name: fleet
networks: {provisioning: {interface: eth0, dhcp: {mode: none}}}
nodes:
  - name: node1
    bmc: {address: %q, username: %s, password: %s}
    links: [{network: provisioning, mac: %q, address: 172.22.0.201/24}]
    %s
`, address, d.Servers.Username(), d.Servers.Password(), h.server.MAC,
		scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)

	statusReads(t, ctx, d, "node1", "boots from no disc, its BMC does not take it")
	h.isCutOff.Store(false)
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	writes := b.Writes()
	t.Logf("what its BMC was told: %v", writes)
	assert.Contains(t, writes, "insert http://172.22.0.1:6181/disc.iso")
	assert.Contains(t, writes, "boot Cd Once")
	assert.Empty(t, h.disc, "the disc is still in the drive")
	assert.Len(t, h.server.ReceivedTokens(), 2, "of one boot, and of its agent")
}
