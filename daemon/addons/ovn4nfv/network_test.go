package ovn4nfv

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func parseSpec(t *testing.T, text string) (spec ProviderSpec) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec))
	return spec
}

// direct is upstream's example of a provider network.
const direct = `
cniType: ovn4nfv
ipv4Subnets:
- {subnet: 172.16.34.0/24, name: subnet2, gateway: 172.16.34.1/24, excludeIps: 172.16.34.2 172.16.34.5..172.16.34.10}
providerNetType: DIRECT
direct: {providerInterfaceName: eth0.101, directNodeSelector: specific, nodeLabelList: [kubernetes.io/hostname=ubuntu18]}
`

func TestASubnetSaysWhatPodsGet(t *testing.T) {
	n, err := ReadProvider("default", "directpnetwork", parseSpec(t, direct))
	require.NoError(t, err)
	assert.Equal(t, "default_directpnetwork", n.switchName())
	assert.Equal(t, "172.16.34.1", n.Gateway.String())
	var free []string
	for _, r := range n.Free.Ranges() {
		free = append(free, r.String())
	}
	assert.Equal(t, []string{"172.16.34.3-172.16.34.4", "172.16.34.11-172.16.34.254"}, free)
	assert.Equal(t, "eth0.101", n.Provider.device())
	assert.Equal(t, "kubernetes.io/hostname=ubuntu18", n.Provider.Nodes.String())

	spec := parseSpec(t, "cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/29}]").NetworkSpec
	n, err = ReadNetwork("blue", "a", spec)
	require.NoError(t, err)
	assert.Equal(t, "10.1.0.1", n.Gateway.String(), "the router has the first address")
	assert.Equal(t, "10.1.0.2-10.1.0.6", n.Free.Ranges()[0].String())

	n, err = ReadProvider("blue", "b", parseSpec(t, `
cniType: ovn4nfv
ipv4Subnets: [{name: a, subnet: 10.1.0.0/29}]
providerNetType: VLAN
vlan: {vlanId: "100", providerInterfaceName: eth0, vlanNodeSelector: all}`))
	require.NoError(t, err)
	assert.Equal(t, "eth0.100", n.Provider.device())
	assert.False(t, n.Gateway.IsValid(), "it is outside")
	assert.True(t, n.Provider.Nodes.Empty())
}

func TestAWrongNetworkIsOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"cniType: x":       `spec.cniType "x" is not ovn4nfv`,
		"cniType: ovn4nfv": "spec.ipv4Subnets: it has 0 subnets; a network has one",
		"cniType: ovn4nfv\nipv6Subnets: [{name: a, subnet: 'fd00::/64'}]":                                 "spec.ipv6Subnets: IPv6 is not there; take them out",
		"cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.1/24}]":                                 `spec.ipv4Subnets[0].subnet "10.1.0.1/24" is no network; write 172.16.33.0/24`,
		"cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/31}]":                                 `spec.ipv4Subnets[0].subnet "10.1.0.0/31" is no network; write 172.16.33.0/24`,
		"cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/24, gateway: 10.2.0.1}]":              "spec.ipv4Subnets[0].gateway 10.2.0.1 is none of the addresses of 10.1.0.0/24",
		"cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/24, excludeIps: 10.1.0.9..10.1.0.2}]": `spec.ipv4Subnets[0].excludeIps: "10.1.0.9..10.1.0.2" is neither an address nor a range FROM..TO`,
	} {
		_, err := ReadNetwork("blue", "a", parseSpec(t, text).NetworkSpec)
		assert.EqualError(t, err, want, text)
	}

	const provider = "cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/24}]\n"
	for text, want := range map[string]string{
		"providerNetType: DIRECT": `spec.providerNetType "DIRECT": write VLAN with spec.vlan, or DIRECT with spec.direct`,
		"providerNetType: VLAN\nvlan: {vlanId: x, providerInterfaceName: eth0, vlanNodeSelector: all}": `spec.vlan.vlanId "x" is not from 1 to 4094`,
		"providerNetType: DIRECT\ndirect: {providerInterfaceName: a/b, directNodeSelector: all}":       `providerInterfaceName "a/b" is no name of an interface`,
		"providerNetType: DIRECT\ndirect: {providerInterfaceName: eth1, directNodeSelector: any}":      `spec.direct.directNodeSelector: "any" is not there; write all, or specific with a nodeLabelList`,
		"providerNetType: DIRECT\ndirect: {providerInterfaceName: eth1, directNodeSelector: specific}": "spec.direct.directNodeSelector: specific needs a nodeLabelList",
	} {
		_, err := ReadProvider("blue", "a", parseSpec(t, provider+text))
		assert.EqualError(t, err, want, text)
	}
}

func testNetworks(t *testing.T) map[string]Network {
	t.Helper()
	all := map[string]Network{}
	for _, key := range []string{"default/shared", "blue/own", "blue/shared"} {
		namespace, name := key[:len(key)-len("/shared")], "shared"
		if key == "blue/own" {
			namespace, name = "blue", "own"
		}
		spec := parseSpec(t, "cniType: ovn4nfv\nipv4Subnets: [{name: a, subnet: 10.1.0.0/29}]").NetworkSpec
		n, err := ReadNetwork(namespace, name, spec)
		require.NoError(t, err)
		all[n.String()] = n
	}
	return all
}

func TestPodsGetTheLowestFreeAddress(t *testing.T) {
	all := testNetworks(t)
	used := users{}
	give := func(namespace string, requests ...Request) []Interface {
		t.Helper()
		given, err := allocate(namespace+"/pod", namespace, requests, all, used)
		require.NoError(t, err)
		used.add(namespace+"/pod", given)
		return given
	}
	assert.Equal(t, []Interface{
		{Addresses: []string{"10.1.0.2/29"}, MAC: "0a:58:0a:01:00:02", Gateways: []string{"10.1.0.1"}, DefaultGateway: "false", Interface: "net0", Network: "blue/own"},
		{Addresses: []string{"10.1.0.3/29"}, MAC: "0a:58:0a:01:00:03", Gateways: []string{"10.1.0.1"}, DefaultGateway: "false", Interface: "net1", Network: "blue/own"},
	}, give("blue", Request{Network: "own", Interface: "net0"}, Request{Network: "own", Interface: "net1"}))
	assert.Equal(t, "blue/shared", give("blue", Request{Network: "shared", Interface: "net0"})[0].Network, "its namespace's comes first")
	red := give("red", Request{Network: "shared", Interface: "net0", Address: netip.MustParseAddr("10.1.0.6"), MAC: "02:00:00:00:00:01"})[0]
	assert.Equal(t, Interface{
		Addresses: []string{"10.1.0.6/29"}, MAC: "02:00:00:00:00:01", Gateways: []string{"10.1.0.1"}, DefaultGateway: "false",
		Interface: "net0", Network: "default/shared",
	}, red)

	for want, r := range map[string]Request{
		"interface n: no Network or ProviderNetwork own is ready in red or default; create it, or see its status": {Network: "own"},
		"interface n: ipAddress 10.1.0.6 of network default/shared is pod red/pod's":                              {Network: "shared", Address: netip.MustParseAddr("10.1.0.6")},
		"interface n: ipAddress 10.1.0.1 is none of network default/shared, whose addresses are 10.1.0.0/29":      {Network: "shared", Address: netip.MustParseAddr("10.1.0.1")},
		"interface n: gwipaddress 10.9.0.1 is none of the addresses of network default/shared":                    {Network: "shared", Gateway: netip.MustParseAddr("10.9.0.1")},
	} {
		r.Interface = "n"
		_, err := allocate("red/other", "red", []Request{r}, all, used)
		assert.EqualError(t, err, want)
	}

	for range 4 {
		give("red", Request{Network: "shared", Interface: "net0"})
	}
	_, err := allocate("red/other", "red", []Request{{Network: "shared", Interface: "n"}}, all, used)
	assert.EqualError(t, err, "interface n: network default/shared has no free address; delete pods, or make another network")
}
