package site

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCertificateChecks: a site that says nothing pins; what was written as true or false means what it meant.
func TestCertificateChecks(t *testing.T) {
	const node = "%snodes: [{name: a, bmc: {address: '%s/redfish/v1/Systems/1'%s}}]\n"
	for _, c := range []struct{ site, scheme, given, want string }{
		{"", "redfish", "", "pin"},
		{"", "redfish+https", "", "pin"},
		{"", "redfish+http", "", ""},
		{"", "redfish", ", verifyCertificate: true", "ca"},
		{"", "redfish", ", verifyCertificate: false", "none"},
		{"", "redfish", ", verifyCertificate: 'false'", "none"},
		{"", "redfish", ", verifyCertificate: pin", "pin"},
		{"", "redfish+http", ", verifyCertificate: false", "none"},
		{"bmc: {verifyCertificate: ca}\n", "redfish", "", "ca"},
		{"bmc: {verifyCertificate: ca}\n", "redfish", ", verifyCertificate: none", "none"},
		{"bmc: {verifyCertificate: ca}\n", "redfish+http", "", ""},
	} {
		text := fmt.Sprintf(node, c.site, c.scheme+"://10.0.0.5", c.given)
		s, problems := Load("site.yaml", []byte(text))
		require.Empty(t, problems, text)
		given := s.Nodes[0].BMC.VerifyCertificate
		assert.Equal(t, CertificateCheck(c.want), s.WithDefaults().Nodes[0].BMC.VerifyCertificate, text)
		assert.Equal(t, given, s.Nodes[0].BMC.VerifyCertificate, "the document itself was changed")
		again, err := s.RevealedYAML()
		require.NoError(t, err)
		back, problems := Load("site.yaml", again)
		require.Empty(t, problems, "%s", again)
		assert.Equal(t, s.WithDefaults(), back.WithDefaults())
	}

	for given, want := range map[string]string{
		"verifyCertificate: yes please": "is no check of a certificate; use pin, ca or none",
		"verifyCertificate: 1":          "verifyCertificate",
	} {
		_, problems := Load("site.yaml", fmt.Appendf(nil, node, "", "redfish://10.0.0.5", ", "+given))
		require.Len(t, problems, 1, given)
		assert.Contains(t, problems[0].String(), want)
	}

	_, problems := Load("site.yaml", []byte("nodes: [{name: a, bmc: {address: 'ipmi://10.0.0.5', verifyCertificate: pin}}]\n"))
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].String(), "there is no certificate with ipmi; remove the line")
}

func TestEndpoints(t *testing.T) {
	for address, want := range map[BMCAddress]string{
		"redfish://BMC-1.example/redfish/v1/Systems/1": "bmc-1.example:443",
		"redfish+https://10.0.0.5:8443/redfish/v1/x":   "10.0.0.5:8443",
		"redfish://[fd00::5]/redfish/v1/Systems/1":     "[fd00::5]:443",
	} {
		assert.Equal(t, want, address.Endpoint())
		assert.True(t, address.HasTLS())
	}
	assert.False(t, BMCAddress("ipmi://10.0.0.5").HasTLS())
	assert.False(t, BMCAddress("redfish-virtualmedia+http://10.0.0.5/x").HasTLS())
}
