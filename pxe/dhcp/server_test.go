package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/lease"
	"firstlight.dev/firstlight/pxe/metrics"
)

// newServer is a server without sockets, with its leases in a directory of the test.
func newServer(t *testing.T, d Deps) *Server {
	t.Helper()
	c := testConfig()
	c.LeaseDir = t.TempDir()
	s, err := New(c, d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// value of a counter or gauge.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

type panicking struct{}

func (panicking) Boot(context.Context, pxe.Machine) pxe.Boot { panic("policy broke") }

// TestPanicIsCounted: a panic in the policy costs one answer and no lock.
func TestPanicIsCounted(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry())
	s := newServer(t, Deps{Booter: panicking{}, Events: EventRecorder{Metrics: m}})
	s.setStatus(Status{Phase: PhaseServing})
	data := packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("PXEClient", 7)).ToBytes()
	for range 3 {
		s.handle(t.Context(), nil, data, PortServer, netip.AddrPort{})
	}
	assert.Equal(t, 3.0, value(t, m.Panics.WithLabelValues("dhcp")))
	_, ok := s.MachineAt(netip.MustParseAddr("172.22.1.1"))
	assert.False(t, ok)
}

// TestSilentSaysWhy: while silent nothing is answered, and a machine's record tells why.
func TestSilentSaysWhy(t *testing.T) {
	m, book := metrics.New(prometheus.NewRegistry()), &boottrace.Recorder{}
	s := newServer(t, Deps{Events: EventRecorder{Metrics: m, Traces: book}})
	mac, _ := net.ParseMAC("02:00:00:00:00:aa")
	s.setStatus(s.judgeProbe([]Foreign{{Server: netip.MustParseAddr("172.22.0.250"), MAC: mac, MACText: mac.String()}}))
	s.handle(t.Context(), nil, packet(stranger, dhcpv4.MessageTypeDiscover).ToBytes(), PortServer, netip.AddrPort{})
	assert.Equal(t, 1.0, value(t, m.DHCPForeign))
	assert.Equal(t, 1.0, value(t, m.DHCPRefusals.WithLabelValues("silent")))
	r, ok := book.Get(mustMAC(stranger))
	require.True(t, ok)
	assert.Equal(t, "DHCP server 172.22.0.250 (MAC 02:00:00:00:00:aa) answers on srv0: staying silent; switch it off or unplug it, service resumes automatically", r.Refused)
}

// TestSilentUntilItServes: while the network is probed, and wherever else the server does not serve, nothing is
// answered and no address is promised.
func TestSilentUntilItServes(t *testing.T) {
	for _, phase := range []Phase{PhaseProbing, PhaseSilent, PhaseBroken} {
		m := metrics.New(prometheus.NewRegistry())
		s := newServer(t, Deps{Events: EventRecorder{Metrics: m}})
		if phase != PhaseProbing { // that it begins with
			s.setStatus(Status{Phase: phase})
		}
		s.handle(t.Context(), nil, packet(stranger, dhcpv4.MessageTypeDiscover).ToBytes(), PortServer, netip.AddrPort{})

		assert.Equal(t, 1.0, value(t, m.DHCPRefusals.WithLabelValues("silent")), phase)
		assert.Zero(t, value(t, m.Panics.WithLabelValues("dhcp")), "%s: there is no connection to answer on", phase)
		mac, _ := lease.MACFrom(mustMAC(stranger))
		_, held := s.table.HeldAddress(lease.Query{MAC: mac, Subnet: s.plan.Subnets[0].Prefix}, s.now())
		assert.False(t, held, phase)
	}
}

// TestNoAnswerWithoutALease: a machine whose lease could not be stored hears nothing.
func TestNoAnswerWithoutALease(t *testing.T) {
	loopback := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	server, client := loopback(), loopback()
	m := metrics.New(prometheus.NewRegistry())
	s := newServer(t, Deps{Events: EventRecorder{Metrics: m}})
	r := Request{Port: PortPXE, Source: client.LocalAddr().(*net.UDPAddr).AddrPort()} // answered where it came from
	finish := func(t dhcpv4.MessageType, stored error) {
		s.finish(&packetConn{boot: server}, r, Answer{Reply: packet(known, t), Events: []Event{{Kind: KindAck}}}, stored)
	}
	finish(dhcpv4.MessageTypeAck, errors.New("no space left on device"))
	finish(dhcpv4.MessageTypeNak, nil)

	require.NoError(t, client.SetReadDeadline(time.Now().Add(time.Minute)))
	buf := make([]byte, maxPacket)
	n, err := client.Read(buf)
	require.NoError(t, err)
	got, err := dhcpv4.FromBytes(buf[:n])
	require.NoError(t, err)
	assert.Equal(t, dhcpv4.MessageTypeNak, got.MessageType(), "the ACK was sent before")
	assert.Equal(t, 1.0, value(t, m.DHCPRefusals.WithLabelValues(string(ReasonStorage))))
}

// TestAnEndedLeaseNamesNobody: what a machine may fetch by its address, it may no longer once another could have
// that address.
func TestAnEndedLeaseNamesNobody(t *testing.T) {
	up := time.Minute
	s := newServer(t, Deps{Clock: lease.Clock{Uptime: func() time.Duration { return up }}})
	mac, _ := lease.MACFrom(mustMAC(stranger))
	l := lease.Lease{
		Addr:     netip.MustParseAddr("172.22.1.7"),
		MAC:      mac,
		Subnet:   s.plan.Subnets[0].Prefix,
		State:    lease.Active,
		Start:    s.now(),
		Duration: time.Hour,
	}
	s.table.Put(l)
	machine, ok := s.MachineAt(l.Addr)
	require.True(t, ok)
	assert.Equal(t, stranger, machine.MAC.String())

	up += l.Duration
	_, ok = s.MachineAt(l.Addr)
	assert.False(t, ok, "it ended")

	l.Start = s.now()
	s.table.Put(l)
	l.State, l.Duration = lease.Free, time.Hour
	s.table.Put(l)
	_, ok = s.MachineAt(l.Addr)
	assert.False(t, ok, "it was released")
}

// TestKnownAddrsAreThoseThatAreKnown: the list says what the question for one address says.
func TestKnownAddrsAreThoseThatAreKnown(t *testing.T) {
	up := time.Minute
	s := newServer(t, Deps{Clock: lease.Clock{Uptime: func() time.Duration { return up }}})
	reserved := s.KnownAddrs()
	require.NotEmpty(t, reserved)
	leased := map[string]netip.Addr{unpinned: netip.MustParseAddr("172.22.2.7"), stranger: netip.MustParseAddr("172.22.1.7")}
	for mac, addr := range leased {
		own, _ := lease.MACFrom(mustMAC(mac))
		s.table.Put(lease.Lease{
			Addr:     addr,
			MAC:      own,
			Subnet:   s.plan.Subnets[0].Prefix,
			State:    lease.Active,
			Start:    s.now(),
			Duration: time.Hour,
		})
	}

	all := s.KnownAddrs()
	assert.ElementsMatch(t, append(slices.Clone(reserved), leased[unpinned]), all)
	assert.True(t, slices.IsSortedFunc(all, netip.Addr.Compare))
	for _, addr := range all {
		assert.True(t, s.IsKnown(addr), addr)
	}
	assert.False(t, s.IsKnown(leased[stranger]))

	up += time.Hour
	assert.Equal(t, reserved, s.KnownAddrs(), "its lease ended")
}

func TestYieldsTo(t *testing.T) {
	for _, x := range []struct {
		served int
		other  string
		yields bool
	}{
		{1000, "firstlight 0000 20", false}, {20, "firstlight ffff 1000", true},
		{20, "firstlight 0000 25", true}, {25, "firstlight ffff 20", false},
		{1000, "", true}, {1000, "firstlight x", true}, {1000, "firstlight x y", true},
	} {
		assert.Equal(t, x.yields, yieldsTo("8888", time.Duration(x.served)*time.Second, x.other), "%+v", x)
	}
	for _, d := range []int{0, 10, 15, 16, 100} { // exactly one of two yields
		a, b := time.Duration(1000+d)*time.Second, 1000*time.Second
		assert.NotEqual(t, yieldsTo("aa", a, applianceIdentity("bb", b)), yieldsTo("bb", b, applianceIdentity("aa", a)), "%d", d)
	}
}

func TestProbeRoundTrip(t *testing.T) {
	ifi := &net.Interface{HardwareAddr: mustMAC("52:54:00:00:00:42")}
	p := newProbe()
	assert.Equal(t, byte(2), p.ClientHWAddr[0]&3, "not a locally administered unicast address")
	frame := probeFrame(ifi, p)
	assert.Equal(t, uint16(0xffff), sum16(0, frame[14:34]), "IP checksum")
	r, err := ParseRequest(frame[42:], PortServer, netip.AddrPort{})
	require.NoError(t, err)
	d := decision{plan: &Plan{Config: testConfig()}, req: r}
	offer := d.newReply(dhcpv4.MessageTypeOffer)
	offer.YourIPAddr = net.IPv4(172, 22, 1, 9)
	answer := append(append([]byte{}, frame[:6]...), mustMAC("52:54:00:00:00:43")...)
	answer = append(append(answer, 8, 0), datagram(offer.ToBytes(), netip.MustParseAddrPort("172.22.0.9:67"), netip.MustParseAddrPort("255.255.255.255:68"))...)
	f, ok := readOffer(answer, p)
	require.True(t, ok)
	assert.Equal(t, "172.22.0.1 172.22.0.9 52:54:00:00:00:43 172.22.1.9", fmt.Sprint(f.Server, " ", f.Source, " ", f.MACText, " ", f.Offered))
	_, ok = readOffer(answer, newProbe())
	assert.False(t, ok, "an answer to another's probe")
	for n := range answer {
		readOffer(answer[:n], p) // must not panic
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	require.NoError(t, testConfig().Validate())
	a := netip.MustParseAddr
	for want, change := range map[string]func(*Config){
		"interface: \"\" is not":                            func(c *Config) { c.Interface = "" },
		"server: ::1 is not an IPv4 or global IPv6 address": func(c *Config) { c.Server = a("::1") },
		"http: \"ftp://x\" is not a base URL":               func(c *Config) { c.HTTP = "ftp://x" },
		"http: empty; a proxy":                              func(c *Config) { c.HTTP, c.Mode = "", ModeProxy },
		"leaseDir: empty":                                   func(c *Config) { c.LeaseDir = "" },
		"overlaps subnets[0]":                               func(c *Config) { c.Subnets[1].Prefix = netip.MustParsePrefix("172.22.4.0/24") },
		"subnets[0].pool: 172.22.1.9-172.22.1.1":            func(c *Config) { c.Subnets[0].Pool = Range{First: a("172.22.1.9"), Last: a("172.22.1.1")} },
		"subnets[0].known":                                  func(c *Config) { c.Subnets[0].Known = c.Subnets[0].Pool },
		"subnets[0].lease: 1s is out of bounds":             func(c *Config) { c.Subnets[0].Lease = time.Second },
		"subnets[0].router: 10.0.0.1 is not in":             func(c *Config) { c.Subnets[0].Router = a("10.0.0.1") },
		"subnets[0].mtu: 9 is below 68":                     func(c *Config) { c.Subnets[0].MTU = 9 },
		"reservations[1].mac: \"\" is not":                  func(c *Config) { c.Reservations[1].MAC = nil },
		"is also reservations[0]; remove one":               func(c *Config) { c.Reservations[1].MAC = c.Reservations[0].MAC },
		"is also reservations[0]; give each":                func(c *Config) { c.Reservations[1].Addr = c.Reservations[0].Addr },
		"reservations[0].address: 9.9.9.9 is in no":         func(c *Config) { c.Reservations[0].Addr = a("9.9.9.9") },
		"172.22.0.1 is the server":                          func(c *Config) { c.Reservations[0].Addr = c.Server },
		"none contains the server's address 9.9.9.9":        func(c *Config) { c.Server = a("9.9.9.9") },
	} {
		c := testConfig()
		change(&c)
		err := c.Validate()
		if assert.Error(t, err, want) {
			assert.Contains(t, err.Error(), want)
		}
	}
}

// TestAddressesOnly: without a base URL nobody is told to boot anything, whatever it is.
func TestAddressesOnly(t *testing.T) {
	c := testConfig()
	c.HTTP = ""
	plan, err := NewPlan(c)
	require.NoError(t, err)
	s := newServer(t, Deps{})
	for _, p := range []*dhcpv4.DHCPv4{
		packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("PXEClient", 7)), packet(stranger, dhcpv4.MessageTypeDiscover, firmwareOf("HTTPClient", 16)),
		packet(stranger, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptUserClass("iPXE"))),
	} {
		r, err := ParseRequest(p.ToBytes(), PortServer, netip.AddrPort{})
		require.NoError(t, err)
		a := Decide(t.Context(), plan, s.table, s.now(), bootAll{}, false, r)
		require.NotNil(t, a.Reply)
		assert.Contains(t, a.Reply.YourIPAddr.String(), "172.22.1.")
		assert.Empty(t, a.Reply.BootFileName)
		assert.True(t, a.Reply.ServerIPAddr.Equal(net.IPv4zero))
		for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClassIdentifier, dhcpv4.OptionBootfileName, dhcpv4.OptionTFTPServerName, dhcpv4.OptionVendorSpecificInformation} {
			assert.False(t, a.Reply.Options.Has(code), "%v", code)
		}
		r.Port = PortPXE
		assert.Nil(t, Decide(t.Context(), plan, s.table, s.now(), bootAll{}, false, r).Reply, "port 4011")
	}
}

// TestReservationsChangeWhileServing: an address that became another's is not renewed.
func TestReservationsChangeWhileServing(t *testing.T) {
	s := newServer(t, Deps{})
	p := packet(stranger, dhcpv4.MessageTypeRequest, uses("172.22.1.7"))
	decide := func() Answer {
		r, err := ParseRequest(p.ToBytes(), PortServer, netip.AddrPort{})
		require.NoError(t, err)
		return Decide(t.Context(), s.plan, s.table, s.now(), nil, false, r)
	}
	require.NotNil(t, decide().Put)
	require.NoError(t, s.SetReservations([]Reservation{{MAC: mustMAC(known), Addr: netip.MustParseAddr("172.22.1.7")}}, s.conf.Subnets))
	require.Equal(t, dhcpv4.MessageTypeNak, decide().Reply.MessageType())
	err := s.SetReservations([]Reservation{{MAC: mustMAC(known)}, {MAC: mustMAC(known)}}, s.conf.Subnets)
	require.ErrorContains(t, err, "reservations[1].mac")
	require.Equal(t, dhcpv4.MessageTypeNak, decide().Reply.MessageType(), "a refused change changed something")
}

// TestReplyFitsAFrame fills everything that is echoed or configured.
func TestReplyFitsAFrame(t *testing.T) {
	c := testConfig()
	s := &c.Subnets[0]
	for range 8 {
		s.DNS, s.NTP = append(s.DNS[:len(s.DNS):len(s.DNS)], c.Server), append(s.NTP[:len(s.NTP):len(s.NTP)], c.Server)
	}
	s.DNS, s.NTP, s.Domain = s.DNS[:8], s.NTP[:8], strings.Repeat("d", 64)
	s.Routes = nil
	for i := range 16 {
		s.Routes = append(s.Routes, Route{Dest: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), 32), Via: c.Server})
	}
	c.Reservations[0].Hostname = strings.Repeat("h", 63)
	plan, err := NewPlan(c)
	require.NoError(t, err)
	p := packet(known, dhcpv4.MessageTypeDiscover, firmwareOf("HTTPClient", 16))
	p.DeleteOption(dhcpv4.OptionParameterRequestList)
	p.UpdateOption(dhcpv4.OptClientIdentifier(make([]byte, 255)))
	p.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, make([]byte, 255)))
	r, err := ParseRequest(p.ToBytes(), PortServer, netip.AddrPort{})
	require.NoError(t, err)
	srv := newServer(t, Deps{})
	a := Decide(t.Context(), plan, srv.table, srv.now(), bootAll{}, false, r)
	require.NotNil(t, a.Reply)
	assert.LessOrEqual(t, len(a.Reply.ToBytes()), 1472)
	p.UpdateOption(dhcpv4.OptClientIdentifier(make([]byte, 600)))
	_, err = ParseRequest(p.ToBytes(), PortServer, netip.AddrPort{})
	require.ErrorContains(t, err, "option 61 is longer")
}
