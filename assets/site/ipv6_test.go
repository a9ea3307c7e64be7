package site

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASiteBootsByIPv6(t *testing.T) {
	s, problems := Load("site.yaml", []byte(`networks: {provisioning: {cidr: "fd00:22::/64"}, baremetal: {cidr: 10.10.0.0/24, address: 10.10.0.2}}
nodes:
  - {name: a, macs: ["52:54:00:00:00:01", "52:54:00:00:00:11"]}
  - name: b
    macs: ["52:54:00:00:00:02"]
    links: [{network: provisioning, mac: "52:54:00:00:00:02"}, {network: baremetal, mac: "52:54:00:00:00:12"}]
`))
	require.Empty(t, problems)
	d := s.WithDefaults()
	p := d.Networks.Provisioning
	assert.Equal(t, "fd00:22::1", p.Address.String())
	assert.Equal(t, "fd00:22::a-fd00:22::64", p.DHCP.Range.String())
	assert.Equal(t, "192.0.0.1", d.InnerAddress().String())

	booted, other := Link{MAC: "52:54:00:00:00:01"}, Link{MAC: "52:54:00:00:00:11"}
	assert.True(t, d.LeasesIPv6(d.Nodes[0], booted))
	assert.False(t, d.LeasesIPv6(d.Nodes[0], other), "what its network has is not known")
	assert.True(t, d.LeasesIPv6(d.Nodes[1], d.Nodes[1].Links[0]))
	assert.False(t, d.LeasesIPv6(d.Nodes[1], d.Nodes[1].Links[1]))

	d = new(Site).WithDefaults()
	assert.Equal(t, d.Networks.Provisioning.Address, d.InnerAddress())
	assert.False(t, d.LeasesIPv6(Node{BootMAC: booted.MAC}, booted))
}

// TestWhatNeedsIPv4IsRefused: each with its sentence.
func TestWhatNeedsIPv4IsRefused(t *testing.T) {
	const provisioning = `provisioning: {interface: eno1, cidr: "fd00:22::/64"`
	for text, want := range map[string]string{
		`networks: {provisioning: {cidr: "fe80::/64"}}`:                                                        "fe80::/64 has no addresses that machines are given; use one such as fd00:22::/64",
		`networks: {provisioning: {cidr: "ff05::/64"}}`:                                                        "has no addresses that machines are given",
		`networks: {provisioning: {cidr: "fd00:22::/120"}}`:                                                    "a network of length 120 is too small for IPv6; use /64",
		"networks: {" + provisioning + ", dhcp: {mode: none}}}":                                                "networks.provisioning.dhcp.mode: by IPv6 machines are known by the addresses that the appliance gives them",
		"networks: {" + provisioning + ", dhcp: {mode: proxy}}}":                                               "networks.provisioning.dhcp.mode: by IPv6 machines are known",
		"networks: {" + provisioning + `, gateway: "fd00:22::2"}}`:                                             "networks.provisioning.gateway: nodes are told of no router by IPv6; remove the line",
		"networks: {" + provisioning + `, dhcp: {range: "fd00:22::10-fd00:22::ffff:ffff"}}}`:                   "has more than 65536 addresses",
		"networks: {" + provisioning + `, dhcp: {range: "fd00:22::10-fd00:22::1:0:0:1"}}}`:                     "has more than 65536 addresses",
		"networks: {" + provisioning + "}, bmc: {cidr: 10.3.0.0/24, allow: [kubernetes]}}":                     "networks.bmc.allow: with provisioning by IPv6 the API has no address there",
		"networks: {" + provisioning + "}, bmc: {cidr: 192.0.0.0/24}}":                                         "192.0.0.1/32",
		"networks: {" + provisioning + "}}\nnodeDefaults: {bootMode: UEFISecureBoot}":                          "nodeDefaults.bootMode: UEFISecureBoot does not boot by IPv6",
		"networks: {" + provisioning + "}}\nnodes: [{name: a, macs: ['52:54:00:00:00:01'], bootMode: legacy}]": "nodes[0].bootMode: legacy does not boot by IPv6; use UEFI",
		"networks: {" + provisioning + "}}\nclusters: [{name: c}]":                                             "clusters: clusters are not installed on nodes whose provisioning network is of IPv6",
		"networks: {" + provisioning + "}, baremetal: {interface: eno2, cidr: '2001:db8::/64', address: '2001:db8::1', dhcp: {mode: server, range: '2001:db8::10-2001:db8::20'}}}": "DHCP is served for IPv4 only on this network",
	} {
		_, problems := Load("site.yaml", []byte(text))
		assert.Contains(t, problems.String(), want, text)
	}
}

func TestRangesOfIPv6AreCounted(t *testing.T) {
	at := netip.MustParseAddr
	assert.Equal(t, 257, Range{at("fd00::100"), at("fd00::200")}.size())
	assert.Zero(t, Range{}.size())
	assert.Zero(t, Range{at("fd00::2"), at("fd00::1")}.size())
	assert.Greater(t, Range{at("fd00::"), at("fd00:0:0:1::")}.size(), 1<<32)
	assert.Equal(t, 2, Range{at("10.0.0.255"), at("10.0.1.0")}.size())
}
