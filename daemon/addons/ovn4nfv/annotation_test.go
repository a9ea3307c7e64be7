package ovn4nfv

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnAnnotationAsksForInterfaces(t *testing.T) {
	// Upstream's default-gateway example, with what else can be said.
	all, err := ParseRequests(`{ "type": "ovn4nfv", "interface": [
		{"name": "ovn-port-net", "interface": "net2", "defaultGateway": "false", "ipAddress": "172.16.33.7/24", "macAddress": "02:00:00:00:00:0A"},
		{"name": "ovn-priv-net", "interface": "net3", "defaultGateway": true, "gwipaddress": "172.16.44.201"}]}`)
	require.NoError(t, err)
	assert.Equal(t, []Request{
		{Network: "ovn-port-net", Interface: "net2", Address: netip.MustParseAddr("172.16.33.7"), MAC: "02:00:00:00:00:0a"},
		{Network: "ovn-priv-net", Interface: "net3", DefaultGateway: true, Gateway: netip.MustParseAddr("172.16.44.201")},
	}, all)
}

func TestAWrongAnnotationIsOneSentence(t *testing.T) {
	const at = "annotation k8s.plugin.opnfv.org/nfn-network: "
	one := func(fields string) string { return `{"type":"ovn4nfv","interface":[{` + fields + `}]}` }
	for text, want := range map[string]string{
		"[":                                  at + "unexpected end of JSON input",
		`{"type":"other"}`:                   at + `type "other" is not ovn4nfv`,
		one(`"interface":"net0"`):            at + "interface 1: it has no name of a network",
		one(`"name":"a"`):                    at + `interface 1: "" is no name of an interface; give it one such as net0, with up to 15 characters`,
		one(`"name":"a","interface":"*"`):    at + `interface 1: "*" is no name of an interface; give it one such as net0, with up to 15 characters`,
		one(`"name":"a","interface":"eth0"`): at + "interface 1: eth0 is in use; give it another name",
		one(`"name":"a","interface":"n"},{"name":"b","interface":"n"`):     at + "interface 2: n is in use; give it another name",
		one(`"name":"a","interface":"n","defaultGateway":"yes"`):           at + `interface 1: defaultGateway "yes" is neither true nor false`,
		one(`"name":"a","interface":"n","ipAddress":"x"`):                  at + `interface 1: ipAddress: "x" is no IPv4 address`,
		one(`"name":"a","interface":"n","ipAddress":"fd00::1"`):            at + `interface 1: ipAddress: "fd00::1" is no IPv4 address`,
		one(`"name":"a","interface":"n","gwipaddress":"x"`):                at + `interface 1: gwipaddress: "x" is no IPv4 address`,
		one(`"name":"a","interface":"n","macAddress":"01:00:00:00:00:01"`): at + `interface 1: macAddress: "01:00:00:00:00:01" is no MAC of an interface; write 02:00:00:00:00:07`,
	} {
		_, err := ParseRequests(text)
		assert.EqualError(t, err, want, text)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add(`{"type":"ovn4nfv","interface":[{"name":"a","interface":"net0","defaultGateway":"true"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseRequests(text)
		if err != nil {
			return
		}
		for _, r := range all {
			assert.NotEmpty(t, r.Network)
			assert.True(t, isInterfaceName(r.Interface))
		}
	})
}

func TestWhatTheOperatorDidNotWriteIsRefused(t *testing.T) {
	_, err := ParseInterfaces(`[{"ip_address":["172.16.33.2/24"],"mac_address":"0a:58:ac:10:21:02","gateway_ip":[],"interface":"net0"}]`)
	assert.NoError(t, err)
	for _, text := range []string{
		`{}`, `[{"interface":"net0"}]`, `[{"ip_address":["x"],"mac_address":"m","interface":"net0"}]`,
		`[{"ip_address":["172.16.33.2/24"],"mac_address":"m","interface":"../x"}]`,
	} {
		_, err := ParseInterfaces(text)
		assert.ErrorContains(t, err, InterfacesKey, text)
	}
}
