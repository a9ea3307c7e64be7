package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"firstlight.dev/firstlight/assets/site"
)

// scenarios run each in a network namespace of its own, with veths as NICs, their far ends
// in a second namespace that plays the rack, and dnsmasq as the DHCP server of strangers.
var scenarios = map[string]func(*rack){
	"no-nic":               noNIC,
	"no-link-then-link":    noLinkThenLink,
	"one-nic-silent":       oneNICSilent,
	"one-nic-foreign":      oneNICForeign,
	"three-nics-then-swap": threeNICsThenSwap,
	"foreign-comes-later":  foreignComesLater,
	"site-is-edited":       siteIsEdited,
	"vlan-by-site":         vlanBySite,
	"bond-by-site":         bondBySite,
	"links-torn-down":      linksTornDown,
	"three-gateways":       threeGateways,
	"server-falls-silent":  serverFallsSilent,
	"static-by-ipv6":       staticByIPv6,
}

func TestNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
	for name := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A process of its own: a namespace belongs to threads, and Go moves goroutines.
			cmd := exec.Command("unshare", "-n", "-u", "-m", os.Args[0], "-test.run=^TestScenario$", "-test.v")
			cmd.Env = append(os.Environ(), "FIRSTLIGHT_SCENARIO="+name)
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			require.NoError(t, err)
			if strings.Contains(string(out), "--- SKIP: TestScenario") {
				t.Skip("the scenario says why")
			}
			require.Contains(t, string(out), "--- PASS: TestScenario")
		})
	}
}

func TestScenario(t *testing.T) {
	run, ok := scenarios[os.Getenv("FIRSTLIGHT_SCENARIO")]
	if !ok {
		t.Skip("run by TestNamespaces in a namespace of its own")
	}
	far := exec.Command("unshare", "-n", "sleep", "600")
	require.NoError(t, far.Start())
	t.Cleanup(func() { _ = far.Process.Kill(); _ = far.Wait() })
	r := &rack{t: t, far: far.Process.Pid, root: t.TempDir()}
	require.Eventually(t, func() bool { // until the far side has left our namespace
		a, _ := os.Readlink("/proc/self/ns/net")
		b, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", r.far))
		return err == nil && a != b
	}, time.Minute, 10*time.Millisecond)
	r.ip("link set lo up")
	run(r)
}

// rack is what the host is attached to.
type rack struct {
	t    *testing.T
	far  int    // process that holds the far side's namespace
	root string // the host's files, kept over boots
}

func (r *rack) ip(args string) {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(r.t, err, "ip %s: %s", args, out)
}

func (r *rack) farIP(args string) {
	out, err := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(r.far), "-n", "ip"}, strings.Fields(args)...)...).CombinedOutput()
	require.NoError(r.t, err, "far ip %s: %s", args, out)
}

// plug adds NIC ethN, connected to swN on the far side.
func (r *rack) plug(n int) {
	r.ip(fmt.Sprintf("link add eth%d address 52:54:00:00:00:%02x type veth peer name sw%d netns %d", n, n, n, r.far))
	r.farIP(fmt.Sprintf("link set sw%d up", n))
}

// foreign starts a DHCP server of strangers on swN and returns how to end it.
func (r *rack) foreign(n int) (end func()) {
	r.farIP(fmt.Sprintf("addr add 10.9.%d.1/24 dev sw%d", n, n))
	cmd := exec.Command("nsenter", "-t", fmt.Sprint(r.far), "-n", "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
		"--dhcp-authoritative", "--log-dhcp", "--dhcp-leasefile="+fmt.Sprintf("%s/leases%d", r.t.TempDir(), n), "--pid-file=",
		fmt.Sprintf("--interface=sw%d", n), fmt.Sprintf("--dhcp-range=10.9.%d.50,10.9.%d.99,255.255.255.0,5m", n, n), fmt.Sprintf("--dhcp-option=6,10.9.%d.1", n))
	log, err := os.CreateTemp(r.t.TempDir(), "dnsmasq")
	require.NoError(r.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(r.t, cmd.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	r.t.Cleanup(end)
	require.Eventually(r.t, func() bool {
		b, _ := os.ReadFile(log.Name())
		return strings.Contains(string(b), "DHCP, IP range")
	}, time.Minute, 20*time.Millisecond, "dnsmasq did not start")
	return end
}

// boot is a start of the daemon: a host that remembers nothing but its files.
func (r *rack) boot(text string) *Host {
	h := &Host{Log: slog.New(slog.NewTextHandler(os.Stdout, nil)), Root: r.root}
	s, problems := site.Load("site.yaml", []byte(text))
	require.NoError(r.t, problems.Err())
	h.site = s
	r.settle(h)
	return h
}

// settle runs the stage until its fact holds.
func (r *rack) settle(h *Host) {
	var err error
	for range 20 {
		if err = h.LinksDone(r.t.Context()); err == nil {
			return
		}
		if err = h.LinksDo(r.t.Context(), func(string) {}); err != nil {
			r.t.Log(err)
		}
	}
	require.NoError(r.t, err)
}

// wires tells which NIC is in which bridge, by MAC's last byte: "provisioning=01".
func (r *rack) wires() string {
	links, err := netlink.LinkList()
	require.NoError(r.t, err)
	var words []string
	for _, m := range links {
		for _, l := range links {
			if l.Attrs().MasterIndex == m.Attrs().Index {
				words = append(words, m.Attrs().Name+"="+l.Attrs().HardwareAddr.String()[15:])
			}
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (r *rack) hasAddress(link, prefix string) bool {
	l, err := net.InterfaceByName(link)
	if err != nil {
		return false
	}
	addrs, _ := l.Addrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), prefix) })
}

// leases runs the DHCP client until the test ends.
func (r *rack) leases(h *Host) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- h.MaintainLeases(ctx) }()
	r.t.Cleanup(func() { cancel(); assert.NoError(r.t, <-ended) })
}

func noNIC(r *rack) {
	h := r.boot("")
	assert.True(r.t, r.hasAddress(Provisioning, "172.22.0.1/24"), "no address without a NIC")
	assert.Empty(r.t, r.wires())
	assert.Len(r.t, h.Addresses(), 1)
}

// staticByIPv6: a network whose address and router are of IPv6 comes up without a cable, and what the kernel or another
// router adds to it stays.
func staticByIPv6(r *rack) {
	const text = "networks: {baremetal: {interface: eth1, cidr: '%s', address: '%s', gateway: '%s'}}"
	r.plug(1)
	r.farIP("link set sw1 down")
	h := r.boot(fmt.Sprintf(text, "fd00:9::/64", "fd00:9::7", "fe80::1"))
	assert.True(r.t, r.hasAddress(Baremetal, "fd00:9::7/64"), "no address without a link")
	l, err := net.Listen("tcp", "[fd00:9::7]:0") // not while the kernel looks for another machine with the address
	require.NoError(r.t, err)
	require.NoError(r.t, l.Close())
	routes := func() string {
		out, err := exec.Command("sh", "-c", "ip -6 route show default; ip -4 route show default").CombinedOutput()
		require.NoError(r.t, err)
		return string(out)
	}
	assert.Contains(r.t, routes(), "default via fe80::1 dev baremetal")
	addresses := func() []string {
		for _, a := range h.Addresses() {
			if a.Role == Baremetal {
				return a.Addresses
			}
		}
		return nil
	}
	assert.Equal(r.t, []string{"fd00:9::7/64"}, addresses())

	r.ip("addr add fd00:8::1/64 dev baremetal") // not by us
	r.farIP("link set sw1 up")
	require.Eventually(r.t, func() bool { return r.hasAddress(Baremetal, "fe80:") }, time.Minute, 20*time.Millisecond)
	r.settle(h)
	assert.True(r.t, r.hasAddress(Baremetal, "fd00:8::1/64"), "an address that is not ours was removed")
	assert.True(r.t, r.hasAddress(Baremetal, "fe80:"))
	assert.Equal(r.t, []string{"fd00:9::7/64"}, addresses())

	r.ip("addr del fd00:9::7/64 dev baremetal")
	require.Error(r.t, h.LinksDone(r.t.Context()), "a missing address was not noticed")
	r.settle(h)
	assert.True(r.t, r.hasAddress(Baremetal, "fd00:9::7/64"))

	h = r.boot(fmt.Sprintf(text, "fd00:9::/64", "fd00:9::8", "fd00:9::1"))
	assert.False(r.t, r.hasAddress(Baremetal, "fd00:9::7/64"), "the last address stays")
	assert.Contains(r.t, routes(), "default via fd00:9::1 dev baremetal")
	assert.NotContains(r.t, routes(), "fe80::1")
	h = r.boot(fmt.Sprintf(text, "10.9.0.0/24", "10.9.0.7", "10.9.0.1"))
	assert.Equal(r.t, []string{"10.9.0.7/24"}, addresses())
	assert.Contains(r.t, routes(), "default via 10.9.0.1 dev baremetal")
	assert.NotContains(r.t, routes(), "fd00:9::1", "the route of the other family stays")
}

func noLinkThenLink(r *rack) {
	r.plug(1)
	r.farIP("link set sw1 down")
	h := r.boot("")
	assert.True(r.t, r.hasAddress(Provisioning, "172.22.0.1/24"), "no address without a link")
	assert.Empty(r.t, r.wires(), "decided without a link")
	r.farIP("link set sw1 up")
	require.Eventually(r.t, func() bool { return h.LinksDone(r.t.Context()) != nil }, time.Minute, 20*time.Millisecond, "the link was not noticed")
	r.settle(h)
	assert.Equal(r.t, "provisioning=01", r.wires())
}

func oneNICSilent(r *rack) {
	r.plug(1)
	r.boot("")
	assert.Equal(r.t, "provisioning=01", r.wires())
}

func oneNICForeign(r *rack) {
	r.plug(1)
	r.foreign(1)
	h := r.boot("")
	assert.Equal(r.t, "baremetal=01", r.wires())
	assert.True(r.t, r.hasAddress(Provisioning, "172.22.0.1/24"))
	r.leases(h)
	require.Eventually(r.t, func() bool { return r.hasAddress(Baremetal, "10.9.1.") }, time.Minute, 50*time.Millisecond, "no lease")
}

func threeNICsThenSwap(r *rack) {
	for n := 1; n <= 3; n++ {
		r.plug(n)
	}
	end := r.foreign(2)
	h := r.boot("")
	assert.Equal(r.t, "baremetal=02 provisioning=01", r.wires())
	assert.Len(r.t, h.Notes(), 1, "nothing is said of the third NIC")
	r.leases(h)
	require.Eventually(r.t, func() bool { return r.hasAddress(Baremetal, "10.9.2.") }, time.Minute, 50*time.Millisecond, "no lease")
	require.Eventually(r.t, func() bool {
		b, _ := os.ReadFile(h.path("/etc/resolv.conf"))
		return strings.Contains(string(b), "nameserver 10.9.2.1")
	}, time.Minute, 50*time.Millisecond, "the lease's resolver is not used")
	// The next boot: the bridges are gone, the names swapped, the server late.
	end()
	r.ip("link del baremetal")
	r.ip("link del provisioning")
	for _, step := range []string{"eth1 down", "eth2 down", "eth1 name ethx", "eth2 name eth1", "ethx name eth2"} {
		r.ip("link set " + step)
	}
	r.boot("")
	assert.Equal(r.t, "baremetal=02 provisioning=01", r.wires(), "swapped names changed the roles")
}

func foreignComesLater(r *rack) {
	r.plug(1)
	r.boot("")
	r.foreign(1)
	r.boot("") // the daemon starts again
	assert.Equal(r.t, "provisioning=01", r.wires(), "a server that came later took the role away")
}

func siteIsEdited(r *rack) {
	r.plug(1)
	r.plug(2)
	r.boot("networks: {provisioning: {interface: eth1}, baremetal: {interface: eth2, cidr: 10.2.0.0/24, address: 10.2.0.9, gateway: 10.2.0.1}}")
	assert.Equal(r.t, "baremetal=02 provisioning=01", r.wires())
	assert.True(r.t, r.hasAddress(Baremetal, "10.2.0.9/24"))
	out, err := exec.Command("ip", "route", "show", "default").Output()
	require.NoError(r.t, err)
	assert.Contains(r.t, string(out), "via 10.2.0.1 dev baremetal")
	r.boot("networks: {provisioning: {interface: eth2, cidr: 10.5.0.0/24, address: 10.5.0.1}, bmc: {interface: eth1, cidr: 10.6.0.0/24, address: 10.6.0.1}}")
	assert.Equal(r.t, "bmc=01 provisioning=02", r.wires())
	assert.True(r.t, r.hasAddress(Provisioning, "10.5.0.1/24"))
	assert.False(r.t, r.hasAddress(Provisioning, "172.22.0.1/24"), "the old address stayed")
	assert.False(r.t, r.hasAddress(Baremetal, ""), "the old network stayed")
}

func vlanBySite(r *rack) {
	r.plug(1)
	if out, err := exec.Command("ip", "link", "add", "link", "eth1", "name", "try", "type", "vlan", "id", "9").CombinedOutput(); err != nil {
		r.t.Skipf("this kernel has no VLANs: %s", out)
	}
	r.ip("link del try")
	r.boot("networks: {provisioning: {interface: eth1}, bmc: {interface: eth1, vlan: 40, cidr: 10.4.0.0/24, address: 10.4.0.2}}")
	assert.Equal(r.t, "bmc=01 provisioning=01", r.wires())
	assert.True(r.t, r.hasAddress(BMC, "10.4.0.2/24"))
}

func bondBySite(r *rack) {
	for n := 1; n <= 3; n++ {
		r.plug(n)
	}
	if out, err := exec.Command("ip", "link", "add", "try", "type", "bond").CombinedOutput(); err != nil {
		r.t.Skipf("this kernel has no bonds: %s", out)
	}
	r.ip("link del try")
	r.boot("networks: {provisioning: {interface: eth1}, baremetal: {bond: {interfaces: [eth2, eth3]}, cidr: 10.2.0.0/24, address: 10.2.0.9}}")
	wires := r.wires()
	assert.Equal(r.t, 2, strings.Count(wires, "bond-baremetal="), wires)
	assert.Equal(r.t, 1, strings.Count(" "+wires, " baremetal="), wires)
}

// What somebody or something breaks under the daemon is noticed and mended.
func linksTornDown(r *rack) {
	r.plug(1)
	h := r.boot("")
	for _, harm := range []string{"link del provisioning", "addr flush dev provisioning", "link set eth1 nomaster", "link set provisioning down"} {
		r.ip(harm)
		assert.Error(r.t, h.LinksDone(r.t.Context()), "not noticed: ip %s", harm)
		r.settle(h)
		assert.Equal(r.t, "provisioning=01", r.wires(), harm)
		assert.True(r.t, r.hasAddress(Provisioning, "172.22.0.1/24"), harm)
	}
}

// Every network may have its router: the owner's is the way out, and a second look finds
// nothing to change, whatever a DHCP server of the BMCs says.
func threeGateways(r *rack) {
	for n := 1; n <= 3; n++ {
		r.plug(n)
	}
	r.foreign(3)
	routers := "networks: {provisioning: {interface: eth1, cidr: 172.22.0.0/24, gateway: 172.22.0.254}, bmc: {interface: eth3}, baremetal: {interface: eth2, cidr: 10.2.0.0/24, address: 10.2.0.9"
	h := r.boot(routers + ", gateway: 10.2.0.1}}")
	same := func(wayOut string) {
		for range 2 {
			require.NoError(r.t, h.LinksDone(r.t.Context()), "the links do not stay as they were made")
			require.NoError(r.t, h.LinksDo(r.t.Context(), func(string) {}))
		}
		assert.Contains(r.t, r.routes("get 192.0.2.1"), wayOut)
	}
	same("via 10.2.0.1 dev baremetal")
	assert.Contains(r.t, r.routes("show default"), "via 172.22.0.254 dev provisioning")
	r.leases(h)
	require.Eventually(r.t, func() bool { return strings.Contains(r.routes("show default"), "via 10.9.3.1 dev bmc") }, time.Minute, 50*time.Millisecond, "no lease with a router")
	same("via 10.2.0.1 dev baremetal")
	// The owner's router is taken out of the site: its route goes, and another network's leads out.
	h = r.boot(routers + "}}")
	same("via 10.9.3.1 dev bmc")
	assert.NotContains(r.t, r.routes("show default"), "baremetal")
}

// A server that does not answer a renewal costs nothing before the lease ends.
func serverFallsSilent(r *rack) {
	r.plug(1)
	end := r.foreign(1)
	h := r.boot("")
	r.leases(h)
	lease := func() lease {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.nets.leases[Baremetal]
	}
	resolvers := func() string {
		b, _ := os.ReadFile(h.path("/etc/resolv.conf"))
		return string(b)
	}
	require.Eventually(r.t, func() bool { return strings.Contains(resolvers(), "nameserver 10.9.1.1") }, time.Minute, 50*time.Millisecond, "no lease")
	had := lease()
	end()
	renew := func(until time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		l := h.nets.leases[Baremetal]
		l.due, l.until = time.Now().Add(-time.Second), until
		h.nets.leases[Baremetal] = l
	}
	asked := func() bool { return time.Now().Before(lease().due) }
	renew(had.until)
	require.Eventually(r.t, asked, time.Minute, 20*time.Millisecond, "not renewed")
	assert.Same(r.t, had.response, lease().response, "the lease was given up")
	assert.Equal(r.t, had.server, lease().server)
	time.Sleep(2 * leaseLook) // resolv.conf is written at every look
	assert.Contains(r.t, resolvers(), "nameserver 10.9.1.1")
	// It ends.
	renew(time.Now().Add(leaseLook / 2))
	require.Eventually(r.t, func() bool { return lease().response == nil }, time.Minute, 20*time.Millisecond, "kept beyond its end")
	require.Eventually(r.t, func() bool { return !strings.Contains(resolvers(), "nameserver") }, time.Minute, 20*time.Millisecond, "its resolver is still used")
}

// routes is what ip route says.
func (r *rack) routes(args string) string {
	out, err := exec.Command("ip", append([]string{"route"}, strings.Fields(args)...)...).CombinedOutput()
	require.NoError(r.t, err, "ip route %s: %s", args, out)
	return string(out)
}
