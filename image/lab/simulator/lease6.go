package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isIPv6 reports whether the provisioning network is one of IPv6: the boot server is at such an address.
func (f *Simulator) isIPv6() bool {
	boot, err := url.Parse(f.config.Boot)
	if err != nil {
		return false
	}

	at, err := netip.ParseAddr(boot.Hostname())
	return err == nil && at.Is6()
}

// checkRamdiskAddress returns an error if a ramdisk with these arguments has not the host's address: of IPv6 it leases
// none (overlays/ramdisk/init).
func (h *Server) checkRamdiskAddress(args map[string]string) error {
	if !h.simulator.isIPv6() {
		return nil
	}

	given, err := netip.ParsePrefix(args["firstlight.address"])
	if err != nil || given.Addr() != h.addr() {
		return fmt.Errorf("the ramdisk is given address %q, and not %s", args["firstlight.address"], h.addr())
	}
	return nil
}

// requestLease6 is requestLease by DHCPv6 (RFC 8415), as iPXE asks.
func (h *Server) requestLease6(ctx context.Context) (addr netip.Addr, err error) {
	mac, err := net.ParseMAC(h.MAC)
	if err != nil {
		return addr, err
	}

	var conn *frameConn
	err = inNamespace(h.simulator.wire.path(), func() (err error) {
		conn, err = openFrameConn(ctx, h.simulator.config.NIC, mac)
		return err
	})
	if err != nil {
		return addr, fmt.Errorf("ask for an address: %w", err)
	}

	client, err := nclient6.NewWithConn(conn, mac, nclient6.WithTimeout(leaseTimeout), nclient6.WithRetry(3))
	if err != nil {
		return addr, errors.Join(fmt.Errorf("ask for an address: %w", err), conn.Close())
	}
	defer client.Close()

	asked := []dhcpv6.Modifier{
		dhcpv6.WithClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}),
		dhcpv6.WithRequestedOptions(dhcpv6.OptionBootfileURL), dhcpv6.WithArchType(iana.EFI_X86_64),
		dhcpv6.WithUserClass([]byte("iPXE")),
	}
	offer, err := client.Solicit(ctx, asked...)
	if err != nil {
		return addr, fmt.Errorf("ask for an address: %w", err)
	}

	reply, err := client.Request(ctx, offer, asked...)
	if err != nil {
		return addr, fmt.Errorf("ask for an address: %w", err)
	}

	if ia := reply.Options.OneIANA(); ia != nil && ia.Options.OneAddress() != nil {
		if addr, ok := netip.AddrFromSlice(ia.Options.OneAddress().IPv6Addr); ok {
			return addr, nil
		}
	}
	return addr, errors.New("ask for an address: the server gave none")
}

// frameConn is the DHCPv6 client of one server among those that share an interface. It sends frames with the server's own
// MAC, by which the DHCP server knows machines; answers come to the link-local address that belongs to that MAC.
type frameConn struct {
	*net.UDPConn
	raw  int // an AF_PACKET socket
	link netlink.Link
	mac  net.HardwareAddr
	own  netip.Addr
}

// clientPort6 is where clients of DHCPv6 are (RFC 8415 7.2).
const clientPort6 = 546

func openFrameConn(ctx context.Context, nic string, mac net.HardwareAddr) (*frameConn, error) {
	link, err := netlink.LinkByName(nic)
	if err != nil {
		return nil, err
	}

	c := &frameConn{link: link, mac: mac, own: linkLocal(mac)}
	at := &netlink.Addr{IPNet: hostNet(c.own), Flags: unix.IFA_F_NODAD, Scope: int(netlink.SCOPE_LINK)}
	if err := netlink.AddrReplace(link, at); err != nil {
		return nil, fmt.Errorf("set address %s: %w", c.own, err)
	}

	local := netip.AddrPortFrom(c.own.WithZone(nic), clientPort6).String()
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp6", local)
	if err != nil {
		return nil, err
	}

	c.UDPConn = udp.(*net.UDPConn)
	if c.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open raw socket: %w", err), udp.Close())
	}
	return c, nil
}

// linkLocal is the link-local address that is made of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// WriteTo sends a message to all DHCP servers.
func (c *frameConn) WriteTo(message []byte, to net.Addr) (int, error) {
	server, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, fmt.Errorf("send to %v: no address of UDP", to)
	}

	ip := &layers.IPv6{
		Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 1, SrcIP: c.own.AsSlice(), DstIP: server.IP.To16(),
	}
	udp := &layers.UDP{SrcPort: clientPort6, DstPort: layers.UDPPort(server.Port)}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return 0, err
	}

	group := ip.DstIP[12:] // RFC 2464, 7
	frame := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(
		frame,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{
			SrcMAC:       c.mac,
			DstMAC:       append(net.HardwareAddr{0x33, 0x33}, group...),
			EthernetType: layers.EthernetTypeIPv6,
		},
		ip, udp, gopacket.Payload(message),
	)
	if err != nil {
		return 0, err
	}

	on := &unix.SockaddrLinklayer{Ifindex: c.link.Attrs().Index}
	return len(message), unix.Sendto(c.raw, frame.Bytes(), 0, on)
}

// Close ends both sockets.
func (c *frameConn) Close() error {
	return errors.Join(unix.Close(c.raw), c.UDPConn.Close())
}

var _ net.PacketConn = (*frameConn)(nil)
