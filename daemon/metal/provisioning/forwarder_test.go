package provisioning

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

func newForwarding(t *testing.T) *Provisioner {
	s, problems := site.Load("site.yaml", []byte(`
nodes:
  - {name: one, bmc: {address: "redfish://10.0.0.5/redfish/v1/Systems/1", verifyCertificate: none}}
  - {name: two, bmc: {address: "redfish://10.0.0.5/redfish/v1/Systems/2"}}
  - {name: named, bmc: {address: "redfish://BMC-3.example:8443/redfish/v1/Systems/2", verifyCertificate: ca}}
  - {name: plain, bmc: {address: "redfish+http://10.0.0.6:443/redfish/v1/Systems/2"}}
  - {name: near, bmc: {address: "redfish://172.22.0.50:9999/redfish/v1/Systems/2"}}
`))
	require.Empty(t, problems)
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: s.WithDefaults, Vault: vault.New(func() string { return "id" })})
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	return p
}

// TestTheForwarderKnowsBMCs of the site at once; while other hosts are not known, agents alone are passed on to.
func TestTheForwarderKnowsBMCs(t *testing.T) {
	p := newForwarding(t)
	for endpoint, want := range map[string]site.CertificateCheck{
		"10.0.0.5:443":       site.CheckPin, // of two that say otherwise, the one that checks
		"bmc-3.example:8443": site.CheckCA,
		"172.22.0.50:9999":   site.CheckPin,
	} {
		b, err := p.bmcAt(endpoint)
		require.NoError(t, err)
		require.NotNil(t, b, endpoint)
		assert.Equal(t, want, b.VerifyCertificate, endpoint)
	}

	b, err := p.bmcAt("172.22.0.33:9999")
	require.NoError(t, err)
	assert.Nil(t, b, "an agent")
	for _, endpoint := range []string{"10.0.0.7:443", "10.0.0.6:443", "10.0.0.5:9999", "172.22.0.33:443"} {
		_, err = p.bmcAt(endpoint)
		assert.ErrorIs(t, err, errHostsUnknown, endpoint)
	}
}
