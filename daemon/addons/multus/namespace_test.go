package multus

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// realNode is a node in a network namespace, on which real plugins are called.
type realNode struct {
	*Plugin
	path string // of its namespace
	api  *fakeAPI
}

func newRealNode(t *testing.T, bridge *netns.Bridge, plugins string, number int) *realNode {
	pid := netnstest.New(t)
	require.NoError(t, bridge.Connect(t.Context(), pid, fmt.Sprintf("port%d", number), "eth0"))
	require.NoError(t, netns.IP(t.Context(), pid, "link set lo up", fmt.Sprintf("addr add 172.22.0.%d/24 dev eth0", number)))

	n := &realNode{path: netns.PathOf(pid), api: &fakeAPI{definitions: map[string]string{}}}
	n.Plugin = &Plugin{
		Dirs: NodeDirs(t.TempDir()), Path: []string{plugins}, Log: t.Output(), SetRoute: setDefaultRoute,
		Open: func(string) (API, error) { return n.api, nil },
	}
	write(t, filepath.Join(n.Dirs.Conf, "10-firstlight.conflist"), fmt.Sprintf(`{"cniVersion":"1.0.0","name":"firstlight","plugins":[{"type":"ptp",
		"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.244.%d.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, n.Dirs.Results, number))
	return n
}

// do calls the plugin for a pod's namespace.
func (n *realNode) do(t *testing.T, networks string, pid int, command func(*skel.CmdArgs) error) {
	t.Helper()
	n.api.pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "blue", Name: "web", UID: "u", Annotations: map[string]string{NetworksKey: networks},
	}}
	c := call("")
	c.ContainerID, c.Netns = fmt.Sprintf("sandbox%d", pid), netns.PathOf(pid)
	c.StdinData = []byte(`{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus"}`)
	require.NoError(t, netns.Do(n.path, func() error { return command(c) }))
}

// TestRealPlugins: pods of two nodes meet on the nodes' own network by macvlan, at addresses that they ask for. One of
// them has a second network of its node, whose address becomes free again, and its default route there.
func TestRealPlugins(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	plugins := t.TempDir()
	for _, p := range []string{"main/bridge", "main/macvlan", "main/ptp", "ipam/host-local", "ipam/static"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", plugins, "github.com/containernetworking/plugins/plugins/"+p)
		build.Dir = "../../../assets/build/cni"
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	bridge, err := netns.NewBridge(t.Context())
	require.NoError(t, err)
	t.Cleanup(bridge.Close)
	left, right := newRealNode(t, bridge, plugins, 1), newRealNode(t, bridge, plugins, 2)
	local := filepath.Join(left.Dirs.Results, "local")
	definitions := map[string]string{
		"blue/rack": `{"cniVersion":"1.0.0","type":"macvlan","master":"eth0","capabilities":{"ips":true,"mac":true},"ipam":{"type":"static"}}`,
		"blue/local": fmt.Sprintf(`{"cniVersion":"1.0.0","type":"bridge","bridge":"br-local","isGateway":true,
			"ipam":{"type":"host-local","dataDir":%q,"subnet":"10.5.0.0/24"}}`, local),
	}
	left.api.definitions, right.api.definitions = definitions, definitions

	pods := []int{netnstest.New(t), netnstest.New(t)}
	add := func(n *realNode) func(*skel.CmdArgs) error {
		return func(c *skel.CmdArgs) error {
			_, err := n.Add(t.Context(), c)
			return err
		}
	}
	const networks = `[{"name":"rack","ips":["192.168.7.11/24"],"mac":"02:00:00:00:07:11"},{"name":"local","default-route":["10.5.0.1"]}]`
	left.do(t, networks, pods[0], add(left))
	right.do(t, `[{"name":"rack","ips":["192.168.7.12/24"]}]`, pods[1], add(right))
	t.Logf("%+v", left.api.status)
	require.Len(t, left.api.status, 3)
	assert.Equal(t, []string{"192.168.7.11"}, left.api.status[1].IPs)
	assert.Equal(t, "02:00:00:00:07:11", left.api.status[1].MAC)
	assert.Equal(t, "net2", left.api.status[2].Interface)

	require.NoError(t, netns.Do(netns.PathOf(pods[0]), func() error {
		out, err := exec.CommandContext(t.Context(), "ip", "route", "show", "default").CombinedOutput()
		assert.Equal(t, "default via 10.5.0.1 dev net2", strings.TrimSpace(string(out)))
		return err
	}))
	// Upstream's quickstart, a second default route included.
	start := netnstest.New(t)
	right.api.definitions["blue/macvlan-conf"] = strings.Replace(quickstart, `"host-local",`,
		fmt.Sprintf(`"host-local", "dataDir": %q,`, local), 1)
	right.do(t, "macvlan-conf", start, add(right))
	assert.Equal(t, []string{"192.168.1.200"}, right.api.status[1].IPs)
	right.do(t, "macvlan-conf", start, func(c *skel.CmdArgs) error { return right.Del(t.Context(), c) })
	assert.NoFileExists(t, filepath.Join(local, "macvlan-conf", "192.168.1.200"))

	meet(t, netns.PathOf(pods[0]), netns.PathOf(pods[1]), "192.168.7.12:9000")
	left.do(t, networks, pods[0], func(c *skel.CmdArgs) error { return left.Del(t.Context(), c) })
	assert.NoFileExists(t, filepath.Join(local, "local", "10.5.0.2"))
	require.NoError(t, netns.Do(netns.PathOf(pods[0]), func() error {
		links, err := net.Interfaces()
		assert.Len(t, links, 1, "%v", links)
		return err
	}))
}

// meet has one namespace answer another.
func meet(t *testing.T, from, to, addr string) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, netns.Do(to, func() (err error) {
		listener, err = net.Listen("tcp", addr)
		return err
	}))
	defer listener.Close()
	require.NoError(t, netns.Do(from, func() error {
		connection, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err == nil {
			_ = connection.Close()
		}
		return err
	}))
}
