package scenario_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestServersThatNoOneNamed: a site without a list of nodes. Three servers boot from the network; two have a BMC that
// takes the site's login, and are installed once they are approved. Before that, and to the third, nothing is written.
func TestServersThatNoOneNamed(t *testing.T) {
	need(t)
	ctx, d := start(t, "discover", 3, 40*time.Minute)
	hosts := d.Servers.Hosts()
	for i, address := range []string{"172.31.1.17", "172.31.1.18"} {
		startIPMI(t, ctx, d, hosts[i], address)
		hosts[i].SetInBandBMC(address)
	}
	began := time.Now()
	require.NoError(t, d.Begin(ctx, fmt.Sprintf(`name: fleet
networks: {provisioning: {interface: eth0}}
nodeDefaults:
  bmc: {username: %s, password: %s}
  %s
discover:
  count: 2
  bmcs: [172.31.1.0/24]
`, d.Servers.Username(), d.Servers.Password(), scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))))
	_, err := d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	for _, h := range hosts {
		h.SwitchOn(true)
	}

	var machines []status.UnknownMachine
	require.Eventually(t, func() bool {
		machines = nil
		awaiting := 0
		out, err := d.Sandbox.Run(ctx, "firstlightd", "unknown", "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &machines) != nil {
			return false
		}
		for _, u := range machines {
			if u.Awaits {
				awaiting++
			}
		}
		return len(machines) == 3 && awaiting == 2
	}, 10*time.Minute, 2*time.Second)
	t.Log(run(t, ctx, d, "firstlightd", "unknown"))
	t.Log(run(t, ctx, d, "firstlightd", "unknown", "-o", "site"))
	for _, h := range hosts {
		assert.Zero(t, h.Counters().DiskWrites, "%s was written to before anyone approved it", h.Name)
	}

	t.Log(run(t, ctx, d, "firstlightd", "approve", "--all"))
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	all, err := d.Hosts(ctx)
	require.NoError(t, err)
	for i, h := range hosts[:2] {
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, 5*time.Minute, time.Second)
		assert.Equal(t, scenario.ImageSum(scenario.ImageA), h.Disks()[0].Image, h.Name)
		assert.Equal(t, h.MAC, all[machines[i].Node].Spec.BootMACAddress, h.Name)
	}
	assert.Zero(t, hosts[2].Counters().DiskWrites)
	assert.Contains(t, run(t, ctx, d, "firstlightd", "status"), "1 machine that site.yaml does not name was inspected")
}
