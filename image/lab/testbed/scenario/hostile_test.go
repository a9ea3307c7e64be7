package scenario_test

import (
	"context"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// The networks of the rack besides provisioning: the appliance's address, and a stranger's.
var (
	bmcAppliance, bmcStranger     = netip.MustParseAddr("10.30.0.2"), netip.MustParsePrefix("10.30.0.66/24")
	ownerAppliance, ownerStranger = netip.MustParseAddr("10.10.110.20"), netip.MustParsePrefix("10.10.110.66/24")
)

// threeNetworks has all that listens, a password of nodes, and networks on which strangers may answer DHCP.
const threeNetworks = `name: hostile
networks:
  provisioning: {interface: eth0, dhcp: {foreign: ignore-unknown}}
  bmc: {interface: eth1, cidr: 10.30.0.0/24, address: 10.30.0.2}
  baremetal: {interface: eth2, cidr: 10.10.110.0/24, address: 10.10.110.20}
artifacts: {s3: true}
nodeDefaults: {os: {password: ` + nodePassword + `}}
`

const nodePassword = "Words-0f-the-owner-of-these-nodes"

// posed is a node whose BMC is the stranger on the network of BMCs, which has no certificate that an authority signed.
var posed = `  - name: posed
    macs: ["52:54:09:09:09:09"]
    bmc:
      address: "redfish+https://10.30.0.66/redfish/v1/Systems/1"
      username: admin
      password: ` + posedPassword + `
      verifyCertificate: ca
    ` + scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)) + "\n"

const posedPassword = "Words-0f-a-BMC-that-somebody-poses-as"

// TestARackIsInstalledBesideStrangers: a third of a rack is installed in peace, one beside a stranger on each of the
// three networks, and one in peace again, so that neither what is warm by then nor what else runs on this machine counts
// for the strangers or against them. It takes about as long; second disks and a machine of somebody else stay as they
// are; and no stranger hears a secret, reaches another network, or is taken for a host or a BMC.
//
// The disks are simulated and have no bytes: they stay as they are if no write began on them, and if what they are
// said to hold is what it was.
func TestARackIsInstalledBesideStrangers(t *testing.T) {
	third, patience := 2, 40*time.Minute
	if isFleet() {
		third, patience = 10, 90*time.Minute
	}
	ctx, d := startFleet(t, "hostile", simulator.Config{Hosts: 3*third + 1, BootTime: bootTime}, patience)
	bmc, err := d.AddNetwork(ctx, "eth1")
	require.NoError(t, err)
	owner, err := d.AddNetwork(ctx, "eth2")
	require.NoError(t, err)

	all := d.Servers.Hosts()
	rack, foreign := all[:3*third], all[3*third]
	for _, h := range rack {
		h.SetDisks(h.Disks()[0], simulator.Disk{Name: "/dev/sdb", Serial: "DATA-" + h.Name, Size: 1 << 40, Holds: []string{"gpt", "xfs"}})
	}
	theirs := simulator.Disk{Name: "/dev/sda", Serial: "THEIRS", Size: 1 << 40, Holds: []string{"gpt", "ext4"}}
	foreign.SetDisks(theirs)
	foreign.SetNetworkFirst()
	site := func(hosts []*simulator.Server) string {
		text := threeNetworks + "nodes:\n" + posed
		for _, h := range hosts {
			text += h.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)), "rootDevice: {serialNumber: "+h.Disks()[0].Serial+"}")
		}
		return text
	}

	require.NoError(t, d.Begin(ctx, threeNetworks))
	for _, stage := range []string{"site-handed-over", "artifacts-ready"} {
		_, err = d.Sandbox.AwaitStage(ctx, stage, t.Output())
		require.NoError(t, err)
	}
	require.NoError(t, d.Sandbox.ComeFirst()) // strangers have processors of their own elsewhere
	install := func(upTo int) (took, busy time.Duration) {
		began, used := time.Now(), processorTime(t, d)
		require.NoError(t, d.EditSite(ctx, site(rack[:upTo])))
		follow(t, ctx, d, began, areInstalled(rack[:upTo]))
		return time.Since(began), processorTime(t, d) - used
	}
	before, busyBefore := install(third)

	s := plugInStrangers(t, ctx, d, bmc, owner)
	foreign.Power(true)
	s.begin(ctx, rack[third:2*third])
	beside, busyBeside := install(2 * third)
	pod := podAddress(t, ctx, d)
	reached := s.reach(ctx, pod)
	s.end()
	own := s.reachOwn(ctx)

	after, busyAfter := install(3 * third)
	peace := (before + after) / 2
	t.Logf("%d hosts: %.0f s and %.0f s in peace, %.0f s beside strangers (%.2f times)",
		third, before.Seconds(), after.Seconds(), beside.Seconds(), beside.Seconds()/peace.Seconds())
	t.Logf("processor seconds of the appliance: %.0f and %.0f in peace, %.0f beside strangers, on %d processors",
		busyBefore.Seconds(), busyAfter.Seconds(), busyBeside.Seconds(), runtime.NumCPU())
	assert.Less(t, beside, 3*max(before, after), "strangers hold a rack up")
	assert.Empty(t, reached, "a network does not end at the appliance; its pod is at %s", pod)
	s.checkOwn(own)
	s.checkCounts()
	s.checkLog()

	for _, h := range rack {
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, time.Minute+bootTime, 100*time.Millisecond, "%s does not start its system", h.Name)
		disks := h.Disks()
		assert.Equal(t, scenario.ImageSum(scenario.ImageA), disks[0].Image, h.Name)
		assert.Equal(t, []string{"gpt", "xfs"}, disks[1].Holds, h.Name)
		assert.Zero(t, disks[1].Writes, "the second disk of %s", h.Name)
		assert.Equal(t, 1, h.Counters().DiskWrites, h.Name)
	}
	assert.Equal(t, []simulator.Disk{theirs}, foreign.Disks())
	assert.Zero(t, foreign.Counters().DiskWrites)
	keptHostKeys(t, ctx, d, rack)
	heardNoSecret(t, ctx, d, s)
	s.checkWithoutFilter(ctx, pod)
}

// processorTime is what the appliance took of the processors until now.
func processorTime(t *testing.T, d *scenario.Scenario) time.Duration {
	t.Helper()
	used, err := d.Sandbox.ProcessorTime()
	require.NoError(t, err)
	return used
}

// areInstalled tells whether each of some hosts is installed, whatever others there are.
func areInstalled(rack []*simulator.Server) func(map[string]metal3api.BareMetalHost) bool {
	return func(hosts map[string]metal3api.BareMetalHost) bool {
		for _, h := range rack {
			if !scenario.HostInState(h.Name, metal3api.StateProvisioned)(hosts) || hosts[h.Name].Status.ErrorMessage != "" {
				return false
			}
		}
		return true
	}
}

// keptHostKeys checks that every host has a key of its own, which the appliance knows, and that no private one was on
// the network, in the API or in Ironic's database.
func keptHostKeys(t *testing.T, ctx context.Context, d *scenario.Scenario, rack []*simulator.Server) {
	t.Helper()
	hosts, err := d.Hosts(ctx)
	require.NoError(t, err)
	keys := map[string]bool{}
	for _, h := range rack {
		key := h.Disks()[0].HostKey
		assert.NotEmpty(t, key, h.Name)
		assert.Equal(t, key, hosts[h.Name].Annotations["firstlight.dev/ssh-host-key"], h.Name)
		keys[key] = true
		for _, drive := range h.ReceivedDrives() {
			assert.Contains(t, string(drive), "ssh_keys", "the drive was not read")
			assert.NotContains(t, string(drive), "PRIVATE KEY", "the config drive of %s", h.Name)
		}
		coded := run(t, ctx, d, "kubectl", "-n", "metal3", "get", "secret", h.Name+"-user-data", "-o", "jsonpath={.data.userData}")
		user, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
		require.NoError(t, err)
		assert.Contains(t, string(user), "ssh_keys")
		assert.NotContains(t, string(user), "PRIVATE KEY", "the user data of %s", h.Name)
	}
	assert.Len(t, keys, len(rack), "two hosts have one key")

	database, err := filepath.Glob(d.Sandbox.DataPath("/var/lib/ironic/ironic.sqlite*"))
	require.NoError(t, err)
	require.NotEmpty(t, database)
	for _, file := range database {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "OPENSSH PRIVATE KEY", file)
	}
}
