package netns_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
)

func TestWithinRunsInAnotherNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the network of a thread")
	}
	other := exec.Command("unshare", "--net", "sh", "-c", "echo ready; exec sleep 1000")
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	_, err = out.Read(make([]byte, 8))
	require.NoError(t, err)

	network := func() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }
	here, err := network()
	require.NoError(t, err)
	var there string
	require.NoError(t, netns.Do(netns.PathOf(other.Process.Pid), func() (err error) { there, err = network(); return err }))
	assert.NotEqual(t, here, there)
	assert.ErrorIs(t, netns.Do(netns.PathOf(-1), func() error { return nil }), os.ErrNotExist)
	after, err := network()
	require.NoError(t, err)
	assert.Equal(t, here, after)
}

func TestBridgeJoinsNetworks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	bridge, err := netns.NewBridge(t.Context())
	require.NoError(t, err)
	t.Cleanup(bridge.Close)
	require.NoError(t, bridge.IP(t.Context(), "addr add 192.0.2.1/24 dev "+netns.BridgeName))

	other := exec.Command("unshare", "--net", "sh", "-c", "echo ready; exec sleep 1000")
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	t.Cleanup(func() { other.Process.Kill(); other.Wait() })
	_, err = out.Read(make([]byte, 8))
	require.NoError(t, err)
	pid := other.Process.Pid
	require.NoError(t, bridge.Connect(t.Context(), pid, "port0", "eth0"))
	require.NoError(t, netns.IP(t.Context(), pid, "addr add 192.0.2.2/24 dev eth0"))

	var listener net.Listener
	require.NoError(t, netns.Do(bridge.Path(), func() (err error) { listener, err = net.Listen("tcp", "192.0.2.1:1"); return err }))
	defer listener.Close()
	require.NoError(t, netns.Do(netns.PathOf(pid), func() error {
		conn, err := net.DialTimeout("tcp", "192.0.2.1:1", time.Minute)
		if err == nil {
			conn.Close()
		}
		return err
	}))
	assert.ErrorContains(t, bridge.IP(t.Context(), "link set nothing up"), "nothing")
}
