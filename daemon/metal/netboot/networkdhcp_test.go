package netboot

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/pxe/dhcp"
)

func read(t *testing.T, text string) *site.Site {
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	return s.WithDefaults()
}

const servedBaremetal = `networks:
  provisioning: {cidr: 172.22.0.0/24}
  bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1}
  baremetal:
    interface: eno1
    mtu: 9000
    cidr: 10.10.110.0/24
    address: 10.10.110.20
    gateway: 10.10.110.1
    dns: [10.10.110.2, "2001:db8::53"]
    ntp: [ntp.example.org, 10.10.110.3]
    dhcp: {range: 10.10.110.100-10.10.110.101, lease: 10m}
`

func TestAddressesAreGivenAsTheSiteSays(t *testing.T) {
	a := NetworkDHCP{Site: func() *site.Site { return read(t, servedBaremetal) }}
	n, asked := a.dhcpNetwork("baremetal")
	require.True(t, asked)
	c := networkDHCPConfig("baremetal", n, "/leases")
	require.NoError(t, c.Validate())
	at := netip.MustParseAddr
	assert.Equal(t, dhcp.Subnet{
		Prefix: netip.MustParsePrefix("10.10.110.0/24"), Pool: dhcp.Range{First: at("10.10.110.100"), Last: at("10.10.110.101")},
		Lease: 10 * time.Minute, Router: at("10.10.110.1"), DNS: []netip.Addr{at("10.10.110.2")}, NTP: []netip.Addr{at("10.10.110.3")}, MTU: 9000,
	}, c.Subnets[0])
	assert.Empty(t, c.HTTP, "with it boot files are offered")
	assert.Len(t, serversLike(at("10.0.0.2"), slices.Repeat([]netip.Addr{at("10.0.0.1")}, 9)), 8)
}

// TestNobodyIsAnsweredUnasked: without dhcp, and with it for another network.
func TestNobodyIsAnsweredUnasked(t *testing.T) {
	for _, text := range []string{"", servedBaremetal, "networks: {bmc: {interface: eno3, cidr: 10.30.0.0/24, address: 10.30.0.1, dhcp: {mode: none}}}"} {
		a := NetworkDHCP{Site: func() *site.Site { return read(t, text) }}
		_, asked := a.dhcpNetwork("bmc")
		assert.False(t, asked, text)
		assert.Empty(t, a.dhcpStatus("bmc").Phase, text)
	}
}

// box says which part this process plays: "" the test itself, "addresses" the server in its namespace.
const box = "FIRSTLIGHT_BOX"

func inBox(part, run string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+run+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, box+"=") }), box+"="+part)
	return cmd
}

// TestAddressesOfBox serves the site of a file in a network namespace and says how that
// stands, a line for each change.
func TestAddressesOfBox(t *testing.T) {
	if os.Getenv(box) != "addresses" {
		t.Skip("run by TestAddressesInNamespaces in a namespace")
	}
	dir := os.Getenv("FIRSTLIGHT_BOX_DIR")
	a := &NetworkDHCP{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), dir: filepath.Join(dir, "leases"), Site: func() *site.Site {
		text, err := os.ReadFile(filepath.Join(dir, "site.yaml"))
		require.NoError(t, err)
		return read(t, string(text))
	}}
	for _, role := range servedRoles() {
		go func() { fmt.Println(role, a.Serve(t.Context(), role, func() bool { return true })) }()
	}
	for {
		d := status.Document{Addresses: []status.Address{{Role: "provisioning"}, {Role: "bmc"}, {Role: "baremetal"}}}
		a.AddStatus(&d)
		text, err := json.Marshal(d)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status.new"), text, 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "status.new"), filepath.Join(dir, "status")))
		time.Sleep(100 * time.Millisecond)
	}
}

const leaseScript = `#!/bin/sh
[ $1 = bound ] && echo "bound ip=$ip mask=$mask router=$router dns=$dns ntp=$ntpsrv mtu=$mtu lease=$lease next=$siaddr boot=$boot_file tftp=$tftp"
exit 0
`

// TestAddressesInNamespaces gives addresses to udhcpc on the network that the site names,
// and on no other; falls silent beside dnsmasq; and ends when the site asks no longer.
func TestAddressesInNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and namespaces: set FIRSTLIGHT_TEST=ns")
	}
	dir := t.TempDir()
	tag := rand.Text()[:8] // a run that was killed leaves its namespaces
	server, client := "given-s-"+tag, "given-c-"+tag
	run := func(name string, args ...string) string {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // ends a hung run
		defer cancel()
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
		return string(out)
	}
	for _, ns := range []string{server, client} {
		run("ip", "netns", "add", ns)
		t.Cleanup(func() { run("ip", "netns", "del", ns) })
	}
	for role, addr := range map[string]string{"provisioning": "172.22.0.1/24", "bmc": "10.30.0.1/24", "baremetal": "10.10.110.20/24"} {
		run("ip", "-n", server, "link", "add", role, "type", "veth", "peer", "name", role, "netns", client)
		run("ip", "-n", server, "addr", "add", addr, "dev", role)
		run("ip", "-n", server, "link", "set", role, "up")
		run("ip", "-n", client, "link", "set", role, "up")
	}
	writeSite := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte(text), 0o600))
		require.NoError(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "site.yaml")))
	}
	writeSite(servedBaremetal)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(leaseScript), 0o755))
	inner := inBox("addresses", "TestAddressesOfBox")
	daemon := exec.Command("ip", append([]string{"netns", "exec", server}, inner.Args...)...)
	daemon.Env = append(inner.Env, "FIRSTLIGHT_BOX_DIR="+dir)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer log.Close()
	daemon.Stdout, daemon.Stderr = log, log
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", text)
		}
	})
	becomes := func(phase string) status.Document {
		t.Helper()
		var d status.Document
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "status"))
			d = status.Document{}
			return err == nil && json.Unmarshal(text, &d) == nil && d.Addresses[2].DHCP == phase
		}, time.Minute, 50*time.Millisecond, "%q", phase)
		assert.Empty(t, d.Addresses[0].DHCP+d.Addresses[1].DHCP, "a network is served that the site does not name")
		return d
	}
	ask := func(dev string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "ip", "netns", "exec", client, "busybox", "udhcpc", "-i", dev, "-f", "-n", "-q", "-t", "3", "-T", "2",
			"-V", "PXEClient:Arch:00007:UNDI:003016", "-x", "0x5d:0007", "-O", "mtu", "-O", "ntpsrv", "-O", "bootfile", "-O", "tftp", "-s", filepath.Join(dir, "script")).CombinedOutput()
		return string(out), err
	}

	assert.Empty(t, becomes("serving").Notes)
	var out string
	require.Eventually(t, func() bool {
		text, err := ask("baremetal")
		out = text
		return err == nil
	}, 2*time.Minute, 50*time.Millisecond, "no answer")
	assert.Contains(t, out, "bound ip=10.10.110.100 mask=24 router=10.10.110.1 dns=10.10.110.2 ntp=10.10.110.3 mtu=9000 lease=600 next= boot= tftp=\n")
	for _, dev := range []string{"provisioning", "bmc"} {
		out, err := ask(dev)
		assert.Error(t, err, "answered on %s: %s", dev, out)
	}
	assert.FileExists(t, filepath.Join(dir, "leases", "baremetal", "leases.journal"))
	assert.NoFileExists(t, filepath.Join(dir, "leases", "leases.journal"))

	// Another server, where the cable leads now.
	run("ip", "-n", client, "link", "set", "baremetal", "down")
	run("ip", "-n", client, "addr", "add", "10.10.110.250/24", "dev", "baremetal")
	run("ip", "-n", client, "link", "set", "baremetal", "up")
	foreign := exec.Command("ip", "netns", "exec", client, "dnsmasq", "-C", "/dev/null", "-k", "-p", "0", "-i", "baremetal", "--no-ping",
		"--dhcp-range=10.10.110.200,10.10.110.210,1h", "--dhcp-leasefile="+filepath.Join(dir, "foreign"), "--pid-file="+filepath.Join(dir, "pid"), "-u", "root")
	require.NoError(t, foreign.Start())
	end := sync.OnceFunc(func() {
		_ = foreign.Process.Kill()
		_ = foreign.Wait()
	})
	t.Cleanup(end)
	silent := becomes("silent")
	require.Len(t, silent.Notes, 1)
	assert.Contains(t, silent.Notes[0], "DHCP server 10.10.110.250")
	assert.Contains(t, silent.Notes[0], "answers on baremetal: staying silent; switch it off or unplug it")
	out, err = ask("baremetal") // which the other one, on the same end of the cable, does not hear
	assert.Error(t, err, "answered beside another server: %s", out)
	end()
	becomes("serving")

	writeSite(strings.Replace(servedBaremetal, "{range: 10.10.110.100-10.10.110.101, lease: 10m}", "{mode: none}", 1))
	becomes("")
	assert.Eventually(t, func() bool {
		_, err := ask("baremetal")
		return err != nil
	}, 2*time.Minute, 50*time.Millisecond, "answered though the site asks no longer")
}
