package dhcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// packetConn is the sockets of one interface. Nothing is received from or sent to any other:
// the UDP sockets are bound to the device, and raw frames name it.
type packetConn struct {
	index int
	serve *net.UDPConn // port 67
	boot  *net.UDPConn // port 4011
	src   netip.Addr

	// raw is AF_PACKET, to reach machines that have no address yet; -1 once closed. A number
	// that was closed is soon another file's, and leases are still answered while w closes.
	mu  sync.RWMutex
	raw int
}

// socketBuffer holds the burst of a rack that powers on while the disk is busy.
const socketBuffer = 4 << 20

func openPacketConn(ifname string, server netip.Addr) (*packetConn, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("open interface %s: %w", ifname, err)
	}

	w := &packetConn{index: ifi.Index, src: server, raw: -1}
	if w.serve, err = listen(ifname, PortServer); err == nil {
		w.boot, err = listen(ifname, PortPXE)
	}

	if err == nil {
		// Protocol 0: this socket only sends.
		w.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	}

	if err != nil {
		w.Close()
		return nil, fmt.Errorf("listen on %s: %w", ifname, err)
	}

	return w, nil
}

// listen opens a UDP socket that belongs to one interface. It is not shared: a second DHCP
// server on this machine is an error, not a silent race.
func listen(ifname string, port int) (*net.UDPConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}

	file := os.NewFile(uintptr(fd), "")
	defer file.Close() // net.FilePacketConn works on a copy
	if err := unix.BindToDevice(fd, ifname); err != nil {
		return nil, fmt.Errorf("bind to device %s: %w", ifname, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return nil, fmt.Errorf("allow broadcast: %w", err)
	}

	// A smaller buffer than asked for is no reason not to serve.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
	}

	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		return nil, fmt.Errorf("bind port %d: %w", port, err)
	}

	conn, err := net.FilePacketConn(file)
	if err != nil {
		return nil, fmt.Errorf("use socket of port %d: %w", port, err)
	}

	return conn.(*net.UDPConn), nil
}

// Close closes all sockets; readers return. It may be called again.
func (w *packetConn) Close() {
	if w.serve != nil {
		w.serve.Close()
	}

	if w.boot != nil {
		w.boot.Close()
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.raw >= 0 {
		unix.Close(w.raw)
		w.raw = -1
	}
}

// send takes a reply to where RFC 2131 4.1 says: the relay, the address in use, everybody,
// or the machine's Ethernet address. Boot service replies go back to their port.
func (w *packetConn) send(reply *dhcpv4.DHCPv4, r Request) error {
	data := reply.ToBytes()
	if r.Port == PortPXE {
		_, err := w.boot.WriteToUDPAddrPort(data, r.Source)
		return err
	}

	isNak := reply.MessageType() == dhcpv4.MessageTypeNak
	relay, uses := addr4(r.Packet.GatewayIPAddr), addr4(r.Packet.ClientIPAddr)
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), PortClient)
	switch {
	case relay.IsValid():
		to = netip.AddrPortFrom(relay, PortServer)
	case isNak:
	case uses.IsValid():
		to = netip.AddrPortFrom(uses, PortClient)
	case r.Packet.IsBroadcast() || len(r.MAC) != 6:
	case addr4(reply.YourIPAddr).IsValid():
		return w.unicast(data, addr4(reply.YourIPAddr), r.MAC)
	}

	_, err := w.serve.WriteToUDPAddrPort(data, to)
	return err
}

// unicast sends to a machine that does not yet answer ARP for its address. The error is
// net.ErrClosed when w is.
func (w *packetConn) unicast(data []byte, dst netip.Addr, mac [6]byte) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.raw < 0 {
		return net.ErrClosed
	}

	to := &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_IP), Ifindex: w.index, Halen: 6}
	copy(to.Addr[:], mac[:])
	return unix.Sendto(
		w.raw, datagram(data, netip.AddrPortFrom(w.src, PortServer), netip.AddrPortFrom(dst, PortClient)), 0, to,
	)
}

// datagram puts IPv4 and UDP headers before data (RFC 791, 768).
func datagram(data []byte, src, dst netip.AddrPort) []byte {
	const ip, udp = 20, 8
	b := make([]byte, ip+udp+len(data))
	s, d := src.Addr().As4(), dst.Addr().As4()
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], s[:])
	copy(b[16:], d[:])
	binary.BigEndian.PutUint16(b[10:], ^sum16(0, b[:ip]))
	u := b[ip:]
	binary.BigEndian.PutUint16(u[0:], src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
	copy(u[udp:], data)
	pseudo := append(append(s[:], d[:]...), 0, unix.IPPROTO_UDP, byte(len(u)>>8), byte(len(u)))
	check := ^sum16(sum16(0, pseudo), u)
	if check == 0 {
		check = 0xffff
	}

	binary.BigEndian.PutUint16(u[6:], check)
	return b
}

// sum16 adds b to start in one's complement (RFC 1071).
func sum16(start uint16, b []byte) uint16 {
	sum := uint32(start)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}

	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}

	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}

	return uint16(sum)
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 }

// closeOn closes w when ctx ends; the returned function ends that.
func closeOn(ctx context.Context, w *packetConn) func() bool { return context.AfterFunc(ctx, w.Close) }
