package render

import (
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

func newInput() Input {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "host-1", Annotations: map[string]string{"pool": "blue", "mac": "52:54:00:00:00:0a"}}}
	h.Spec.BootMACAddress = "52:54:00:00:00:01"
	h.Status.HardwareDetails = &metal3api.HardwareDetails{NIC: []metal3api.NIC{{Name: "eth1", MAC: "52:54:00:00:00:02"}}}
	return Input{
		Namespace:  "metal3",
		Index:      3,
		Machine:    &metav1.ObjectMeta{Name: "machine", Labels: map[string]string{"zone": "a"}},
		Metal3:     &metav1.ObjectMeta{Name: "m3m"},
		Host:       h,
		ProviderID: "metal3/host-1/m3m",
		Addresses: map[Pool]Address{
			NewPool("", "", "blue"):                           {Address: "10.0.0.5", Prefix: 24, Gateway: "10.0.0.1", DNSServers: []string{"10.0.0.2", "10.0.0.3"}},
			NewPool("", "", "six"):                            {Address: "fd00::5", Prefix: 64, Gateway: "fd00::1"},
			NewPool("example.com", "InClusterIPPool", "mine"): {Address: "10.7.0.5", Prefix: 16, Gateway: "10.7.0.1"},
		},
	}
}

// TestMetaData: every list, and which of two with one key wins.
func TestMetaData(t *testing.T) {
	template := &v1beta2.MetaData{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
strings: [{key: s, value: "7"}, {key: over, value: last}]
objectNames: [{key: host, object: baremetalhost}, {key: machine, object: machine}, {key: m3m, object: metal3machine}, {key: over, object: machine}]
indexes: [{key: i, offset: 10, step: 2, prefix: a, suffix: z}, {key: plain}]
namespaces: [{key: ns}]
ipAddressesFromPool: [{key: ip, name: blue}, {key: theirs, name: mine, apiGroup: example.com, kind: InClusterIPPool}]
prefixesFromPool: [{key: prefix, name: blue}]
gatewaysFromPool: [{key: gateway, name: blue}]
dnsServersFromPool: [{key: dns, name: blue}]
fromHostInterfaces: [{key: mac, interface: eth1}, {key: boot, fromBootMAC: true}]
fromLabels: [{key: zone, object: machine, label: zone}, {key: none, object: machine, label: none}]
fromAnnotations: [{key: pool, object: baremetalhost, annotation: pool}]
`), template))
	text, err := MetaData(template, newInput())
	require.NoError(t, err)
	got := map[string]string{}
	require.NoError(t, yaml.UnmarshalStrict(text, &got))
	assert.Equal(t, map[string]string{
		"s": "7", "over": "last", "host": "host-1", "machine": "machine", "m3m": "m3m", "i": "a16z", "plain": "3", "ns": "metal3",
		"ip": "10.0.0.5", "theirs": "10.7.0.5", "prefix": "24", "gateway": "10.0.0.1", "dns": "10.0.0.2,10.0.0.3",
		"mac": "52:54:00:00:00:02", "boot": "52:54:00:00:00:01", "zone": "a", "none": "", "pool": "blue",
		"providerid": "metal3/host-1/m3m",
	}, got)
}

// TestNetworkData: every kind of link and network, in the order of OpenStack's own files.
func TestNetworkData(t *testing.T) {
	template := &v1beta2.NetworkData{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
links:
  vlans: [{id: v, vlanID: 7, vlanLink: bond0, macAddress: {fromHostInterface: eth1}}]
  bonds: [{id: bond0, bondMode: 802.3ad, bondXmitHashPolicy: layer3+4, bondLinks: [e], mtu: 9000}]
  ethernets: [{id: e, type: phy, name: lan0, macAddress: {fromAnnotation: {object: baremetalhost, annotation: mac}}}]
networks:
  ipv4: [{id: n4, link: bond0, fromPoolAnnotation: {object: baremetalhost, annotation: pool}, ipAddressFromIPPool: other,
    routes: [{network: 0.0.0.0, gateway: {fromIPPool: blue}, services: {dns: [1.1.1.1]}}]}]
  ipv6: [{id: n6, link: e, ipAddressFromIPPool: six, routes: [{network: "fd01::", prefix: 48, gateway: {string: "fd00::9"}}]}]
  ipv4DHCP: [{id: d4, link: e}]
  ipv6DHCP: [{id: d6, link: e}]
  ipv6SLAAC: [{id: s6, link: e}]
services: {dns: [9.9.9.9], dnsFromIPPool: blue}
`), template))
	text, err := NetworkData(template, newInput())
	require.NoError(t, err)
	assert.YAMLEq(t, `
links:
- {type: bond, id: bond0, mtu: 9000, bond_mode: 802.3ad, bond_xmit_hash_policy: layer3+4, bond_links: [e]}
- {type: phy, id: e, name: lan0, mtu: 1500, ethernet_mac_address: "52:54:00:00:00:0a"}
- {type: vlan, id: v, mtu: 1500, vlan_id: 7, vlan_link: bond0, vlan_mac_address: "52:54:00:00:00:02"}
networks:
- {type: ipv4, id: n4, link: bond0, ip_address: 10.0.0.5, netmask: 255.255.255.0, routes: [
    {network: 0.0.0.0, netmask: "", gateway: 10.0.0.1, services: [{type: dns, address: 1.1.1.1}]}]}
- {type: ipv6, id: n6, link: e, ip_address: "fd00::5", netmask: "ffff:ffff:ffff:ffff::", routes: [
    {network: "fd01::", netmask: "ffff:ffff:ffff::", gateway: "fd00::9", services: []}]}
- {type: ipv4_dhcp, id: d4, link: e, routes: []}
- {type: ipv6_dhcp, id: d6, link: e, routes: []}
- {type: ipv6_slaac, id: s6, link: e, routes: []}
services: [{type: dns, address: 9.9.9.9}, {type: dns, address: 10.0.0.2}, {type: dns, address: 10.0.0.3}]
`, string(text))

	pools, err := Pools(v1beta2.Metal3DataTemplateSpec{NetworkData: template}, newInput())
	require.NoError(t, err)
	assert.Equal(t, []Pool{NewPool("", "", "blue"), NewPool("", "", "six")}, pools)

	empty, err := NetworkData(&v1beta2.NetworkData{}, newInput())
	require.NoError(t, err)
	assert.Equal(t, "links: []\nnetworks: []\nservices: []\n", string(empty))
}

// TestWhatCannotBeRendered says which part of the template it is, and why.
func TestWhatCannotBeRendered(t *testing.T) {
	value := func(s string) *string { return &s }
	ethernet := func(mac v1beta2.LinkMAC) *v1beta2.NetworkData {
		return &v1beta2.NetworkData{Links: v1beta2.NetworkLinks{Ethernets: []v1beta2.LinkEthernet{{
			Type: "phy", Link: v1beta2.Link{ID: "e", MACAddress: &mac},
		}}}}
	}
	bond := v1beta2.LinkBond{BondMode: "802.3ad", Parameters: []v1beta2.BondParameter{{Name: "mode", Value: apiextensionsv1.JSON{Raw: []byte("1")}}}}
	bond.ID = "b"
	for _, c := range []struct {
		says     string
		metaData *v1beta2.MetaData
		network  *v1beta2.NetworkData
	}{
		{`metaData: k: host host-1 has no interface "eth9"`, &v1beta2.MetaData{FromHostInterfaces: []v1beta2.MetaDataHostInterface{{Key: "k", Interface: "eth9"}}}, nil},
		{"metaData: k: there is no address of IPPool red yet", &v1beta2.MetaData{GatewaysFromPool: []v1beta2.FromPool{{Key: "k", Name: "red"}}}, nil},
		{`networkData.links: e: macAddress "52:54" is not six pairs`, nil, ethernet(v1beta2.LinkMAC{String: value("52:54")})},
		{"networkData.links: e: baremetalhost host-1 has no annotation none", nil, ethernet(v1beta2.LinkMAC{FromAnnotation: &v1beta2.AnnotationReference{Object: "baremetalhost", Annotation: "none"}})},
		{"networkData.links: bond b: parameter mode has its own field", nil, &v1beta2.NetworkData{Links: v1beta2.NetworkLinks{Bonds: []v1beta2.LinkBond{bond}}}},
	} {
		var err error
		if c.metaData != nil {
			_, err = MetaData(c.metaData, newInput())
		} else {
			_, err = NetworkData(c.network, newInput())
		}
		if assert.Error(t, err, c.says) {
			assert.True(t, strings.HasPrefix(err.Error(), c.says), "%v", err)
		}
	}
	_, err := Pools(v1beta2.Metal3DataTemplateSpec{MetaData: &v1beta2.MetaData{IPAddressesFromPool: []v1beta2.FromPool{
		{Key: "a", Name: "mine"}, {Key: "b", Name: "mine", APIGroup: "example.com", Kind: "InClusterIPPool"},
	}}}, newInput())
	assert.ErrorContains(t, err, "pools IPPool mine and InClusterIPPool mine have one name; rename one")
}
