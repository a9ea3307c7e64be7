package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Ports of DHCPv6 (RFC 8415 7.2).
const (
	PortServer6 = 547
	PortClient6 = 546
)

// allServers is All_DHCP_Relay_Agents_and_Servers (RFC 8415 7.1): clients send to nothing else.
func allServers() netip.Addr { return netip.MustParseAddr("ff02::1:2") }

// Request6 is a message of DHCPv6 from a machine, read and understood. Packet of Request is nil.
type Request6 struct {
	Request
	Message *dhcpv6.Message
	Relay   *dhcpv6.RelayMessage // the outermost, nil: it came from the machine itself
	Link    netip.Addr           // an address of the machine's network, as the first relay says; may be invalid
}

// frame6 is what is known of a packet besides its payload.
type frame6 struct {
	mac      net.HardwareAddr // who sent the frame
	from, to netip.AddrPort
}

// ParseRequest6 reads the payload of a UDP datagram. The machine is known by its MAC: of the frame itself, or as a
// relay names it (RFC 6939), or else by that in the DUID. A DUID alone would not do: firmware makes it of the
// machine's UUID, which has no MAC in it.
func ParseRequest6(f frame6, data []byte) (Request6, error) {
	if len(data) > maxPacket {
		return Request6{}, fmt.Errorf("packet longer than %d bytes", maxPacket)
	}

	packet, err := dhcpv6.FromBytes(data)
	if err != nil {
		return Request6{}, fmt.Errorf("parse packet of %d bytes: %w", len(data), err)
	}

	r := Request6{Request: Request{Port: PortServer6, Source: f.from}}
	mac := f.mac
	if r.Relay, _ = packet.(*dhcpv6.RelayMessage); r.Relay != nil {
		first, err := firstRelay(r.Relay)
		if err != nil {
			return Request6{}, err
		}

		r.Link, _ = netip.AddrFromSlice(first.LinkAddr)
		packet = first.Options.RelayMessage()
		_, mac = first.Options.ClientLinkLayerAddress()
	} else if f.to.Addr() != allServers() {
		return Request6{}, fmt.Errorf("sent to %v, and not to all servers (RFC 8415 16)", f.to.Addr())
	}

	var isMessage bool
	if r.Message, isMessage = packet.(*dhcpv6.Message); !isMessage {
		return Request6{}, errors.New("no message of a client in it")
	}

	id := r.Message.Options.ClientID()
	if id == nil || len(id.ToBytes()) > 130 { // RFC 8415 11.1
		return Request6{}, errors.New("it has no client identifier of at most 130 bytes")
	}

	if mac == nil {
		mac = macOf(id)
	}

	var ok bool
	if r.MAC, ok = lease.MACFrom(mac); !ok || r.MAC == (lease.MAC{}) || mac[0]&1 != 0 {
		return Request6{}, fmt.Errorf("hardware address %q is not a machine's; a relay has to name it (RFC 6939)", mac.String())
	}

	r.Machine = machineOf6(r.Message, net.HardwareAddr(r.MAC[:]))
	return r, nil
}

// maxRelays is HOP_COUNT_LIMIT (RFC 8415 7.6).
const maxRelays = 8

// firstRelay is the relay that heard the machine: the innermost.
func firstRelay(r *dhcpv6.RelayMessage) (*dhcpv6.RelayMessage, error) {
	for range maxRelays {
		if r.MessageType != dhcpv6.MessageTypeRelayForward {
			break
		}

		inner, ok := r.Options.RelayMessage().(*dhcpv6.RelayMessage)
		if !ok {
			return r, nil
		}
		r = inner
	}
	return nil, errors.New("no message of a relay to servers, or of too many relays")
}

// macOf is the MAC in a DUID that is made of one (RFC 8415 11.2, 11.4).
func macOf(id dhcpv6.DUID) net.HardwareAddr {
	switch d := id.(type) {
	case *dhcpv6.DUIDLLT:
		if d.HWType == iana.HWTypeEthernet {
			return d.LinkLayerAddr
		}
	case *dhcpv6.DUIDLL:
		if d.HWType == iana.HWTypeEthernet {
			return d.LinkLayerAddr
		}
	}
	return nil
}

func machineOf6(p *dhcpv6.Message, mac net.HardwareAddr) pxe.Machine {
	m := pxe.Machine{MAC: mac, Firmware: FirmwareOf6(p)}
	if archs := p.Options.ArchTypes(); len(archs) > 0 {
		m.Arch = uint16(archs[0])
	}
	return m
}

// FirmwareOf6 tells which program sent a message, by user class and vendor class. iPXE also says PXEClient.
func FirmwareOf6(p *dhcpv6.Message) pxe.Firmware {
	if slices.ContainsFunc(p.Options.UserClasses(), func(c []byte) bool { return string(c) == "iPXE" }) {
		return pxe.FirmwareIPXE
	}

	for _, c := range p.Options.VendorClasses() {
		for _, data := range c.Data {
			switch {
			case strings.HasPrefix(string(data), classHTTP):
				return pxe.FirmwareHTTPBoot
			case strings.HasPrefix(string(data), classPXE):
				return pxe.FirmwarePXE
			}
		}
	}

	return pxe.FirmwareUnknown
}

// wantedAddr is the address that a client names in its first IA_NA; invalid if none.
func wantedAddr(p *dhcpv6.Message) netip.Addr {
	if ia := p.Options.OneIANA(); ia != nil {
		if one := ia.Options.OneAddress(); one != nil {
			if a, ok := netip.AddrFromSlice(one.IPv6Addr); ok && !a.IsUnspecified() {
				return a
			}
		}
	}
	return netip.Addr{}
}
