package daemon

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/uploads/serving"
)

// TestTheAuthoritySignsWhatTheApplianceServes: all of its names, whatever its networks are, and none of others.
func TestTheAuthoritySignsWhatTheApplianceServes(t *testing.T) {
	for _, hostname := range []string{"edge-7", ""} {
		a, err := ca.Open(t.TempDir(), time.Now, authorityNames(hostname)...)
		require.NoError(t, err)
		served := slices.Concat(serving.ServiceNames(), metal3.WebhookNames(metal3.WebhookService), metal3.WebhookNames(metal3.HoldService), []string{"localhost"})
		if hostname != "" {
			served = append(served, hostname)
		}
		for _, addr := range []string{"172.22.0.1", "203.0.113.7", "fd00::1"} {
			_, err = a.Sign(ca.Names{Of: "all", DNS: served, Addrs: []netip.Addr{netip.MustParseAddr(addr)}})
			assert.NoError(t, err)
		}

		for _, name := range []string{"www.example.org", "edge-8", "svc.example.org", "notlocalhost"} {
			_, err = a.Sign(ca.Names{Of: "x", DNS: []string{name}})
			assert.ErrorContains(t, err, "may not sign for "+name)
			assert.False(t, a.Permits(name))
		}
	}

	before, err := ca.Open(t.TempDir(), time.Now) // as earlier versions minted it
	require.NoError(t, err)
	assert.True(t, before.Permits("edge-8"))
}
