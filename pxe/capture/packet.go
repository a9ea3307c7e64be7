package capture

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/dhcp"
)

type mac [6]byte

const portTFTP = 69

// Operations of TFTP (RFC 1350 5, RFC 2347).
const (
	tftpData, tftpAck, tftpError, tftpOptions = 3, 4, 5, 6
	tftpShort                                 = 8 + 4 + 512 // UDP length of a whole block of the default size
	tftpEvery                                 = 0x3ff       // of the blocks' numbers, those with no bit of it are kept
)

// packet is a frame that may belong to a boot.
type packet struct {
	from, to         mac
	src, dst         netip.AddrPort
	dhcp             *dhcpv4.DHCPv4 // nil: it is TFTP
	firmware         pxe.Firmware   // who asks by DHCP; of a request only
	keep             int            // bytes of the frame worth keeping
	request, ongoing bool           // of TFTP: asks for a file; is of a transfer
	payload          []byte         // of TFTP
}

// parsePacket reads a frame; false if it is of no boot, whatever the kernel let through.
func parsePacket(frame []byte) (packet, bool) {
	var eth layers.Ethernet
	var ip layers.IPv4
	var udp layers.UDP
	var payload gopacket.Payload
	var seen []gopacket.LayerType
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip, &udp, &payload)
	parser.IgnoreUnsupported = true // layers above UDP are read here
	if err := parser.DecodeLayers(frame, &seen); err != nil || len(seen) < 3 || seen[2] != layers.LayerTypeUDP {
		return packet{}, false
	}

	src, _ := netip.AddrFromSlice(ip.SrcIP)
	dst, _ := netip.AddrFromSlice(ip.DstIP)
	p := packet{
		src:  netip.AddrPortFrom(src, uint16(udp.SrcPort)),
		dst:  netip.AddrPortFrom(dst, uint16(udp.DstPort)),
		keep: len(frame),

		payload: udp.Payload,
	}
	copy(p.from[:], eth.SrcMAC)
	copy(p.to[:], eth.DstMAC)
	if isDHCP(p.src.Port()) || isDHCP(p.dst.Port()) {
		m, err := dhcpv4.FromBytes(udp.Payload)
		if err != nil || len(m.ClientHWAddr) != len(mac{}) {
			return packet{}, false
		}

		p.dhcp, p.firmware = m, dhcp.FirmwareOf(m)
		return p, true
	}
	if p.dst.Port() == portTFTP {
		p.request = true
		return p, true
	}
	if len(udp.Payload) < 4 {
		return packet{}, false
	}

	operation, block := binary.BigEndian.Uint16(udp.Payload), binary.BigEndian.Uint16(udp.Payload[2:])
	switch operation {
	case tftpError, tftpOptions:
	case tftpAck, tftpData:
		if block > 1 && block&tftpEvery != 0 && (operation == tftpAck || udp.Length >= tftpShort) {
			return packet{}, false
		}
		p.keep = min(p.keep, dataLen)
	default:
		return packet{}, false
	}

	p.ongoing = true
	return p, true
}

func isDHCP(port uint16) bool {
	return port == dhcp.PortServer || port == dhcp.PortClient || port == dhcp.PortPXE
}

// kernelFilter lets through what understand may keep, so that a rack that loads its images
// wakes nobody here: IPv4, UDP, no later fragment; then by port; then by TFTP's operation and block.
// The offsets are those of an Ethernet frame without a VLAN tag, which the kernel has taken off.
var kernelFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(layers.EthernetTypeIPv4), SkipTrue: 22},
	bpf.LoadAbsolute{Off: 23, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(layers.IPProtocolUDP), SkipTrue: 20},
	bpf.LoadAbsolute{Off: 20, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 18},
	bpf.LoadMemShift{Off: 14}, // X: length of the IP header
	bpf.LoadIndirect{Off: 16, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: portTFTP, SkipTrue: 16},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcp.PortServer, SkipTrue: 15},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcp.PortClient, SkipTrue: 14},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcp.PortPXE, SkipTrue: 13},
	bpf.LoadIndirect{Off: 14, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: dhcp.PortPXE, SkipTrue: 11}, // its answers go to any port
	bpf.LoadIndirect{Off: 22, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: tftpError, SkipTrue: 9},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: tftpOptions, SkipTrue: 8},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: tftpAck, SkipTrue: 3},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: tftpData, SkipTrue: 5},
	bpf.LoadIndirect{Off: 18, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpLessThan, Val: tftpShort, SkipTrue: 4},
	bpf.LoadIndirect{Off: 24, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: 1, SkipTrue: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: tftpEvery, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: snapLen},
}
