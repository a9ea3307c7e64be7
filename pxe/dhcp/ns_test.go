package dhcp

import (
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lab is a server namespace and a client namespace with a cable between them.
type lab struct {
	t      *testing.T
	server string // namespace names; in the first the interface is srv0, in the second cli0
	client string
}

// newLab needs root and says so by skipping unless it was asked for.
func newLab(t *testing.T) lab {
	t.Helper()
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
	tag := rand.Text()[:8] // a run that was killed leaves its namespaces
	l := lab{t: t, server: "dhcp-s-" + tag, client: "dhcp-c-" + tag}
	for _, ns := range []string{l.server, l.client} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	run(t, "ip", "-n", l.server, "link", "add", "srv0", "type", "veth", "peer", "name", "cli0", "netns", l.client)
	l.up("srv0", "172.22.0.1/16")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "up")
	return l
}

// up gives an interface of the server namespace an address.
func (l lab) up(dev, addr string) {
	run(l.t, "ip", "-n", l.server, "addr", "add", addr, "dev", dev)
	run(l.t, "ip", "-n", l.server, "link", "set", dev, "up")
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

// in runs a command in a namespace and returns its output whatever the exit code.
func in(t *testing.T, ns, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, name}, args...)...).CombinedOutput()
	return string(out), err
}

// config is testConfig with a fast probe and directories of this test.
func (l lab) config(change func(*Config)) Config {
	c := testConfig()
	c.Interface, c.LeaseDir = "srv0", l.t.TempDir()
	c.ProbeWait, c.ProbeEvery = 1500*time.Millisecond, 20*time.Second
	if change != nil {
		change(&c)
	}
	return c
}

func testConfig() Config {
	a := netip.MustParseAddr
	return Config{
		Interface: "srv0", Server: a("172.22.0.1"), HTTP: "http://172.22.0.1:8080", LeaseDir: "/nonexistent",
		Subnets: []Subnet{{
			Prefix: netip.MustParsePrefix("172.22.0.0/16"), Pool: Range{First: a("172.22.1.1"), Last: a("172.22.1.50")},
			Known: Range{First: a("172.22.2.1"), Last: a("172.22.2.50")}, Lease: time.Hour,
			DNS: []netip.Addr{a("172.22.0.1")}, NTP: []netip.Addr{a("172.22.0.1")}, Domain: "rack.example", MTU: 1500,
			Routes: []Route{{Dest: netip.MustParsePrefix("10.9.0.0/16"), Via: a("172.22.0.254")}},
		}, {
			Prefix: netip.MustParsePrefix("10.20.0.0/24"), Pool: Range{First: a("10.20.0.100"), Last: a("10.20.0.120")}, Router: a("10.20.0.1"),
			Routes: []Route{{Dest: netip.MustParsePrefix("10.9.0.0/16"), Via: a("10.20.0.254")}},
		}},
		Reservations: []Reservation{
			{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}, Addr: a("172.22.0.11"), Hostname: "node-1"},
			{MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}, Hostname: "node-2"},
		},
	}
}
