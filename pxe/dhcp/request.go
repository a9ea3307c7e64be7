package dhcp

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Request is a packet from a machine, read and understood.
type Request struct {
	Packet  *dhcpv4.DHCPv4
	Port    int            // ours it came to: 67 or 4011
	Source  netip.AddrPort // where it came from; only port 4011 is answered there
	MAC     lease.MAC
	Machine pxe.Machine
}

// maxPacket is the longest packet read; firmware sends at most an Ethernet frame.
const maxPacket = 2048

// errBOOTP marks a request without a message type.
var errBOOTP = errors.New("no DHCP message type")

// ParseRequest reads a packet that came to port from source. Anything that is not a DHCP
// request of an Ethernet machine is an error; it never panics.
func ParseRequest(data []byte, port int, source netip.AddrPort) (Request, error) {
	if len(data) > maxPacket {
		return Request{}, fmt.Errorf("packet longer than %d bytes", maxPacket)
	}

	p, err := dhcpv4.FromBytes(data)
	if err != nil {
		return Request{}, fmt.Errorf("parse packet of %d bytes: %w", len(data), err)
	}
	if p.OpCode != dhcpv4.OpcodeBootRequest {
		return Request{}, fmt.Errorf("operation %d is not a request", p.OpCode)
	}

	mac, ok := lease.MACFrom(p.ClientHWAddr)
	if !ok || p.HWType != iana.HWTypeEthernet {
		return Request{}, fmt.Errorf("hardware type %d with an address of %d bytes is not Ethernet", p.HWType, data[2])
	}
	if mac == (lease.MAC{}) || mac[0]&1 != 0 {
		return Request{}, fmt.Errorf("hardware address %v is not a machine's", mac)
	}
	if p.MessageType() == dhcpv4.MessageTypeNone {
		return Request{}, errBOOTP
	}

	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if len(p.Options.Get(code)) > 255 { // echoed: replies must fit an Ethernet frame
			return Request{}, fmt.Errorf("option %d is longer than 255 bytes", code.Code())
		}
	}

	return Request{
		Packet:  p,
		Port:    port,
		Source:  source,
		MAC:     mac,
		Machine: machineOf(p),
	}, nil
}

func machineOf(p *dhcpv4.DHCPv4) pxe.Machine {
	m := pxe.Machine{MAC: p.ClientHWAddr, UUID: uuid(p), Firmware: FirmwareOf(p)}
	if arch := p.Options.Get(dhcpv4.OptionClientSystemArchitectureType); len(arch) >= 2 {
		m.Arch = uint16(arch[0])<<8 | uint16(arch[1])
	}
	return m
}

// Vendor classes of firmware (PXE 2.1 table 2-1; UEFI 2.10, 24.7.3.1).
const (
	classPXE  = "PXEClient"
	classHTTP = "HTTPClient"
)

// optIPXE is iPXE's own option, which every build of it sends.
const optIPXE = dhcpv4.GenericOptionCode(175)

// FirmwareOf tells which program sent a request. iPXE also says PXEClient, so it is looked for first.
func FirmwareOf(p *dhcpv4.DHCPv4) pxe.Firmware {
	class := string(p.Options.Get(dhcpv4.OptionClassIdentifier))
	user := string(p.Options.Get(dhcpv4.OptionUserClassInformation))
	switch {
	case user == "iPXE", user == "\x04iPXE", p.Options.Has(optIPXE): // plain, or as RFC 3004 has it
		return pxe.FirmwareIPXE
	case strings.HasPrefix(class, classHTTP):
		return pxe.FirmwareHTTPBoot
	case strings.HasPrefix(class, classPXE):
		return pxe.FirmwarePXE
	default:
		return pxe.FirmwareUnknown
	}
}

// uuid reads option 97: type 0 and 16 bytes, the first three fields little-endian as
// SMBIOS keeps them, so that the text is the one dmidecode prints.
func uuid(p *dhcpv4.DHCPv4) string {
	b := p.Options.Get(dhcpv4.OptionClientMachineIdentifier)
	if len(b) != 17 || b[0] != 0 {
		return ""
	}

	b = b[1:]
	return hex.EncodeToString([]byte{b[3], b[2], b[1], b[0]}) + "-" + hex.EncodeToString([]byte{b[5], b[4]}) + "-" +
		hex.EncodeToString([]byte{b[7], b[6]}) + "-" + hex.EncodeToString(b[8:10]) + "-" + hex.EncodeToString(b[10:])
}

// hostname is option 12 as far as it is fit to be kept.
func hostname(p *dhcpv4.DHCPv4) string {
	name := string(p.Options.Get(dhcpv4.OptionHostName))
	return strings.ToValidUTF8(name[:min(len(name), 63)], "")
}

// addr4 converts; the zero address and anything odd is invalid.
func addr4(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

func optAddr(p *dhcpv4.DHCPv4, code dhcpv4.OptionCode) netip.Addr {
	if b := p.Options.Get(code); len(b) == 4 {
		return addr4(net.IP(b))
	}
	return netip.Addr{}
}

// linkSelection is sub-option 5 of option 82: the subnet a relay means when its giaddr is
// of another (RFC 3527).
func linkSelection(p *dhcpv4.DHCPv4) netip.Addr {
	info := p.RelayAgentInfo()
	if info == nil {
		return netip.Addr{}
	}
	if b := info.Get(dhcpv4.LinkSelectionSubOption); len(b) == 4 {
		return addr4(net.IP(b))
	}

	return netip.Addr{}
}
