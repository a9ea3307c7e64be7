package ovn4nfv

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// newNamespace makes a network namespace, where that is wanted.
func newNamespace(t *testing.T) int {
	t.Helper()
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	return netnstest.New(t)
}

// routesOf are a namespace's, as ip-route(8) prints them.
func routesOf(t *testing.T, path string) []string {
	t.Helper()
	var out []byte
	require.NoError(t, netns.Do(path, func() (err error) {
		out, err = exec.CommandContext(t.Context(), "ip", "route").CombinedOutput()
		return err
	}))
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// newPodNamespace is a pod with the cluster's network, as the plugin ptp makes it, and one of OVN.
func newPodNamespace(t *testing.T) string {
	t.Helper()
	pid := newNamespace(t)
	require.NoError(t, netns.IP(t.Context(), pid,
		"link add eth0 type veth peer name other", "link set eth0 up", "link set other up",
		"address add 10.244.1.7/24 dev eth0", "route add default via 10.244.1.1 dev eth0",
		"link add net0 type veth peer name further", "link set further up"))
	return netns.PathOf(pid)
}

func TestADefaultGatewayKeepsTheCluster(t *testing.T) {
	path := newPodNamespace(t)
	l := Link{Name: "net0", Address: netip.MustParsePrefix("172.16.44.2/24"), Gateway: netip.MustParseAddr("172.16.44.201")}
	keep := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}
	for range 2 {
		require.NoError(t, machine{}.Configure(path, l, keep))
		assert.ElementsMatch(t, []string{
			"default via 172.16.44.201 dev net0", "10.96.0.0/12 via 10.244.1.1 dev eth0",
			"10.244.1.0/24 dev eth0 proto kernel scope link src 10.244.1.7",
			"172.16.44.0/24 dev net0 proto kernel scope link src 172.16.44.2",
		}, routesOf(t, path))
	}
	require.NoError(t, machine{}.Check(path, l))
	l.Address = netip.MustParsePrefix("172.16.44.3/24")
	assert.EqualError(t, machine{}.Check(path, l), "it has no address 172.16.44.3/24")
}

func TestRoutesOfAChainComeAndGo(t *testing.T) {
	path := newPodNamespace(t)
	require.NoError(t, machine{}.Configure(path, Link{Name: "net0", Address: netip.MustParsePrefix("10.1.0.3/24")}, nil))
	before := routesOf(t, path)
	set := func(wanted []PodRoute) []string {
		t.Helper()
		for range 2 {
			require.NoError(t, inNamespace(path, func(h *netlink.Handle, _ vnetns.NsHandle) error {
				return setRoutes(h, wanted, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")})
			}))
		}
		return routesOf(t, path)
	}

	left := PodRoute{netip.MustParsePrefix("172.30.10.0/24"), netip.MustParseAddr("10.1.0.2")}
	assert.ElementsMatch(t, append([]string{
		"0.0.0.0/1 via 10.1.0.4 dev net0 proto 144", "128.0.0.0/1 via 10.1.0.4 dev net0 proto 144",
		"172.30.10.0/24 via 10.1.0.2 dev net0 proto 144", "10.96.0.0/12 via 10.244.1.1 dev eth0 proto 144",
	}, before...), set(append(everywhereElse(netip.MustParseAddr("10.1.0.4")), left)))
	assert.ElementsMatch(t, append([]string{
		"172.30.10.0/24 via 10.1.0.2 dev net0 proto 144", "10.96.0.0/12 via 10.244.1.1 dev eth0 proto 144",
	}, before...), set([]PodRoute{left}))
	assert.ElementsMatch(t, before, set(nil))
}
