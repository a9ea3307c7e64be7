package sriov

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
)

func startNamespace(t *testing.T) int {
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestInterfacesMoveBetweenNamespaces: what the plugin does with interfaces, on one end of a veth pair in the place of a
// virtual function's.
func TestInterfacesMoveBetweenNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Geteuid() != 0 {
		t.Skip("makes network namespaces; set FIRSTLIGHT_TEST=ns, as root")
	}
	node, pod := startNamespace(t), netns.PathOf(startNamespace(t))
	require.NoError(t, netns.IP(t.Context(), node, "link add vf0 type veth peer name wire", "link set wire up"))

	k := linux{}
	assert.True(t, k.HasNamespace(pod))
	assert.False(t, k.HasNamespace(t.TempDir()))
	require.NoError(t, netns.Do(netns.PathOf(node), func() error {
		before, err := k.Interface("", "vf0")
		require.NoError(t, err)
		require.NoError(t, k.SetInterface("", "vf0", Interface{MAC: "02:00:00:00:00:07", MTU: 1400}))
		require.NoError(t, k.Move("", "vf0", pod, "net1", "vfmoving"))
		_, err = k.Interface("", "vf0")
		assert.Error(t, err)

		_, anywhere, _ := net.ParseCIDR("0.0.0.0/0")
		_, far, _ := net.ParseCIDR("198.51.100.0/24")
		address := &net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)}
		a := Addresses{
			Networks: []*net.IPNet{address, {IP: net.ParseIP("2001:db8::7"), Mask: net.CIDRMask(64, 128)}},
			Routes:   []Route{{To: anywhere, Gateway: net.IPv4(192, 0, 2, 1)}, {To: far}},
		}
		require.NoError(t, k.Configure(pod, "net1", a))
		require.NoError(t, k.Configure(pod, "net1", a), "again")
		now, err := k.Interface(pod, "net1")
		require.NoError(t, err)
		assert.Equal(t, Interface{MAC: "02:00:00:00:00:07", MTU: 1400}, now)
		require.NoError(t, netns.Do(pod, func() error {
			out, err := exec.CommandContext(t.Context(), "ip", "-br", "address", "show", "net1").CombinedOutput()
			assert.Regexp(t, `UP.*192\.0\.2\.7/24.*2001:db8::7/64`, string(out))
			if err != nil {
				return err
			}
			out, err = exec.CommandContext(t.Context(), "ip", "route").CombinedOutput()
			assert.Contains(t, string(out), "default via 192.0.2.1 dev net1")
			assert.Contains(t, string(out), "198.51.100.0/24 dev net1 scope link")
			return err
		}))

		require.NoError(t, k.Move(pod, "net1", "", "vf0", "vfmoving"))
		require.NoError(t, k.SetInterface("", "vf0", before))
		after, err := k.Interface("", "vf0")
		require.NoError(t, err)
		assert.Equal(t, before, after)
		require.NoError(t, k.Rename("vf0", "vf1"))
		assert.ErrorContains(t, k.Rename("vf0", "vf1"), "find interface vf0: ")
		assert.ErrorContains(t, k.Move("", "vf1", "/nowhere", "x", "y"), "open the network namespace: ")
		_, err = k.Settings("vf1", 0)
		assert.EqualError(t, err, "physical function vf1 has no virtual function 0")
		return nil
	}))
}
