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

// TestABMCWithAnotherCertificateIsToldNothing: a host with a BMC of Redfish and TLS gets into service by the real
// Ironic. What answers at its BMC's address with another certificate then hears no password, from Ironic and from the
// daemon, also after a power cut, until a person accepts it.
func TestABMCWithAnotherCertificateIsToldNothing(t *testing.T) {
	need(t)
	ctx, d := start(t, "certificate", 2, 30*time.Minute)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	began := time.Now()
	require.NoError(t, d.Begin(ctx, site))
	follow(t, ctx, d, began, scenario.AllInState(2, metal3api.StateProvisioned))
	t.Logf("provisioned after %.0f s", time.Since(began).Seconds())

	h := d.Servers.Hosts()[0]
	print, err := h.ReplaceCertificate()
	require.NoError(t, err)
	heard := bmcTraffic(h)
	statusReads(t, ctx, d, h.Name, "sha256 "+print)
	other := d.Servers.Hosts()[1]
	before := bmcTraffic(other)
	require.Eventually(t, func() bool { return bmcTraffic(other).BMCReads > before.BMCReads+1 }, 5*time.Minute, time.Second,
		"Ironic asks the other BMC for its power")
	assert.Equal(t, heard, bmcTraffic(h), "what has another certificate heard something")
	assert.Contains(t, run(t, ctx, d, "kubectl", "-n", "metal3", "get", "events"), "BMCCertificateChanged")

	require.NoError(t, d.PowerCut(ctx, scenario.Nothing, site))
	statusReads(t, ctx, d, h.Name, "sha256 "+print)
	assert.Equal(t, heard, bmcTraffic(h), "after a power cut it heard something")

	t.Log(run(t, ctx, d, "firstlightd", "bmc", "trust", h.Name, print))
	require.Eventually(t, func() bool { return bmcTraffic(h).BMCReads > heard.BMCReads }, 5*time.Minute, time.Second,
		"Ironic asks it for its power again")
	require.Eventually(t, func() bool {
		said, err := d.Sandbox.Run(ctx, "firstlightd", "why", h.Name)
		return err == nil && !strings.Contains(said, print)
	}, 5*time.Minute, time.Second)
}

// bmcTraffic is what a BMC heard.
func bmcTraffic(h *simulator.Server) simulator.Counters {
	c := h.Counters()
	return simulator.Counters{
		BMCReads:   c.BMCReads,
		BMCWrites:  c.BMCWrites,
		BMCLogins:  c.BMCLogins,
		BMCRefused: c.BMCRefused,
		BMCUnknown: c.BMCUnknown,
	}
}
