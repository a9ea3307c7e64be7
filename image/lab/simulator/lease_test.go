package simulator

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"firstlight.dev/firstlight/image/lab/netns"
)

// TestTheNetworkStaysWhenAllServersHaveStarted: no server has an address of its firmware then, and the next one that boots
// from the network has to reach the appliance.
func TestTheNetworkStaysWhenAllServersHaveStarted(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs network namespaces: set FIRSTLIGHT_TEST=ns")
	}

	bridge, err := netns.NewBridge(t.Context())
	require.NoError(t, err)
	t.Cleanup(bridge.Close)
	require.NoError(t, bridge.IP(t.Context(), "route add 192.0.2.0/24 dev "+netns.BridgeName))
	s := &Simulator{config: Config{NIC: netns.BridgeName}, wire: &network{namespace: bridge.Path()}}
	for range 2 {
		s.hosts = append(s.hosts, &Server{simulator: s})
	}

	for i, h := range s.hosts {
		require.NoError(t, h.setAddress(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})))
	}
	assert.Equal(t, []string{"192.0.2.10", "192.0.2.11"}, addressesOf(t, bridge))
	for _, h := range s.hosts {
		require.NoError(t, h.releaseAddress())
	}
	assert.Equal(t, []string{nobodys.IP.String()}, addressesOf(t, bridge))

	var routes []netlink.Route
	require.NoError(t, netns.Do(bridge.Path(), func() (err error) {
		routes, err = netlink.RouteList(nil, netlink.FAMILY_V4)
		return err
	}))
	require.Len(t, routes, 1, "the network is out of reach")
	assert.Equal(t, "192.0.2.0/24", routes[0].Dst.String())
}

// addressesOf are the addresses of IPv4 of a bridge, sorted.
func addressesOf(t *testing.T, bridge *netns.Bridge) (all []string) {
	t.Helper()
	require.NoError(t, netns.Do(bridge.Path(), func() error {
		link, err := netlink.LinkByName(netns.BridgeName)
		if err != nil {
			return err
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		for _, a := range addresses {
			all = append(all, a.IP.String())
		}
		return err
	}))
	slices.Sort(all)
	return all
}
