package drill_test

import (
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/drill"
)

// TestPartsKilledWhileHostsAreProvisioned ends each part once, in the phase where it works hardest.
func TestPartsKilledWhileHostsAreProvisioned(t *testing.T) {
	need(t)
	const n = 5
	ctx, d := start(t, "kills", n, 60*time.Minute)
	site := d.Fleet.Site("eth0", drill.OS(drill.ImageA, drill.Sum(drill.ImageA)))
	require.NoError(t, d.Begin(ctx, site))
	began := time.Now()
	for _, c := range []struct {
		state metal3api.ProvisioningState
		parts []string
	}{
		{metal3api.StateInspecting, []string{"ironic"}},
		{metal3api.StateAvailable, []string{"operator", "firstlightd"}},
		{metal3api.StateProvisioning, []string{"apiserver"}},
		{metal3api.StateProvisioning, []string{"ironic", "operator", "etcd"}},
	} {
		follow(t, ctx, d, began, func(hosts map[string]metal3api.BareMetalHost) bool {
			for _, h := range hosts {
				if s := h.Status.Provisioning.State; s == c.state || s == metal3api.StateProvisioned {
					return true
				}
			}
			return false
		})
		for _, part := range c.parts {
			require.NoError(t, d.Kill(ctx, part))
			t.Logf("+%.0fs killed %s", time.Since(began).Seconds(), part)
		}
		time.Sleep(3 * time.Second)
	}
	follow(t, ctx, d, began, drill.All(n, metal3api.StateProvisioned))
	t.Logf("all provisioned after %.0f s; %+v", time.Since(began).Seconds(), d.Fleet.Total())
	started(t, d)
	onDisk(t, d, drill.ImageA)
}
