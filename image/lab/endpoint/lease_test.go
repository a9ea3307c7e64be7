package endpoint

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// leaser is a DHCP server that gives whoever asks the same address, for a second.
type leaser struct {
	mu       sync.Mutex
	address  net.IP
	wishes   []string
	renewals int
}

func (s *leaser) serve(conn net.PacketConn) {
	for {
		packet := make([]byte, 2048)
		n, _, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if r, err := dhcpv4.FromBytes(packet[:n]); err == nil && r.OpCode == dhcpv4.OpcodeBootRequest {
			_, _ = conn.WriteTo(s.reply(r).ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: nclient4.ClientPort})
		}
	}
}

func (s *leaser) reply(r *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := dhcpv4.MessageTypeAck
	switch {
	case r.MessageType() == dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
		s.wishes = append(s.wishes, r.RequestedIPAddress().String())
	case !r.ClientIPAddr.IsUnspecified() && !r.ClientIPAddr.Equal(s.address):
		kind = dhcpv4.MessageTypeNak
	case !r.ClientIPAddr.IsUnspecified():
		s.renewals++
	}

	a, err := dhcpv4.NewReplyFromRequest(r, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(s.address),
		dhcpv4.WithServerIP(net.IPv4(10, 0, 0, 1)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 1))),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithLeaseTime(1))
	if err != nil {
		panic(err)
	}
	return a
}

func (s *leaser) give(last byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.address = net.IPv4(10, 0, 0, last)
}

func (s *leaser) renewed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals
}

// TestAnAddressIsLeased, renewed, and given up for another when the server says so. Who listens before there is one is
// reached at each.
func TestAnAddressIsLeased(t *testing.T) {
	sw, one, _ := pair(t)
	server := &datagrams{mac: net.HardwareAddr{2, 0, 0, 0, 0, 9}, packets: make(chan []byte, waiting), closed: make(chan struct{})}
	port, err := sw.Attach("server", server.receive)
	require.NoError(t, err)
	server.send = port.Send
	s := &leaser{}
	s.give(101)
	go s.serve(nclient4.NewBroadcastUDPConn(server, &net.UDPAddr{Port: nclient4.ServerPort}))
	t.Cleanup(func() { server.Close(); assert.NoError(t, port.Close()) })

	leased := make(chan netip.Addr, 8)
	bmc, err := AttachByDHCP(
		sw, "bmc", net.HardwareAddr{2, 0, 0, 0, 0, 3}, netip.MustParseAddr("10.0.0.77"), func(a netip.Addr) { leased <- a },
	)
	require.NoError(t, err)
	front, err := bmc.ListenPacket(netip.AddrPortFrom(netip.IPv4Unspecified(), 623))
	require.NoError(t, err)
	go func() {
		for {
			b := make([]byte, 64)
			n, from, err := front.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = front.WriteTo(b[:n], from)
		}
	}()
	echo(t, bmc, "0.0.0.0:443")

	awaitLease := func(want string) {
		t.Helper()
		select {
		case a := <-leased:
			require.Equal(t, want, a.String())
		case <-time.After(time.Minute):
			require.Fail(t, "no address was leased")
		}
		conn, err := one.Dial(patience(t), netip.MustParseAddrPort(want+":443"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		asking, err := one.ListenPacket(netip.MustParseAddrPort("10.0.0.1:0"))
		require.NoError(t, err)
		defer asking.Close()
		_, err = asking.WriteTo([]byte("ping"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(want+":623")))
		require.NoError(t, err)
		require.NoError(t, asking.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 64)
		n, from, err := asking.ReadFrom(b)
		require.NoError(t, err)
		assert.Equal(t, "ping", string(b[:n]))
		assert.Equal(t, want+":623", from.String(), "it answers from the address that was asked")
	}
	awaitLease("10.0.0.101")
	assert.Equal(t, "10.0.0.77", s.wishes[0])
	require.Eventually(t, func() bool { return s.renewed() > 1 }, time.Minute, 10*time.Millisecond)
	assert.Empty(t, leased, "a renewal is no other address")

	s.give(102)
	awaitLease("10.0.0.102")
	require.NoError(t, front.Close())
	require.NoError(t, bmc.Close())
}

// TestNobodyLeases: an endpoint without an address is closed at once, whatever it waits for.
func TestNobodyLeases(t *testing.T) {
	sw := vswitch.New("test", netip.MustParsePrefix("10.0.0.0/24"))
	bmc, err := AttachByDHCP(sw, "bmc", net.HardwareAddr{2, 0, 0, 0, 0, 3}, netip.Addr{}, func(netip.Addr) {})
	require.NoError(t, err)
	require.NoError(t, bmc.Close())
	require.NoError(t, sw.Close())
}
