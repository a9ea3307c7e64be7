package dhcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

const (
	// classProbe is the vendor class of our probes: other appliances introduce themselves.
	classProbe = "firstlight-probe"
	// optAppliance (site-specific, RFC 3942) carries "firstlight ID SECONDS-SERVED".
	optAppliance = dhcpv4.GenericOptionCode(224)

	probeWait  = 4 * time.Second
	probeEvery = time.Second            // between DISCOVERs of one probe
	probeTail  = 700 * time.Millisecond // how long others may answer after the first
)

// probe asks on an interface whether a DHCP server answers, by DISCOVERs from a made-up
// machine, and returns those that did, none if nobody answered in the time to wait. The
// interface needs no address. Nothing is requested, so no lease is taken. It needs
// CAP_NET_RAW; an interface that is down is an error.
func probe(ctx context.Context, ifname string, wait time.Duration) ([]Foreign, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", ifname, err)
	}

	fd, err := openProbe(ifi)
	if err != nil {
		return nil, fmt.Errorf("probe %s: %w", ifname, err)
	}
	defer unix.Close(fd)

	discover := newProbe()
	frame := probeFrame(ifi, discover)
	end := time.Now().Add(wait)
	var next time.Time
	var found []Foreign
	buf := make([]byte, 4096)
	for time.Now().Before(end) {
		if err := ctx.Err(); err != nil {
			return found, err
		}

		if !time.Now().Before(next) && len(found) == 0 {
			if err := unix.Send(fd, frame, 0); err != nil {
				return nil, fmt.Errorf("probe %s: send: %w", ifname, err)
			}
			next = time.Now().Add(probeEvery)
		}

		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("probe %s: receive: %w", ifname, err)
		}

		f, ok := readOffer(buf[:n], discover)
		if !ok || slices.ContainsFunc(
			found, func(g Foreign) bool { return g.Server == f.Server && g.MACText == f.MACText },
		) {
			continue
		}

		if len(found) == 0 {
			end = time.Now().Add(min(probeTail, time.Until(end)))
		}

		found = append(found, f)
	}

	return found, nil
}

// openProbe opens a raw socket that hears every IPv4 frame to port 68 on ifi, also those
// to the made-up address. Reads return after 100 ms at the latest.
func openProbe(ifi *net.Interface) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}

	tv := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, toClientPort()),
		unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_IP), Ifindex: ifi.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("prepare packet socket: %w", err)
	}

	return fd, nil
}

// toClientPort is the packet filter "IPv4, UDP, no later fragment, destination port 68".
func toClientPort() *unix.SockFprog {
	const ld, ldx, jeq, jset, ret = 0x28, 0xb1, 0x15, 0x45, 0x06
	prog := []unix.SockFilter{
		{Code: ld, K: 12}, {Code: jeq, K: unix.ETH_P_IP, Jf: 8},
		{Code: 0x30, K: 23}, {Code: jeq, K: unix.IPPROTO_UDP, Jf: 6},
		{Code: ld, K: 20}, {Code: jset, K: 0x1fff, Jt: 4},
		{Code: ldx, K: 14},
		{Code: 0x48, K: 16}, {Code: jeq, K: PortClient, Jf: 1},
		{Code: ret, K: 0xffff}, {Code: ret, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
}

// newProbe is a DISCOVER of a machine that does not exist, answered by broadcast.
func newProbe() *dhcpv4.DHCPv4 {
	var mac [6]byte
	rand.Read(mac[:])
	mac[0] = mac[0]&^1 | 2 // locally administered, not multicast
	p := &dhcpv4.DHCPv4{
		OpCode:        dhcpv4.OpcodeBootRequest,
		HWType:        1,
		ClientHWAddr:  mac[:],
		Flags:         0x8000,
		ClientIPAddr:  net.IPv4zero,
		YourIPAddr:    net.IPv4zero,
		ServerIPAddr:  net.IPv4zero,
		GatewayIPAddr: net.IPv4zero,
		Options:       dhcpv4.Options{},
	}
	rand.Read(p.TransactionID[:])
	p.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeDiscover))
	p.UpdateOption(dhcpv4.OptClassIdentifier(classProbe))
	p.UpdateOption(dhcpv4.OptParameterRequestList(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, optAppliance))
	return p
}

// probeFrame sends p from the interface's own address: switches with port security
// would shut the port of a made-up one.
func probeFrame(ifi *net.Interface, p *dhcpv4.DHCPv4) []byte {
	frame := make([]byte, 14, 400)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(frame[6:], ifi.HardwareAddr)
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	all := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return append(frame, datagram(
		p.ToBytes(), netip.AddrPortFrom(netip.IPv4Unspecified(), PortClient), netip.AddrPortFrom(all, PortServer),
	)...)
}

// readOffer reads an answer to probe from a frame; false for everything else.
func readOffer(frame []byte, probe *dhcpv4.DHCPv4) (Foreign, bool) {
	if len(frame) < 14+20+8 {
		return Foreign{}, false
	}

	ip := frame[14:]
	header := int(ip[0]&15) * 4
	if header < 20 || len(ip) < header+8 {
		return Foreign{}, false
	}

	offer, err := dhcpv4.FromBytes(ip[header+8:])
	if err != nil || offer.OpCode != dhcpv4.OpcodeBootReply || offer.TransactionID != probe.TransactionID ||
		!slices.Equal(offer.ClientHWAddr, probe.ClientHWAddr) {
		return Foreign{}, false
	}

	f := Foreign{
		Server:    optAddr(offer, dhcpv4.OptionServerIdentifier),
		Source:    addr4(net.IP(ip[12:16])),
		MAC:       slices.Clone(net.HardwareAddr(frame[6:12])),
		Offered:   addr4(offer.YourIPAddr),
		Appliance: string(offer.Options.Get(optAppliance)),
	}
	f.MACText = f.MAC.String()
	if !f.Server.IsValid() {
		f.Server = f.Source
	}

	return f, true
}

// applianceIdentity is how an appliance introduces itself to another one's probe.
func applianceIdentity(id string, served time.Duration) string {
	return fmt.Sprintf("firstlight %s %d", id, int(served.Seconds()))
}

// yieldsTo decides between two appliances that found each other while both serve: the one
// that served longer stays, because it gave out more leases; if that is about equal, the
// lower id. Exactly one of the two yields.
func yieldsTo(id string, served time.Duration, other string) bool {
	fields := strings.Fields(other)
	if len(fields) != 3 || fields[0] != "firstlight" {
		return true
	}

	theirs, err := strconv.Atoi(fields[2])
	if err != nil {
		return true
	}
	if diff := int(served.Seconds()) - theirs; diff > 15 || diff < -15 {
		return diff < 0
	}

	return fields[1] < id
}
