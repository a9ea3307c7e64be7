package scenario_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// workTime makes a server's installation last: its agent takes that long for each step that a real one works
// on, so that the parts that are killed meanwhile are killed while it is installed.
const workTime = 30 * time.Second

// TestPartsKilledWhileHostsAreProvisioned ends each part once, in the phase where it works hardest.
func TestPartsKilledWhileHostsAreProvisioned(t *testing.T) {
	need(t)
	const n = 5
	ctx, d := startFleet(t, "kills", simulator.Config{Hosts: n, BootTime: bootTime, WorkTime: workTime}, 60*time.Minute)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	require.NoError(t, d.Begin(ctx, site))
	began := time.Now()
	for _, c := range []struct {
		states []metal3api.ProvisioningState
		parts  []string
	}{
		{[]metal3api.ProvisioningState{metal3api.StateInspecting}, []string{"ironic"}},
		// A host may be available for less than the time between two looks.
		{[]metal3api.ProvisioningState{metal3api.StateAvailable, metal3api.StateProvisioning}, []string{"operator", "firstlightd"}},
		{[]metal3api.ProvisioningState{metal3api.StateProvisioning}, []string{"apiserver"}},
		{[]metal3api.ProvisioningState{metal3api.StateProvisioning}, []string{"ironic", "operator", "etcd"}},
	} {
		at := ""
		follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
			for _, name := range slices.Sorted(maps.Keys(hosts)) {
				if s := hosts[name].Status.Provisioning.State; slices.Contains(c.states, s) {
					at = name + " is " + string(s)
					return true
				}
			}
			return scenario.AllInState(n, metal3api.StateProvisioned)(hosts)
		})
		require.NotEmpty(t, at, "all hosts were provisioned before one was seen %v: nothing was killed then", c.states)
		for _, part := range c.parts {
			require.NoError(t, d.Kill(ctx, part))
			t.Logf("+%.0fs killed %s: %s", time.Since(began).Seconds(), part, at)
		}
		time.Sleep(3 * time.Second)
	}
	follow(t, ctx, d, began, scenario.AllInState(n, metal3api.StateProvisioned))
	t.Logf("all provisioned after %.0f s; %+v", time.Since(began).Seconds(), d.Servers.TotalCounters())
	started(t, d)
	onDisk(t, d, scenario.ImageA)
}
