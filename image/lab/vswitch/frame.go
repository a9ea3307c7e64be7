package vswitch

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// headerBytes is an Ethernet header: destination, source, type.
const headerBytes = 14

type mac [6]byte

func (m mac) isGroup() bool { return m[0]&1 != 0 } // broadcast or multicast

// table is what a switch has learnt: where each address was last heard.
type table map[mac]portEntry

type portEntry struct {
	port *Port
	at   time.Time
}

// forgetAfter is the ageing time of IEEE 802.1D, table 7-5.
const forgetAfter = 5 * time.Minute

// largestTable bounds what a flood of made-up addresses can do.
const largestTable = 4096

// forward learns where the frame is from and says which port it goes to; nil: to all others.
// A frame to an address on its own port goes to that port, which Send leaves out.
func (t table) forward(from *Port, frame []byte, now time.Time) *Port {
	to, source := mac(frame[0:6]), mac(frame[6:12])
	if !source.isGroup() {
		if _, known := t[source]; known || len(t) < largestTable {
			t[source] = portEntry{from, now}
		}
	}

	if to.isGroup() {
		return nil
	}

	p, known := t[to]
	if !known {
		return nil
	}
	if now.Sub(p.at) > forgetAfter {
		delete(t, to)
		return nil
	}

	return p.port
}

func (t table) forgetPort(p *Port) {
	for m, place := range t {
		if place.port == p {
			delete(t, m)
		}
	}
}

const (
	typeIPv4 = 0x0800
	typeARP  = 0x0806
	typeVLAN = 0x8100
	typeIPv6 = 0x86dd
	protoTCP = 6
)

// payload skips the Ethernet header and VLAN tags.
func payload(frame []byte) (kind uint16, data []byte) {
	if len(frame) < headerBytes {
		return 0, nil
	}

	kind, data = binary.BigEndian.Uint16(frame[12:]), frame[headerBytes:]
	for kind == typeVLAN && len(data) >= 4 {
		kind, data = binary.BigEndian.Uint16(data[2:]), data[4:]
	}

	return kind, data
}

// destination is the address that a frame's packet is for, also the one that an ARP request
// asks for; invalid if it has none.
func destination(frame []byte) netip.Addr {
	switch kind, data := payload(frame); {
	case kind == typeIPv4 && len(data) >= 20:
		return netip.AddrFrom4([4]byte(data[16:20]))
	case kind == typeARP && len(data) >= 28 && binary.BigEndian.Uint16(data[2:]) == typeIPv4:
		return netip.AddrFrom4([4]byte(data[24:28]))
	case kind == typeIPv6 && len(data) >= 40:
		return netip.AddrFrom16([16]byte(data[24:40]))
	}
	return netip.Addr{}
}

// isInternal tells whether a packet for an address stays within the rack by its nature or
// because the address is the rack's. An address that a machine gave itself is no way out.
func isInternal(a netip.Addr, rack []netip.Prefix) bool {
	if a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	for _, p := range rack {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
