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

// TestADiskThatChangedIsNotWrittenTo: its disk was blank when the host was inspected. Before the image is written
// somebody has put data on it: nothing is written, why says what is there, and what its owner gives up is installed on.
func TestADiskThatChangedIsNotWrittenTo(t *testing.T) {
	need(t)
	ctx, d := start(t, "changed", 1, 40*time.Minute)
	host := d.Servers.Hosts()[0]
	began := time.Now()
	require.NoError(t, d.Begin(ctx, d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	for posted := false; !posted; time.Sleep(20 * time.Millisecond) {
		require.NoError(t, ctx.Err())
		for _, e := range host.Events() {
			posted = posted || strings.Contains(e.What, "inventory posted")
		}
	}
	disk := host.Disks()[0]
	disk.Holds = []string{"gpt", "xfs"}
	host.SetDisks(disk)

	follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
		return strings.Contains(hosts[host.Name].Status.ErrorMessage, "refused by the appliance")
	})
	why := run(t, ctx, d, "firstlightd", "why", host.Name)
	t.Log(why)
	assert.Contains(t, why, "is not as inspection saw it, it holds: gpt, xfs")
	assert.Zero(t, host.Counters().DiskWrites)
	assert.Equal(t, []simulator.Disk{disk}, host.Disks())

	_, command, ok := strings.Cut(why, "run: kubectl ")
	require.True(t, ok, why)
	command, _, _ = strings.Cut(command, "raw")
	run(t, ctx, d, "kubectl", strings.Fields(command+"raw")...)
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	started(t, d)
	onDisk(t, d, scenario.ImageA)
	assert.Equal(t, 1, host.Counters().DiskWrites)
}
