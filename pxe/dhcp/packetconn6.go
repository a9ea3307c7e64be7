package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// packetConn6 is the sockets of DHCPv6 on one interface. Messages are read as frames, because a machine is known by
// the MAC that sent the frame; the UDP socket only sends, and owns the port and the multicast group.
type packetConn6 struct {
	frames *pcapgo.EthernetHandle
	udp    *net.UDPConn
	ifi    *net.Interface
}

func openPacketConn6(ctx context.Context, ifname string, port int) (*packetConn6, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("open interface %s: %w", ifname, err)
	}

	w := &packetConn6{ifi: ifi}
	if w.udp, err = listen6(ctx, ifi, port); err == nil {
		w.frames, err = openFrames6(ifname, port)
	}

	if err != nil {
		w.Close()
		return nil, fmt.Errorf("listen on %s: %w", ifname, err)
	}

	return w, nil
}

// listen6 takes a UDP port on one interface; what comes in on it is dropped.
func listen6(ctx context.Context, ifi *net.Interface, port int) (*net.UDPConn, error) {
	drop := []unix.SockFilter{{Code: unix.BPF_RET, K: 0}}
	config := &net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var optErr error
		err := raw.Control(func(fd uintptr) {
			optErr = errors.Join(
				unix.BindToDevice(int(fd), ifi.Name),
				unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}),
			)
		})
		return errors.Join(err, optErr)
	}}
	conn, err := config.ListenPacket(ctx, "udp6", netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)).String())
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}

	p := ipv6.NewPacketConn(conn)
	err = errors.Join(p.SetMulticastInterface(ifi), p.SetMulticastLoopback(false))
	if port == PortServer6 {
		err = errors.Join(err, p.JoinGroup(ifi, &net.UDPAddr{IP: allServers().AsSlice()}))
	}

	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("use multicast: %w", err)
	}

	return conn.(*net.UDPConn), nil
}

// openFrames6 reads the UDP datagrams of IPv6 to a port, without extension headers, which no client sends.
func openFrames6(ifname string, port int) (*pcapgo.EthernetHandle, error) {
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(layers.EthernetTypeIPv6), SkipTrue: 5},
		bpf.LoadAbsolute{Off: 20, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(layers.IPProtocolUDP), SkipTrue: 3},
		bpf.LoadAbsolute{Off: 56, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(port), SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}

	frames, err := pcapgo.NewEthernetHandle(ifname)
	if err != nil {
		return nil, fmt.Errorf("read frames: %w", err)
	}
	if err := errors.Join(frames.SetBPF(filter), frames.SetCaptureLength(maxFrame)); err != nil {
		frames.Close()
		return nil, fmt.Errorf("read frames: %w", err)
	}

	return frames, nil
}

const maxFrame = 14 + 40 + 8 + maxPacket + 1

// receive waits for the next datagram of another machine.
func (w *packetConn6) receive() (frame6, []byte, error) {
	for {
		data, _, err := w.frames.ReadPacketData()
		if err != nil {
			return frame6{}, nil, fmt.Errorf("read frames: %w", err)
		}
		if f, payload, ok := parseFrame6(data); ok && f.mac.String() != w.ifi.HardwareAddr.String() {
			return f, payload, nil
		}
	}
}

func parseFrame6(data []byte) (frame6, []byte, bool) {
	var eth layers.Ethernet
	var ip layers.IPv6
	var udp layers.UDP
	var payload gopacket.Payload
	var seen []gopacket.LayerType
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip, &udp, &payload)
	parser.IgnoreUnsupported = true // layers above UDP are read elsewhere
	err := parser.DecodeLayers(data, &seen)
	if err != nil || len(seen) < 3 || seen[1] != layers.LayerTypeIPv6 || seen[2] != layers.LayerTypeUDP {
		return frame6{}, nil, false
	}

	src, _ := netip.AddrFromSlice(ip.SrcIP)
	dst, _ := netip.AddrFromSlice(ip.DstIP)
	return frame6{
		mac:  eth.SrcMAC,
		from: netip.AddrPortFrom(src, uint16(udp.SrcPort)),
		to:   netip.AddrPortFrom(dst, uint16(udp.DstPort)),
	}, udp.Payload, true
}

// send takes a reply to the machine, or to the relay that is next to us (RFC 8415 19.3).
func (w *packetConn6) send(reply *dhcpv6.Message, r Request6) error {
	to, data := netip.AddrPortFrom(r.Source.Addr(), PortClient6), reply.ToBytes()
	if r.Relay != nil {
		packet, err := dhcpv6.NewRelayReplFromRelayForw(r.Relay, reply)
		if err != nil {
			return fmt.Errorf("reply to relay: %w", err)
		}
		to, data = netip.AddrPortFrom(r.Source.Addr(), PortServer6), packet.ToBytes()
	}
	return w.sendTo(data, to)
}

func (w *packetConn6) sendTo(data []byte, to netip.AddrPort) error {
	if a := to.Addr(); a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast() {
		to = netip.AddrPortFrom(a.WithZone(w.ifi.Name), to.Port())
	}

	_, err := w.udp.WriteToUDPAddrPort(data, to)
	return err
}

// Close closes all sockets; readers return. It may be called again.
func (w *packetConn6) Close() {
	if w.udp != nil {
		w.udp.Close()
	}
	if w.frames != nil {
		w.frames.Close()
	}
}
