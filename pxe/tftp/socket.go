package tftp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slice is how long one system call waits for a packet, and so how soon a transfer
// notices that it shall end, and how exactly it keeps its times.
const slice = 100 * time.Millisecond

// socket is a blocking UDP socket outside the runtime's poller. A client in the same
// rack answers a block within microseconds; waking the poller and the scheduler for each
// costs more than all else (measured: 2.6 times the processor time for blocks of 512
// bytes). The price is a thread per transfer, and transfers are bounded.
type socket struct {
	fd   int
	peer address
	from address // of the packet received last
}

// address is a socket's address for the kernel. One of IPv4 is in the beginning of raw: family and port are at the
// same places in both.
type address struct {
	raw  unix.RawSockaddrInet6
	size uint32 // of what is used of raw
}

func newAddress(of netip.AddrPort) address {
	var a address
	if of.Addr().Is4() {
		*a.inet4() = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swapPort(of.Port()), Addr: of.Addr().As4()}
		a.size = unix.SizeofSockaddrInet4
		return a
	}

	a.raw = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swapPort(of.Port()), Addr: of.Addr().As16()}
	a.size = unix.SizeofSockaddrInet6
	return a
}

func (a *address) inet4() *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&a.raw))
}

// addrPort is without a zone: the socket's device says which link it is.
func (a *address) addrPort() netip.AddrPort {
	if a.raw.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4(a.inet4().Addr), swapPort(a.raw.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(a.raw.Addr), swapPort(a.raw.Port))
}

// sockaddr is an address as the slower calls have it.
func sockaddr(of netip.AddrPort) unix.Sockaddr {
	if of.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(of.Port()), Addr: of.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(of.Port()), Addr: of.Addr().As16()}
}

// openSocket binds to a free port of addr, on device only if that is not "".
func openSocket(addr netip.Addr, device string, peer netip.AddrPort) (*socket, error) {
	s := &socket{peer: newAddress(peer)}
	fd, err := unix.Socket(int(s.peer.raw.Family), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}

	s.fd = fd
	wait := unix.NsecToTimeval(slice.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	if err == nil && device != "" {
		err = unix.BindToDevice(fd, device)
	}

	if err == nil {
		err = unix.Bind(fd, sockaddr(netip.AddrPortFrom(addr, 0)))
	}

	if err != nil {
		s.close()
		return nil, fmt.Errorf("bind socket to %s: %w", addr, err)
	}

	return s, nil
}

// send sends one packet to the peer. It never waits (a full queue is a lost packet), so
// the scheduler need not be told of the call: that halves its cost for small blocks.
func (s *socket) send(packet []byte) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet)),
		unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&s.peer.raw)), uintptr(s.peer.size))
	if errno != 0 {
		return errno
	}
	return nil
}

// sendTo sends one packet to somebody else.
func (s *socket) sendTo(packet []byte, to netip.AddrPort) error {
	return unix.Sendto(s.fd, packet, 0, sockaddr(to))
}

// receive waits up to a slice for a packet; os.ErrDeadlineExceeded if none came.
func (s *socket) receive(buffer []byte) (int, netip.AddrPort, error) {
	s.from.size = uint32(unsafe.Sizeof(s.from.raw))
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)),
		0, uintptr(unsafe.Pointer(&s.from.raw)), uintptr(unsafe.Pointer(&s.from.size)))
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
	case errno != 0:
		return 0, netip.AddrPort{}, errno
	case s.from.size != s.peer.size: // woken, see wake: there is no packet and no sender
		return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
	}

	return int(n), s.from.addrPort(), nil
}

// swapPort turns a port of the wire's byte order into the machine's, and back.
func swapPort(port uint16) uint16 {
	var wire [2]byte
	binary.BigEndian.PutUint16(wire[:], port)
	return binary.NativeEndian.Uint16(wire[:])
}

// wake ends a receive that is waiting. The error, that there is no connection, is no
// matter: Linux wakes whoever waits nevertheless.
func (s *socket) wake() { _ = unix.Shutdown(s.fd, unix.SHUT_RD) }

func (s *socket) close() { _ = unix.Close(s.fd) }
