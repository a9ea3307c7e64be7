package capture

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"firstlight.dev/firstlight/pxe"
)

// boot is how far the boot of a machine is.
type boot struct {
	last      time.Time // packet
	rank      int       // the highest that asked: 1 the firmware, 2 iPXE, 3 an operating system
	requested bool      // it got beyond DISCOVER: a REQUEST or a file
	addr      netip.Addr
	ports     map[uint16]bool // that it asks for files from
	bytes     int             // in the file
}

// firmwareRank orders the programs of one boot.
func firmwareRank(f pxe.Firmware) int {
	switch f {
	case pxe.FirmwarePXE, pxe.FirmwareHTTPBoot:
		return 1
	case pxe.FirmwareIPXE:
		return 2
	}
	return 3
}

// startsBoot tells whether a packet begins a new boot; b is nil for a machine that was not seen
// before. A DISCOVER of a boot program does when the last boot is over: a later program of it has
// asked already, this one had got further, nothing was heard for a while, or its file is full. So does a
// request for a file by a machine that was not seen: the daemon was started in between.
func startsBoot(b *boot, p packet, now time.Time) bool {
	if p.dhcp == nil {
		return b == nil && p.request
	}

	r := firmwareRank(p.firmware)
	if p.dhcp.OpCode != dhcpv4.OpcodeBootRequest || r == 3 {
		return false
	}
	if b == nil {
		return true // a REQUEST too
	}

	return p.dhcp.MessageType() == dhcpv4.MessageTypeDiscover &&
		(r < b.rank || b.requested && r == b.rank || now.Sub(b.last) > silence || b.bytes >= maxFile)
}

// update takes a packet into account that belongs to the boot.
func (b *boot) update(p packet, now time.Time) {
	b.last = now
	switch {
	case p.request:
		if len(b.ports) >= 64 {
			b.ports = nil
		}
		if b.ports == nil {
			b.ports = map[uint16]bool{}
		}
		b.ports[p.src.Port()], b.addr, b.requested = true, p.src.Addr(), true
	case p.dhcp == nil:
	case p.dhcp.OpCode == dhcpv4.OpcodeBootRequest:
		if r := firmwareRank(p.firmware); r > b.rank {
			b.rank, b.requested = r, false
		}
		b.requested = b.requested || p.dhcp.MessageType() != dhcpv4.MessageTypeDiscover
	case p.dhcp.MessageType() == dhcpv4.MessageTypeAck:
		if a, ok := netip.AddrFromSlice(p.dhcp.YourIPAddr.To4()); ok && !a.IsUnspecified() {
			b.addr = a
		}
	}
}

// bootSorter sorts packets into the boots that they belong to.
type bootSorter struct {
	files    captureDir
	ours     mac
	machines map[mac]*boot
}

// handlePacket keeps a packet if it is of a boot. length is its own on the wire, of which frame is the beginning.
func (k *bootSorter) handlePacket(at time.Time, length int, frame []byte) error {
	p, ok := parsePacket(frame)
	if !ok {
		return nil
	}

	who := k.ownerOf(p)
	b := k.machines[who]
	if startsBoot(b, p, at) {
		if err := k.files.begin(who); err != nil {
			return fmt.Errorf("begin capture of %s: %w", net.HardwareAddr(who[:]), err)
		}

		k.evictSilent(at)
		b = &boot{}
		k.machines[who] = b
	}

	if b == nil || p.ongoing && !b.ports[p.src.Port()] && !b.ports[p.dst.Port()] || at.Sub(b.last) > silence && !b.last.IsZero() {
		return nil // no boot, or long over: an operating system renews its address
	}

	b.update(p, at)
	if b.bytes >= maxFile {
		return nil
	}

	n, err := k.files.add(who, at, length, frame[:p.keep])
	b.bytes += n
	if err != nil {
		return fmt.Errorf("capture %s: %w", net.HardwareAddr(who[:]), err)
	}

	return nil
}

// ownerOf is the machine that a packet is from or for. DHCP says it; of TFTP it is who has the address, for
// behind a relay the frame names the router, or else the end of the frame that is not ours.
func (k *bootSorter) ownerOf(p packet) mac {
	if p.dhcp != nil {
		return mac(p.dhcp.ClientHWAddr)
	}

	for who, b := range k.machines {
		if b.addr.IsValid() && (b.addr == p.src.Addr() || b.addr == p.dst.Addr()) {
			return who
		}
	}

	if p.from == k.ours {
		return p.to
	}

	return p.from
}

// evictSilent drops the machine that was silent longest, as long as there are too many.
func (k *bootSorter) evictSilent(now time.Time) {
	for len(k.machines) >= maxMachines {
		var oldest mac
		last := now
		for who, b := range k.machines {
			if !b.last.After(last) {
				oldest, last = who, b.last
			}
		}

		delete(k.machines, oldest)
	}
}
