package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocolVRRP is IP's number for it, and vrrpGroup whom it is sent to (RFC 9568, section 5.1.1).
const protocolVRRP = 112

var vrrpGroup = [4]byte{224, 0, 0, 18}

// vrrpSocket sends and receives advertisements on one interface.
type vrrpSocket struct{ fd int }

// openVRRP opens a socket whose messages are from an address of the interface.
func openVRRP(link *netlink.LinkAttrs, from netip.Addr) (*vrrpSocket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocolVRRP)
	if err != nil {
		return nil, fmt.Errorf("open socket for VRRP: %w", err)
	}

	group := &unix.IPMreqn{Multiaddr: vrrpGroup, Address: from.As4(), Ifindex: int32(link.Index)}
	wait := unix.NsecToTimeval(time.Second.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link.Name),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, group),
		unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, group),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 255),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up socket for VRRP on %s: %w", link.Name, err)
	}

	return &vrrpSocket{fd}, nil
}

func (s *vrrpSocket) close() { unix.Close(s.fd) }

func (s *vrrpSocket) send(addr netip.Addr, priority byte) error {
	to := &unix.SockaddrInet4{Addr: vrrpGroup}
	if err := unix.Sendto(s.fd, encodeAdvert(addr, priority), 0, to); err != nil {
		return fmt.Errorf("advertise %s: %w", addr, err)
	}
	return nil
}

// receive sends what other nodes say of an address, until ctx ends. What is about others is dropped.
func (s *vrrpSocket) receive(ctx context.Context, addr netip.Addr, out chan<- advert) {
	buf := make([]byte, 1500)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EBADF) {
			return
		}
		if err != nil {
			continue // nothing came within the time, or a signal did
		}

		a, err := decodeAdvert(buf[:n], addr)
		if err != nil {
			continue
		}

		select {
		case <-ctx.Done():
		case out <- a:
		}
	}
}
