package mirror

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/netboot"
)

func TestNodesAreSuppliedOnTheirOwnNetworks(t *testing.T) {
	const static = "networks: {baremetal: {cidr: 10.10.110.0/24, address: 10.10.110.5}}\n"
	for _, c := range []struct{ what, text, served string }{
		{"nothing is said", "", "[172.22.0.1/24]"},
		{"no nodes", static, "[172.22.0.1/24]"},
		{"a node with a static address", static + "nodes: [{name: a, macs: ['52:54:00:00:00:01'], links: [{network: baremetal, mac: '52:54:00:00:00:02', address: 10.10.110.21/24}]}]",
			"[172.22.0.1/24 10.10.110.5/24]"},
		{"a node with a lease", static + "nodes: [{name: a, macs: ['52:54:00:00:00:01'], links: [{network: baremetal, mac: '52:54:00:00:00:02'}]}]",
			"[172.22.0.1/24 10.10.110.5/24]"},
		{"a node with DHCP on every NIC", static + "nodes: [{name: a, macs: ['52:54:00:00:00:01']}]", "[172.22.0.1/24 10.10.110.5/24]"},
		{"a node without an address there", static + "nodes: [{name: a, macs: ['52:54:00:00:00:01'], links: [{network: provisioning, mac: '52:54:00:00:00:01'}, {network: baremetal, mac: '52:54:00:00:00:02', address: none}]}]",
			"[172.22.0.1/24]"},
		{"our address there is leased", "networks: {baremetal: {gateway: 10.10.110.1, cidr: 10.10.110.0/24}}\nnodes: [{name: a, macs: ['52:54:00:00:00:01']}]", "[172.22.0.1/24]"},
		{"our address there is IPv6", "networks: {baremetal: {cidr: '2001:db8::/64', address: '2001:db8::1'}}\nnodes: [{name: a, macs: ['52:54:00:00:00:01']}]", "[172.22.0.1/24]"},
		{"the network of the BMCs", "networks: {provisioning: {cidr: 10.7.0.0/22}, bmc: {cidr: 10.9.0.0/24, address: 10.9.0.1}}\nnodes: [{name: a, macs: ['52:54:00:00:00:01']}]", "[10.7.0.1/22]"},
	} {
		s, problems := site.Load("site.yaml", []byte(c.text))
		require.Empty(t, problems, c.what)
		assert.Equal(t, c.served, fmt.Sprint(ServiceAddresses(s.WithDefaults())), c.what)
	}
}

// TestPodsReachTheRegistryByIPv4, where provisioning is of IPv6.
func TestPodsReachTheRegistryByIPv4(t *testing.T) {
	for cidr, want := range map[string]string{
		"fd00:22::/64":  "[fd00:22::1/64 192.0.0.1/32]",
		"172.22.0.0/24": "[172.22.0.1/24]",
	} {
		s, problems := site.Load("site.yaml", []byte("networks: {provisioning: {cidr: '"+cidr+"'}}"))
		require.Empty(t, problems)
		assert.Equal(t, want, fmt.Sprint(registryAddresses(s.WithDefaults())))
	}
}

// What machines boot, what they are installed with and what Ironic writes stay on the provisioning network.
func TestNothingToBootIsServedBesideProvisioning(t *testing.T) {
	var beside []string
	for _, mount := range (&Mirror{}).besideMounts() {
		beside = append(beside, mount.Path)
		assert.NotEqual(t, netboot.HTTPRoot, mount.Dir)
	}
	assert.Equal(t, []string{"/debian/pool/", "/debian/kubernetes/", "/debian/local/", "/binaries/sha256/", "/debian/"}, beside)
}
