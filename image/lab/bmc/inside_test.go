package bmc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestABMCTellsItsAddress, which the simulator is told by a program; with an interface for the system inside, at which
// QEMU is connected, its buttons are as ever.
func TestABMCTellsItsAddress(t *testing.T) {
	for _, program := range []string{Program, "ipmitool", "curl", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}
	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	machine := &fake{}
	b, err := Start(Config{
		Name: "node1", Dir: t.TempDir(), User: "admin", Password: "secret", Front: front, Inside: netip.MustParseAddr("172.23.0.101"),
	}, machine)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	ipmitool := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		port := strconv.Itoa(front.LocalAddr().(*net.UDPAddr).Port)
		out, err := exec.CommandContext(ctx, "ipmitool", append([]string{"-C", "3", "-I", "lanplus", "-H", "127.0.0.1", "-p", port,
			"-U", "admin", "-P", "secret"}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}

	args := append([]string{"-machine", "q35", "-accel", "tcg", "-m", "64", "-display", "none", "-nodefaults", "-S"}, b.Args()...)
	qemu := exec.CommandContext(t.Context(), "qemu-system-x86_64", args...)
	require.NoError(t, qemu.Start())
	ended := make(chan error, 1)
	go func() { ended <- qemu.Wait() }()
	t.Cleanup(func() {
		_ = qemu.Process.Kill()
		<-ended
	})

	assert.Regexp(t, `IP Address +: 172\.23\.0\.101`, ipmitool("lan", "print", "1"))
	require.NoError(t, b.SetInside(netip.MustParseAddr("172.23.0.7")))
	assert.Regexp(t, `IP Address +: 172\.23\.0\.7`, ipmitool("lan", "print", "1"), "it leased another address")
	ipmitool("power", "on")
	ipmitool("chassis", "bootdev", "pxe")
	ipmitool("power", "off")
	assert.Equal(t, []string{"on none", "off"}, machine.seen())
	assert.Equal(t, BootNetwork, b.Device())
	require.Eventually(t, func() bool { return len(ended) > 0 || isConnected(t, b.inside) }, 5*time.Minute, 100*time.Millisecond, "QEMU does not connect")
	assert.Empty(t, ended, "QEMU has ended")
}

// isConnected tells whether a connection to this port of loopback is established (proc_net_tcp(5)).
func isConnected(t *testing.T, port int) bool {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	return regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: 0100007F:%04X 0100007F:[0-9A-F]{4} 01 `, port)).Match(table)
}
