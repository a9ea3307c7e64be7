package site

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/go-crypt/crypt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestSecretsAreNeverPrinted(t *testing.T) {
	const hidden = "open-sesame"
	s, problems := Load("site.yaml", []byte(`
nodes:
  - name: node-1
    bmc: {address: "ipmi://10.0.0.1", username: admin, password: open-sesame}
    os: {password: open-sesame}
`))
	require.Empty(t, problems.String())
	require.Equal(t, hidden, s.Nodes[0].BMC.Password.Reveal())
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("read site", "site", s, "bmc", *s.Nodes[0].BMC, "password", s.Nodes[0].BMC.Password)
	}
	type outer struct{ inner struct{ p Secret } }
	var nested outer
	nested.inner.p = NewSecret(hidden)
	shown := log.String()
	for _, v := range []any{s, *s, s.Nodes, *s.Nodes[0].BMC, s.Nodes[0].OS.Password, &s.Nodes[0].OS.Password, nested} {
		shown += fmt.Sprintf("%v %+v %#v %s %q %x %d", v, v, v, v, v, v, v)
		j, err := json.Marshal(v)
		require.NoError(t, err)
		y, err := yaml.Marshal(v)
		require.NoError(t, err)
		shown += string(j) + string(y)
	}
	y, err := s.YAML()
	require.NoError(t, err)
	shown += string(y)
	assert.NotContains(t, shown, hidden)
	assert.NotContains(t, shown, fmt.Sprintf("%x", hidden))
	assert.Contains(t, string(y), "[redacted]")
	_, problems = Load("site.yaml", y)
	assert.Contains(t, problems.String(), "put the secret itself here")
	assert.Empty(t, fmt.Sprint(Secret{}))
}

func TestSecretCrypt(t *testing.T) {
	a, err := NewSecret("opensesame").CryptHash("node-1")
	require.NoError(t, err)
	again, err := NewSecret("opensesame").CryptHash("node-1")
	require.NoError(t, err)
	other, err := NewSecret("opensesame").CryptHash("node-2")
	require.NoError(t, err)
	assert.Equal(t, a, again)
	assert.NotEqual(t, a, other)
	ok, err := crypt.CheckPassword("opensesame", a)
	require.NoError(t, err)
	assert.True(t, ok)
	ok, err = crypt.CheckPassword("wrong", a)
	require.NoError(t, err)
	assert.False(t, ok)
	kept, err := NewSecret(a).CryptHash("node-2")
	require.NoError(t, err)
	assert.Equal(t, a, kept, "a hash is not hashed again")
	yescrypt := "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$tnSYvahCwPBHKZUspmcxMfb0.WiB9W.zEaKlOBL35rC"
	kept, err = NewSecret(yescrypt).CryptHash("")
	require.NoError(t, err)
	assert.Equal(t, yescrypt, kept)
	_, err = Secret{}.CryptHash("node-1")
	assert.EqualError(t, err, "hash password: it is empty")
}

func TestMACIsNormal(t *testing.T) {
	for _, s := range []string{"52:54:00:AB:CD:EF", "52-54-00-ab-cd-ef"} {
		m, err := ParseMAC(s)
		require.NoError(t, err)
		assert.Equal(t, MAC("52:54:00:ab:cd:ef"), m)
		assert.Equal(t, m.String(), m.HardwareAddr().String())
	}
	for _, s := range []string{"", "525400abcdef", "5254.00ab.cdef", "52:54:00:ab:cd", "52:54:00:ab:cd:ef:00:01", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", " 52:54:00:ab:cd:ef"} {
		_, err := ParseMAC(s)
		assert.Error(t, err, s)
	}
	assert.Nil(t, MAC("").HardwareAddr())
}

func TestInterfaceForms(t *testing.T) {
	for in, want := range map[string]Interface{
		"eno2": {Name: "eno2"}, "enp4s0f1": {Name: "enp4s0f1"}, "eth0.100": {Name: "eth0.100"},
		"52:54:00:AB:CD:EF": {MAC: "52:54:00:ab:cd:ef"}, "3B:00.0": {PCI: "0000:3b:00.0"}, "0001:3b:00.7": {PCI: "0001:3b:00.7"},
	} {
		var i Interface
		require.NoError(t, i.ParseText(in), in)
		assert.Equal(t, want, i)
	}
	for _, in := range []string{"", "a name", "averyveryverylongname", "-eno1", "eno/1", "0000:3b:00.9", "../x"} {
		var i Interface
		assert.Error(t, i.ParseText(in), in)
	}
}

func TestBMCAddressParts(t *testing.T) {
	for in, want := range map[string]struct {
		scheme, host string
		port         int
	}{
		"ipmi://10.0.0.5":                                {"ipmi", "10.0.0.5", 623},
		"ipmi://[2001:db8::5]:6230":                      {"ipmi", "2001:db8::5", 6230},
		"redfish://bmc.example.org/redfish/v1/Systems/1": {"redfish", "bmc.example.org", 443},
		"redfish+http://bmc:8000/redfish/v1/Systems/a":   {"redfish+http", "bmc", 8000},
		"redfish+http://bmc/redfish/v1/Systems/a":        {"redfish+http", "bmc", 80},
		"redfish+https://bmc/redfish/v1/Systems/a":       {"redfish+https", "bmc", 443},
	} {
		var a BMCAddress
		require.NoError(t, a.ParseText(in), in)
		assert.Equal(t, want.scheme, a.Scheme(), in)
		assert.Equal(t, want.host, a.Host(), in)
		assert.Equal(t, want.port, a.Port(), in)
	}
	for _, in := range []string{"", "ipmi://", "IPMI://h", "ipmi://h:0", "ipmi://h:99999", "ipmi://h/x", "ipmi://a b", "redfish://h/redfish/v1", "redfish://u:p@h/redfish/v1/Systems/1", "redfish://h/redfish/v1/Systems/1?a", "ipmi://h\n", "https://h/redfish/v1/Systems/1"} {
		var a BMCAddress
		assert.Error(t, a.ParseText(in), in)
	}
}

func TestDurationAndMemoryText(t *testing.T) {
	for in, want := range map[string]string{"60m": "1h", "90s": "1m30s", "1h30m": "1h30m", "3600s": "1h", "10s": "10s", "10m": "10m", "1h0m20s": "1h0m20s"} {
		var d Duration
		require.NoError(t, d.ParseText(in))
		assert.Equal(t, want, d.String())
	}
	for _, in := range []string{"", "60", "-1m", "1ms", "9999h", "soon", "1e9s"} {
		var d Duration
		assert.Error(t, d.ParseText(in), in)
	}
	for in, want := range map[string]Memory{"16Gi": 16 << 30, "1Ti": 1 << 40, "512M": 512e6, "1Ki": 1024} {
		var m Memory
		require.NoError(t, m.ParseText(in))
		assert.Equal(t, want, m)
		assert.Equal(t, in, m.String())
	}
	for _, in := range []string{"", "16", "16GB", "0Gi", "-1Gi", "999999999Ti", "1.5Gi"} {
		var m Memory
		assert.Error(t, m.ParseText(in), in)
	}
}

// TestConsentForms: true and false as before, with and without quotes, and the fingerprint of what may be lost.
func TestConsentForms(t *testing.T) {
	const node = "nodes: [{name: a, macs: ['52:54:00:00:00:01'], overwrite: %s}]\n"
	for text, want := range map[string]Consent{
		"true": "true", "True": "true", "'true'": "true", "false": "false", "data-0123456789ab": "data-0123456789ab", "'data-012345678901'": "data-012345678901",
	} {
		s, problems := Load("site.yaml", fmt.Appendf(nil, node, text))
		require.Empty(t, problems, text)
		assert.Equal(t, want, s.Nodes[0].Overwrite, text)
		again, err := s.RevealedYAML()
		require.NoError(t, err)
		if want == "true" {
			assert.Contains(t, string(again), "overwrite: true\n", "earlier versions read a bool alone")
		}
		back, problems := Load("site.yaml", again)
		require.Empty(t, problems, "%s", again)
		assert.Equal(t, want, back.Nodes[0].Overwrite)
	}
	for _, text := range []string{"1", "yes", "data-", "data-0123456789AB", "012345678901", "[true]"} {
		_, problems := Load("site.yaml", fmt.Appendf(nil, node, text))
		require.Len(t, problems, 1, text)
		assert.Contains(t, problems[0].String(), "site.yaml:1: nodes[0].overwrite: ", text)
	}
}
