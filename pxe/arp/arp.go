// Package arp asks a network who uses an IPv4 address, and tells it who does (RFC 826, RFC 5227).
package arp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// InUse asks once on an interface who uses an IPv4 address (ARP probe, RFC 5227 2.1.1) and
// returns the answering MAC, nil if nobody answers within wait. The interface needs no
// address, the caller CAP_NET_RAW.
func InUse(ctx context.Context, ifname string, addr netip.Addr, wait time.Duration) (net.HardwareAddr, error) {
	s, err := open(ifname)
	if err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}
	defer s.close()

	if err := s.send(netip.Addr{}, addr); err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}

	buf := make([]byte, 128)
	for end := time.Now().Add(wait); time.Now().Before(end) && ctx.Err() == nil; {
		tv := unix.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return nil, fmt.Errorf("probe %v: %w", addr, err)
		}

		n, err := unix.Read(s.fd, buf)
		if err != nil {
			continue // the time is up, or a signal came
		}
		if b := buf[:n]; n >= 42 && string(b[28:32]) == string(addr.AsSlice()) && string(b[22:28]) != string(s.mac) {
			return net.HardwareAddr(append([]byte(nil), b[22:28]...)), nil
		}
	}

	return nil, nil
}

// Announce tells everybody on an interface that an IPv4 address is this machine's (RFC 5227 2.3): whoever knows another
// MAC for it forgets that one. The caller needs CAP_NET_RAW.
func Announce(ifname string, addr netip.Addr) error {
	s, err := open(ifname)
	if err != nil {
		return fmt.Errorf("announce %v: %w", addr, err)
	}
	defer s.close()

	if err := s.send(addr, addr); err != nil {
		return fmt.Errorf("announce %v: %w", addr, err)
	}
	return nil
}

// socket sends and receives ARP on one interface.
type socket struct {
	fd  int
	mac net.HardwareAddr
}

func open(ifname string) (*socket, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, err
	}

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(swap16(unix.ETH_P_ARP)))
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_ARP), Ifindex: ifi.Index}); err != nil {
		unix.Close(fd)
		return nil, err
	}

	return &socket{fd, ifi.HardwareAddr}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// send broadcasts a request for target from sender, which a probe leaves invalid.
func (s *socket) send(sender, target netip.Addr) error {
	return unix.Send(s.fd, frame(s.mac, sender, target), 0)
}

func frame(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	b := make([]byte, 42)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_ARP)
	copy(b[14:], []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(b[22:], mac)
	copy(b[28:], sender.AsSlice())
	copy(b[38:], target.AsSlice())
	return b
}

// swap16 is a number in the order of the network's bytes, on a machine with the other order.
func swap16(v uint16) uint16 { return v<<8 | v>>8 }
