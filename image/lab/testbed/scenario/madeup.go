package scenario

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/netns"
)

// What a stranger does in the names of machines that it is not, by DHCP, ARP and datagrams of no meaning.

// Decline asks for an address in the name of a MAC, and declines all of a network's, one after the other.
func (s *Stranger) Decline(of string, all netip.Prefix, server netip.Addr) error {
	mac, err := net.ParseMAC(of)
	if err != nil {
		return err
	}

	conn, err := s.listenUDP(dhcpv4.ClientPort)
	if err != nil {
		return err
	}
	defer conn.Close()

	if err := discover(conn, server, mac); err != nil {
		return err
	}
	for addr := all.Masked().Addr().Next(); all.Contains(addr); addr = addr.Next() {
		if err := decline(conn, server, mac, addr); err != nil {
			return err
		}
	}

	return nil
}

// MakeUp asks for an address in the name of as many machines that do not exist. What the first few are offered, the
// stranger takes: it answers ARP there, and then declines it, so that another machine seems to have it. It returns how
// many addresses were offered within a second.
func (s *Stranger) MakeUp(ctx context.Context, server netip.Addr, machines, taken int) (offered int, err error) {
	conn, err := s.listenUDP(dhcpv4.ClientPort)
	if err != nil {
		return 0, err
	}
	defer conn.Close()

	made := map[string]bool{}
	for range machines {
		mac := make(net.HardwareAddr, 6)
		_, _ = rand.Read(mac) // never fails
		mac[0] = mac[0]&^1 | 2
		made[mac.String()] = true
		if err := discover(conn, server, mac); err != nil {
			return 0, err
		}
	}

	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	for b := make([]byte, 2048); ; {
		n, err := conn.Read(b)
		if err != nil {
			return offered, nil // the time is up
		}

		offer, err := dhcpv4.FromBytes(b[:n])
		if err != nil || offer.MessageType() != dhcpv4.MessageTypeOffer || !made[offer.ClientHWAddr.String()] {
			continue
		}
		addr, ok := netip.AddrFromSlice(offer.YourIPAddr.To4())
		if offered++; !ok || offered > taken {
			continue
		}
		if err := s.machine.IP(ctx, "addr replace "+addr.String()+"/32 dev eth0"); err != nil {
			return offered, err
		}
		if err := decline(conn, server, offer.ClientHWAddr, addr); err != nil {
			return offered, err
		}
	}
}

// probeClass is the vendor class of the appliance's own DISCOVERs, by which it looks for other DHCP servers.
const probeClass = "firstlight-probe"

// AnswerProbes answers the appliance's own DISCOVERs as a DHCP server would, until ctx ends, and counts them.
func (s *Stranger) AnswerProbes(ctx context.Context, answered *atomic.Int64) error {
	conn, err := s.listenUDP(dhcpv4.ServerPort)
	if err != nil {
		return err
	}
	defer conn.Close()

	for b := make([]byte, 2048); ctx.Err() == nil; {
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		n, err := conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("hear probes: %w", err)
		}

		probe, err := dhcpv4.FromBytes(b[:n])
		if err != nil || probe.ClassIdentifier() != probeClass {
			continue
		}
		offer, err := dhcpv4.NewReplyFromRequest(
			probe,
			dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer),
			dhcpv4.WithServerIP(s.Addr.AsSlice()),
			dhcpv4.WithYourIP(s.Addr.Next().AsSlice()),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(s.Addr.AsSlice())),
		)
		if err != nil {
			return fmt.Errorf("answer a probe: %w", err)
		}
		if _, err := conn.WriteToUDP(
			offer.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort},
		); err != nil {
			return fmt.Errorf("answer a probe: %w", err)
		}
		answered.Add(1)
	}

	return nil
}

// Shout sends datagrams to each of the ports of an address, and waits for no answer: its ear hears them.
func (s *Stranger) Shout(to netip.Addr, ports []uint16, datagrams ...[]byte) error {
	conn, err := s.listenUDP(0)
	if err != nil {
		return err
	}
	defer conn.Close()

	for _, port := range ports {
		for _, d := range datagrams {
			if _, err := conn.WriteToUDP(d, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port))); err != nil {
				return fmt.Errorf("send a datagram to port %d: %w", port, err)
			}
		}
	}

	return nil
}

// listenUDP makes a socket of the stranger's; port 0: any. A socket of the same port that was closed does not stand in
// its way: a program that was just forked holds a copy of it until it is executed.
func (s *Stranger) listenUDP(port int) (conn *net.UDPConn, err error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		}); failed != nil {
			return failed
		}
		return err
	}}
	err = netns.Do(s.machine.Path(), func() error {
		c, err := config.ListenPacket(context.Background(), "udp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		conn = c.(*net.UDPConn)
		return nil
	})
	return conn, err
}

// discover sends a DISCOVER that is answered by broadcast.
func discover(conn *net.UDPConn, server netip.Addr, mac net.HardwareAddr) error {
	p, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithBroadcast(true))
	return send(conn, server, p, err)
}

func decline(conn *net.UDPConn, server netip.Addr, mac net.HardwareAddr, addr netip.Addr) error {
	p, err := dhcpv4.New(
		dhcpv4.WithHwAddr(mac),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeDecline),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr.AsSlice())),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())),
	)
	return send(conn, server, p, err)
}

func send(conn *net.UDPConn, server netip.Addr, p *dhcpv4.DHCPv4, err error) error {
	if err != nil {
		return err
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(server, dhcpv4.ServerPort))
	if _, err := conn.WriteToUDP(p.ToBytes(), to); err != nil {
		return fmt.Errorf("send a %s: %w", p.MessageType(), err)
	}
	return nil
}
