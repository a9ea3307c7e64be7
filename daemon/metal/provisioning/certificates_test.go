package provisioning

import (
	"crypto/x509"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

func TestTrustIsGivenByTheNameOfANode(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte(`
nodes:
  - {name: pinned, bmc: {address: "redfish://10.0.0.5/redfish/v1/Systems/1"}}
  - {name: neighbor, bmc: {address: "redfish://10.0.0.5/redfish/v1/Systems/2"}}
  - {name: unasked, bmc: {address: "redfish://10.0.0.6/redfish/v1/Systems/1"}}
  - {name: known, bmc: {address: "redfish://10.0.0.7/redfish/v1/Systems/1", verifyCertificate: ca}}
  - {name: plain, bmc: {address: "ipmi://10.0.0.8"}}
  - {name: bare, macs: ["52:54:00:00:00:01"]}
`))
	require.Empty(t, problems)
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: s.WithDefaults})
	p.Pins.Dir, p.Hosts.Backups = t.TempDir(), metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	p.Pins.Changed = p.ReportCertificate
	first, second := &x509.Certificate{Raw: []byte("first")}, &x509.Certificate{Raw: []byte("second")}
	require.NoError(t, p.Pins.Check("10.0.0.5:443", first))
	require.Error(t, p.Pins.Check("10.0.0.5:443", second))
	select {
	case <-p.changed:
	default:
		assert.Fail(t, "nobody looks at the nodes again")
	}

	assert.Equal(t, bmctrust.Fingerprint(second), p.ChangedCertificate("pinned"))
	for _, node := range []string{"nobody", "bare", "plain", "known", "unasked"} {
		assert.Empty(t, p.ChangedCertificate(node), node)
	}

	for node, want := range map[string]string{
		"nobody":  "no node is called nobody",
		"bare":    "has no BMC",
		"plain":   "it is spoken to by ipmi",
		"known":   "its verifyCertificate is ca",
		"unasked": "was not asked yet",
	} {
		_, _, err := p.TrustBMC(node, bmctrust.Fingerprint(second))
		assert.ErrorContains(t, err, want)
		_, err = p.BMCCertificate(node)
		assert.ErrorContains(t, err, want)
	}

	offered, err := p.BMCCertificate("neighbor")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.5:443", bmctrust.Fingerprint(first), bmctrust.Fingerprint(second)},
		[]string{offered.Endpoint, offered.Pinned, offered.SHA256})
	assert.False(t, offered.Seen.IsZero())

	// Servers of one chassis have one BMC.
	before, now, err := p.TrustBMC("neighbor", bmctrust.Fingerprint(second))
	require.NoError(t, err)
	assert.Equal(t, []string{bmctrust.Fingerprint(first), bmctrust.Fingerprint(second)}, []string{before, now})
	require.NoError(t, p.Pins.Check("10.0.0.5:443", second))
	assert.Empty(t, p.ChangedCertificate("pinned"))
}
