package scenario_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestAnAgentContinuesAfterAPowerCut of the appliance: its boot token counts as before, in the same boot. The host is
// blocked, because it has two disks, so that its agent runs on.
func TestAnAgentContinuesAfterAPowerCut(t *testing.T) {
	need(t)
	ctx, d := start(t, "continue", 1, 30*time.Minute)
	host := d.Servers.Hosts()[0]
	host.SetDisks(simulator.Disk{Name: "/dev/sda", Serial: "A"}, simulator.Disk{Name: "/dev/sdb", Serial: "B"})
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	require.NoError(t, d.Begin(ctx, site))
	accepted := func(more int) {
		for host.Counters().Heartbeats < more {
			require.NoError(t, ctx.Err())
			time.Sleep(100 * time.Millisecond)
		}
	}
	accepted(1)
	time.Sleep(2 * time.Second) // boots are written after a second
	before := host.Counters()
	require.NoError(t, d.PowerCut(ctx, scenario.Nothing, site))
	accepted(before.Heartbeats + 2)
	assert.Equal(t, before.Boots, host.Counters().Boots, "it was booted again")
	assert.Zero(t, host.Counters().DiskWrites)
}
