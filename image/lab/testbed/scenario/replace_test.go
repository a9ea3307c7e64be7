package scenario_test

import (
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestAServerIsReplacedUnderItsName: site.yaml gets the MAC and the BMC of another server. The node is held, and the old
// server hears nothing of it. Its owner says that it was replaced; the daemon is killed meanwhile. The new server is
// inspected, held because of what is on its disk, and installed after consent. The old one runs on as it was.
func TestAServerIsReplacedUnderItsName(t *testing.T) {
	need(t)
	ctx, d := start(t, "replace", 2, 40*time.Minute)
	old, replacement := d.Servers.Hosts()[0], d.Servers.Hosts()[1]
	replacement.SetDisks(simulator.Disk{Name: "/dev/sda", Serial: "USED", Size: 480e9, Holds: []string{"gpt", "xfs"}})
	os := scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))
	const head = "name: fleet\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n"
	before := head + old.SiteEntry(os)
	after := head + strings.Replace(replacement.SiteEntry(os), replacement.Name, old.Name, 1)
	began := time.Now()
	require.NoError(t, d.Begin(ctx, before))
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	runsItsSystem(t, old)
	_, err := d.Sandbox.Run(ctx, "firstlightd", "replace", old.Name)
	require.ErrorContains(t, err, "site.yaml names the server that it has")

	// The site names another server: the node is held, and the new server is not touched.
	require.NoError(t, d.EditSite(ctx, after))
	statusReads(t, ctx, d, old.Name, "run: firstlightd replace "+old.Name)
	d.Servers.ResetCounters()
	disks := old.Disks()
	assert.Zero(t, replacement.Counters().BMCWrites)

	// It is replaced as its owner has read it: not by a server that site.yaml names meanwhile.
	_, stale := readWord(t, ctx, d, "replace", old.Name)
	const otherMAC = "02:00:00:00:00:99"
	require.NoError(t, d.EditSite(ctx, strings.Replace(after, replacement.MAC, otherMAC, 1)))
	statusReads(t, ctx, d, old.Name, otherMAC)
	_, err = d.Sandbox.Run(ctx, "firstlightd", "replace", old.Name, "--confirm", stale)
	require.ErrorContains(t, err, "is not replaced: the confirmation is of another server than the one that site.yaml names now")
	require.NoError(t, d.EditSite(ctx, after))
	statusReads(t, ctx, d, old.Name, replacement.MAC)

	plan, word := readWord(t, ctx, d, "replace", old.Name)
	t.Log("\n" + plan)
	t.Log("\n" + run(t, ctx, d, "firstlightd", "replace", old.Name, "--confirm", word))
	require.NoError(t, d.Kill(ctx, "firstlightd"))
	follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
		h := hosts[old.Name]
		return h.Spec.BMC.Address == replacement.BMC() && h.Status.Provisioning.State == metal3api.StateAvailable
	})
	statusReads(t, ctx, d, old.Name, "is not empty, it holds: gpt, xfs")
	assert.Zero(t, replacement.Counters().DiskWrites, "data was lost without consent")

	// With consent to just that it is installed under the old name.
	why := run(t, ctx, d, "firstlightd", "why", old.Name)
	_, fingerprint, ok := strings.Cut(why, "overwrite: ")
	require.True(t, ok, why)
	fingerprint, _, _ = strings.Cut(fingerprint, " ")
	run(t, ctx, d, "kubectl", "-n", "metal3", "annotate", "bmh", old.Name, "firstlight.dev/overwrite="+fingerprint)
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	runsItsSystem(t, replacement)
	assert.Equal(t, scenario.ImageSum(scenario.ImageA), replacement.Disks()[0].Image)

	// The old one was neither asked nor switched off nor written to since, and a record of it stays.
	assert.Equal(t, simulator.OnDisk, old.State())
	assert.Equal(t, disks, old.Disks())
	assert.Zero(t, old.Counters().BMCWrites)
	assert.Zero(t, old.Counters().BMCRefused, "it was told a password that is not its own")
	record, err := d.Sandbox.Run(ctx, "cat", "/var/lib/firstlight/hosts/replaced/"+old.Name+".json")
	require.NoError(t, err)
	assert.Contains(t, record, old.BMC())
	assert.Contains(t, record, `"ended"`)
	assert.Contains(t, run(t, ctx, d, "firstlightd", "audit", "--user", "root"), "replace")

	// The stick comes back without the API's database: the new server is in service, not the old one.
	require.NoError(t, d.PowerCut(ctx, scenario.Etcd, after))
	follow(t, ctx, d, time.Now(), func(hosts map[string]metal3api.BareMetalHost) bool {
		h := hosts[old.Name]
		return h.Status.Provisioning.State == metal3api.StateProvisioned && h.Spec.BMC.Address == replacement.BMC()
	})
	assert.Zero(t, old.Counters().BMCWrites)
	assert.Equal(t, simulator.OnDisk, replacement.State())
}

// runsItsSystem waits until a server, just installed, has left its firmware.
func runsItsSystem(t *testing.T, h *simulator.Server) {
	t.Helper()
	require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, time.Minute+bootTime, 100*time.Millisecond,
		"%s does not start its system", h.Name)
}
