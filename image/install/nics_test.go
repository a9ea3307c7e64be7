package install

import (
	"net"
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
	inUse, err := netlink.LinkByName("ens2")
	require.NoError(t, err)
	address, err := netlink.ParseAddr("192.0.2.9/24")
	require.NoError(t, err)
	require.NoError(t, netlink.AddrAdd(inUse, address))
	assert.ErrorContains(t, lend(dir, nics, appliance.Process.Pid), "this machine uses an interface that is the appliance's, "+
		"which does not start: ens2 has 192.0.2.9/24")
	assert.NoFileExists(t, filepath.Join(dir, lentFile))
	for _, n := range nics {
		_, err := findNIC(n)
		assert.NoError(t, err, "it was taken")
	}
	require.NoError(t, netlink.AddrDel(inUse, address))

	require.NoError(t, lend(dir, nics, appliance.Process.Pid))
	_, err = findNIC(nics[0])
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

// TestAnotherInterfaceOfTheNameIsLeftAlone: the one that was lent was pulled, and the kernel gave its name to another.
func TestAnotherInterfaceOfTheNameIsLeftAlone(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	link := func(hardware net.HardwareAddr) netlink.Link {
		return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "ens1", HardwareAddr: mac, PermHWAddr: hardware}}
	}
	lent := lentNIC{Name: "ens1", MAC: mac.String(), Hardware: "02:00:00:00:00:07"}
	assert.True(t, lent.isAt(link(net.HardwareAddr{2, 0, 0, 0, 0, 7})), "a bond gave it another MAC")
	assert.False(t, lent.isAt(link(mac)))
	assert.False(t, lent.isAt(link(nil)))
	assert.True(t, lentNIC{Name: "ens1", MAC: mac.String()}.isAt(link(nil)), "a veth has no MAC of its own")
}
