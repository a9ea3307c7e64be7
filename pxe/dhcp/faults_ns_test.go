package dhcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withAddress gives the client namespace the address that relays have here.
func (l lab) withAddress() {
	run(l.t, "ip", "-n", l.client, "addr", "add", "172.22.0.2/16", "dev", "cli0")
}

func TestFault02MalformedOnTheWire(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	good := packet(stranger, dhcpv4.MessageTypeDiscover).ToBytes()
	change := func(at int, b ...byte) wirePacket {
		bad := bytes.Clone(good)
		copy(bad[at:], b)
		return wirePacket{port: PortServer, data: bad}
	}
	bad := []wirePacket{
		{port: PortServer, data: good[:100]}, {port: PortServer, data: good[:240]}, {port: PortServer}, {port: PortPXE, data: good[:236]},
		change(2, 0), change(2, 16), change(2, 255), // hlen
		change(236, 1, 2, 3, 4),      // cookie
		change(240, 53, 255),         // option overrun
		change(0, 2),                 // a reply
		change(28, 1, 0, 0, 0, 0, 0), // multicast chaddr
		{port: PortServer, data: append(bytes.Clone(good), make([]byte, 60000)...)},
	}
	for i := range bad {
		bad[i].maybe = true
	}
	replies := exchangeAll(t, l, append(bad, relayed(packet(stranger, dhcpv4.MessageTypeDiscover)))...)
	for i, r := range replies[:len(bad)] {
		assert.Nil(t, r, "packet %d was answered", i)
	}
	require.NotNil(t, replies[len(bad)], "not served afterwards:\n%s", p.output())
	assert.GreaterOrEqual(t, p.count("refuse malformed"), len(bad)-1) // an empty datagram may be lost
	assert.Zero(t, p.count("panic"))
}

func TestFault03PoolExhausted(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	_, _ = in(t, l.client, "perfdhcp", "-4", "-l", "cli0", "-r", "1000", "-R", "5000", "-n", "5000", "-W", "500000", "172.22.0.1") // fails: most get nothing
	p.waitFor("refuse pool-empty")
	run(t, "ip", "-n", l.client, "addr", "flush", "dev", "cli0")
	for mac, addr := range map[string]string{known: "172.22.0.11", unpinned: "172.22.2."} {
		run(t, "ip", "-n", l.client, "link", "set", "cli0", "address", mac)
		out, err := udhcpc(t, l)
		require.NoError(t, err, "%s is known and has no room:\n%s", mac, out)
		assert.Contains(t, out, "bound ip="+addr)
	}
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "address", stranger)
	out, err := udhcpc(t, l, "-t", "2")
	require.Error(t, err, out)
}

// dnsmasq is a foreign server in the client's namespace.
func foreignServer(t *testing.T, l lab) (stop func()) {
	t.Helper()
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	run(t, "ip", "netns", "exec", l.client, "dnsmasq", "-C", "/dev/null", "-p", "0", "-i", "cli0", "--no-ping", "--dhcp-range=172.22.100.1,172.22.100.99,1h",
		"--dhcp-leasefile="+filepath.Join(dir, "leases"), "--pid-file="+pid, "-u", "root")
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			id, err := os.ReadFile(pid)
			require.NoError(t, err)
			run(t, "kill", strings.TrimSpace(string(id)))
		}
	}
	t.Cleanup(stop)
	return stop
}

func TestFault04ForeignServer(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.250/16", "dev", "cli0")
	stop := foreignServer(t, l)
	ifi := run(t, "ip", "-n", l.client, "-o", "link", "show", "cli0")
	mac := strings.Fields(ifi[strings.Index(ifi, "link/ether")+10:])[0]
	p := start(t, l.server, l.config(func(c *Config) { c.ProbeEvery = 8 * time.Second }))
	p.waitFor(fmt.Sprintf("status silent: DHCP server 172.22.0.250 (MAC %s) answers on srv0", mac))
	assert.Zero(t, p.count("status serving"), "served before it had looked")
	stop()
	p.waitFor("status serving")
	foreignServer(t, l) // another one, later
	require.Eventually(t, func() bool { return p.count("status silent") == 2 }, 90*time.Second, 50*time.Millisecond)
}

func TestFault04ForeignServerProxy(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.250/16", "dev", "cli0")
	foreignServer(t, l)
	p := start(t, l.server, l.config(func(c *Config) { c.Foreign = ForeignProxy }))
	p.waitFor("status proxy: DHCP server 172.22.0.250")
}

// TestFault04ForeignServerIgnored: on a network that is ours alone we serve on, and say who else answers.
func TestFault04ForeignServerIgnored(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.250/16", "dev", "cli0")
	stop := foreignServer(t, l)
	p := start(t, l.server, l.config(func(c *Config) { c.Foreign = ForeignIgnoreUnknown }))
	p.waitFor("status serving: DHCP server 172.22.0.250")
	stop() // it has the port that relays send from
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.2/16", "dev", "cli0")
	require.NotNil(t, exchangeAll(t, l, relayed(packet(known, dhcpv4.MessageTypeDiscover)))[0])
	assert.Zero(t, p.count("status silent"))
}

func TestFault05OtherInterface(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.server, "link", "add", "srv1", "type", "veth", "peer", "name", "cli1", "netns", l.client)
	l.up("srv1", "172.23.0.1/16")
	run(t, "ip", "-n", l.client, "link", "set", "cli1", "address", "52:54:00:00:00:05")
	run(t, "ip", "-n", l.client, "link", "set", "cli1", "up")
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	out, err := in(t, l.client, "busybox", "udhcpc", "-i", "cli1", "-f", "-n", "-q", "-t", "3", "-T", "1", "-s", script(t))
	require.Error(t, err, out)
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "address", stranger)
	out, err = udhcpc(t, l)
	require.NoError(t, err, out)
	assert.Zero(t, p.count("52:54:00:00:00:05"), "heard another interface:\n%s", p.output())
}

func TestFault06TwoAppliances(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.3/16", "dev", "cli0")
	second := func(c *Config) { c.Interface, c.Server = "cli0", netip.MustParseAddr("172.22.0.3") }
	a := start(t, l.server, l.config(nil))
	a.waitFor("status serving")
	b := start(t, l.client, l.config(second))
	b.waitFor("status silent: another Firstlight appliance 172.22.0.1")
	a.stop()
	b.waitFor("status serving") // it takes over
}

func TestFault06TwoAppliancesAtOnce(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.3/16", "dev", "cli0")
	fast := func(c *Config) { c.ProbeEvery = 3 * time.Second }
	second := func(c *Config) { c.Interface, c.Server = "cli0", netip.MustParseAddr("172.22.0.3"); fast(c) }
	a, b := start(t, l.server, l.config(fast)), start(t, l.client, l.config(second))
	last := func(p *process) string {
		out := p.output()
		i := strings.LastIndex(out, "status ")
		return strings.SplitN(out[max(0, i):], ":", 2)[0]
	}
	require.Eventually(t, func() bool {
		x, y := last(a), last(b)
		return x == "status serving" && y == "status silent" || x == "status silent" && y == "status serving"
	}, 90*time.Second, 100*time.Millisecond, "%s\n---\n%s", lastLines{a}, lastLines{b})
}

func TestFault07AddressInUse(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.1.1/16", "dev", "cli0") // somebody set it by hand
	p := start(t, l.server, l.config(func(c *Config) { c.ConflictWait = 300 * time.Millisecond }))
	p.waitFor("status serving")
	d := packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("PXEClient", 7))
	r := exchangeAll(t, l, wirePacket{port: PortServer, data: d.ToBytes(), maybe: true}) // the reply goes to a machine that is not there
	require.Nil(t, r[0])
	p.waitFor("172.22.1.1 is in use by")
	p.waitFor("offer  mac=" + stranger + " addr=172.22.1.2")

	run(t, "ip", "-n", l.client, "addr", "add", "172.22.1.2/16", "dev", "cli0") // somebody sets that one, too
	request := packet(stranger, dhcpv4.MessageTypeRequest, serverID("172.22.0.1"), want("172.22.1.2"), firmwareOf("PXEClient", 7))
	decline := relayed(packet(stranger, dhcpv4.MessageTypeDecline, want("172.22.1.2")))
	decline.maybe = true
	again := packet(stranger, dhcpv4.MessageTypeDiscover)
	replies := exchangeAll(t, l, relayed(request), decline)
	require.NotNil(t, replies[0])
	assert.Nil(t, replies[1])
	p.waitFor("found 172.22.1.2 in use by another machine")
	replies = exchangeAll(t, l, relayed(again))
	require.NotNil(t, replies[0])
	assert.Equal(t, "172.22.1.3", replies[0].YourIPAddr.String(), "the declined address was offered again")
}

// TestFault07DeclinesTakeNothing: somebody asks and declines in a node's name and in those of made-up machines, until
// no address should be left. Nobody else has those addresses, so nothing is put aside.
func TestFault07DeclinesTakeNothing(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	p := start(t, l.server, l.config(func(c *Config) {
		c.Subnets[0].Pool = Range{First: netip.MustParseAddr("172.22.1.1"), Last: netip.MustParseAddr("172.22.1.6")}
		c.Subnets[0].Known = Range{First: netip.MustParseAddr("172.22.2.1"), Last: netip.MustParseAddr("172.22.2.6")}
	}))
	p.waitFor("status serving")
	for n := range 45 {
		mac := []string{known, unpinned, fmt.Sprintf("02:00:00:00:00:%02x", n)}[n%3]
		discover := relayed(packet(mac, dhcpv4.MessageTypeDiscover))
		discover.maybe = true
		offer := exchangeAll(t, l, discover)[0]
		if offer == nil {
			continue // there is none left to decline
		}
		decline := relayed(packet(mac, dhcpv4.MessageTypeDecline, want(offer.YourIPAddr.String())))
		decline.unanswered = true
		exchangeAll(t, l, decline)
	}
	for _, mac := range []string{known, unpinned, stranger} {
		offer := exchangeAll(t, l, relayed(packet(mac, dhcpv4.MessageTypeDiscover)))[0]
		require.NotNil(t, offer, "%s gets no address:\n%s", mac, lastLines{p})
	}
	p.waitFor("refuse not-in-use mac=" + unpinned)
	p.waitFor("refuse decline-limit mac=" + unpinned)
	assert.Zero(t, p.count("decline  mac="), "an address was put aside that nobody has")
}

func TestFault07DuplicateMAC(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	first := packet(stranger, dhcpv4.MessageTypeRequest, uses("172.22.1.7"), firmwareOf("PXEClient", 7))
	second := packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("PXEClient", 7))
	second.Options[97] = append([]byte{0}, bytes.Repeat([]byte{7}, 16)...)
	replies := exchangeAll(t, l, relayed(first), relayed(second))
	require.NotNil(t, replies[0])
	p.waitFor("two machines use one MAC")
}

func TestFault10RelayAndBootService(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	run(t, "ip", "-n", l.client, "addr", "add", "10.20.0.1/24", "dev", "cli0")
	run(t, "ip", "-n", l.server, "route", "add", "10.20.0.0/24", "dev", "srv0")
	c := l.config(nil)
	p := start(t, l.server, c)
	p.waitFor("status serving")
	_, _ = in(t, l.client, "perfdhcp", "-4", "-l", "10.20.0.1", "-r", "20", "-R", "15", "-n", "30", "172.22.0.1") // ends before its last answer
	direct := packet(stranger, dhcpv4.MessageTypeRequest, firmwareOf("PXEClient", 0), uses("172.22.0.2"))
	viaRelay := packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("HTTPClient", 16), fromRelay("10.20.0.1"))
	unknown := packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("PXEClient", 41), fromRelay("10.20.0.1"))
	replies := exchangeAll(t, l, wirePacket{port: PortPXE, data: direct.ToBytes()}, wirePacket{port: PortServer, data: viaRelay.ToBytes()}, wirePacket{port: PortServer, data: unknown.ToBytes()})
	for _, r := range replies {
		require.NotNil(t, r)
	}
	assert.Equal(t, "undionly.kpxe", replies[0].BootFileName)
	assert.True(t, replies[0].YourIPAddr.Equal(net.IPv4zero))
	assert.Equal(t, "http://172.22.0.1:8080/boot/snponly.efi", replies[1].BootFileName)
	assert.Equal(t, viaRelay.Options.Get(dhcpv4.OptionRelayAgentInformation), replies[1].Options.Get(dhcpv4.OptionRelayAgentInformation))
	assert.Empty(t, replies[2].BootFileName)
	p.stop()
	leases := leasesIn(t, c.LeaseDir)
	assert.Len(t, leases, 15)
	for _, lease := range leases {
		assert.Equal(t, "10.20.0.0/24", lease.Subnet.String(), "%v", lease.Addr)
	}
}

// TestLinkComesBack: a cable that was pulled may lead to another network now.
func TestLinkComesBack(t *testing.T) {
	l := newLab(t)
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "down")
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.250/16", "dev", "cli0")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "up")
	foreignServer(t, l)
	p.waitFor("status probing: the link of srv0 came up again")
	p.waitFor("status silent: DHCP server 172.22.0.250")
}

// TestInterfaceComesBack: a device that is removed and made again is served again.
func TestInterfaceComesBack(t *testing.T) {
	l := newLab(t)
	p := start(t, l.server, l.config(nil))
	p.waitFor("status serving")
	run(t, "ip", "-n", l.server, "link", "del", "srv0")
	p.waitFor("status broken: no DHCP on srv0")
	run(t, "ip", "-n", l.server, "link", "add", "srv0", "type", "veth", "peer", "name", "cli0", "netns", l.client)
	l.up("srv0", "172.22.0.1/16")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "up")
	require.Eventually(t, func() bool { return p.count("status serving") == 2 }, 90*time.Second, 50*time.Millisecond, "%s", lastLines{p})
	out, err := udhcpc(t, l)
	require.NoError(t, err, "%s\n%s", out, p.output())
}

// TestPortTaken: another DHCP server on this very machine is an error that is said, and
// never a status that blinks.
func TestPortTaken(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	run(t, "ip", "netns", "exec", l.server, "dnsmasq", "-C", "/dev/null", "-p", "0", "-i", "srv0", "--dhcp-range=172.22.100.1,172.22.100.99,1h",
		"--dhcp-leasefile="+filepath.Join(dir, "leases"), "--pid-file="+filepath.Join(dir, "pid"), "-u", "root")
	defer func() {
		id, err := os.ReadFile(filepath.Join(dir, "pid"))
		require.NoError(t, err)
		run(t, "kill", strings.TrimSpace(string(id)))
	}()
	p := start(t, l.server, l.config(func(c *Config) { c.ProbeEvery = time.Second }))
	p.waitFor("status broken: no DHCP on srv0: listen on srv0: bind port 67")
	time.Sleep(4 * time.Second)
	assert.Zero(t, p.count("status serving"))
	assert.Equal(t, 1, p.count("status broken"))
}
