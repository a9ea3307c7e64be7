package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolated says that this process has namespaces of its own.
const isolated = "FIRSTLIGHT_TEST_ISOLATED"

// TestAnInterfaceThatCannotReturnIsNotHeld: the kernel brings it back when nothing holds the appliance's network.
func TestAnInterfaceThatCannotReturnIsNotHeld(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") || os.Getuid() != 0 {
		t.Skip("makes namespaces: needs root and FIRSTLIGHT_TEST=ns")
	}
	if os.Getenv(isolated) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$")
		again.Env = append(os.Environ(), isolated+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
		out, err := again.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}

	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	appliance := exec.CommandContext(t.Context(), "sleep", "infinity")
	appliance.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, appliance.Start())
	addLink := func(name string) NIC {
		require.NoError(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}))
		l, err := netlink.LinkByName(name)
		require.NoError(t, err)
		return NIC{Name: name, MAC: hardwareMAC(l.Attrs())}
	}
	nics := []NIC{addLink("ens1"), addLink("ens2")}

	dir := t.TempDir()
	require.NoError(t, lend(dir, nics, appliance.Process.Pid))
	_, err := findNIC(nics[0])
	require.Error(t, err, "it is the appliance's")

	peer, err := netlink.LinkByName("ens2-peer")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetName(peer, "ens1")) // the name is taken
	assert.ErrorContains(t, giveBack(dir), "give ens1 back")
	other, err := netlink.LinkByName("ens1")
	require.NoError(t, err)
	assert.Equal(t, peer.Attrs().HardwareAddr, other.Attrs().HardwareAddr, "another interface was changed")
	_, err = findNIC(nics[1])
	assert.NoError(t, err, "the other one is back")
	assert.False(t, isMountPoint(filepath.Join(dir, networkFile)))
	assert.FileExists(t, filepath.Join(dir, lentFile), "it is tried again")

	peer, err = netlink.LinkByName("ens1")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetName(peer, "ens2-peer"))
	require.NoError(t, giveBack(dir))
	assert.NoFileExists(t, filepath.Join(dir, lentFile))
}
