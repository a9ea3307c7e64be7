package installer

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestANodeIsToldTheAddressOfItsOwnNetwork(t *testing.T) {
	const provisioning, both = "172.22.0.1/24\n", "172.22.0.1/24\n10.10.110.5/24\n"
	for _, c := range []struct{ what, node, local, served, told string }{
		{"on provisioning", "172.22.0.11", "172.22.0.1", both, "172.22.0.1"},
		{"on baremetal", "10.10.110.21", "10.10.110.5", both, "10.10.110.5"},
		{"on baremetal, reached by another way", "10.10.110.21", "172.22.0.1", both, "10.10.110.5"},
		{"on baremetal, where the appliance has a lease", "10.10.110.21", "10.10.110.77", provisioning, "172.22.0.1"},
		{"behind a router of baremetal", "10.20.0.21", "10.10.110.5", both, "10.10.110.5"},
		{"behind a router of provisioning", "10.20.0.21", "172.22.0.1", both, "172.22.0.1"},
		{"on none, reached from where nothing is served", "10.20.0.21", "10.30.0.1", both, "172.22.0.1"},
		{"of the other family", "2001:db8::21", "2001:db8::1", both, "172.22.0.1"},
	} {
		served, err := parseServed(c.served)
		require.NoError(t, err)
		assert.Equal(t, c.told, applianceAddress(netip.MustParseAddr(c.node), netip.MustParseAddr(c.local), served).String(), c.what)
	}
	pull := errors.New("pull: i/o timeout")
	served, told := []netip.Prefix{netip.MustParsePrefix("172.22.0.1/24")}, netip.MustParseAddr("172.22.0.1")
	assert.Equal(t, pull, explainFetch(pull, netip.MustParseAddr("172.22.0.11"), told, served), "its network is not what is wrong")
	assert.NoError(t, explainFetch(nil, netip.MustParseAddr("10.10.110.21"), told, served))
	err := explainFetch(pull, netip.MustParseAddr("10.10.110.21"), told, served)
	assert.ErrorIs(t, err, pull)
	assert.EqualError(t, err, "pull: i/o timeout; 10.10.110.21 is on no network where the appliance supplies nodes: give the appliance a static address there in site.yaml "+
		"(networks.baremetal.address), or the node a way to 172.22.0.1")
	for _, text := range []string{"", "172.22.0.1", "all"} {
		_, err := parseServed(text)
		assert.Error(t, err, text)
	}
}
