package noderuntime

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// VRRP (RFC 9568): who has the address says so every second; who hears nothing for three of them takes it. All nodes
// of a control plane are alike, so all have one priority, and of two that hold the address the one with the higher
// address of its own keeps it (section 6.4.3).
const (
	advertInterval   = time.Second
	priorityEqual    = 100
	priorityResigned = 0 // who had the address gives it up (section 5.2.4)
)

// advert is what a node says that has the address.
type advert struct {
	from     netip.Addr
	priority byte
}

// election is what a node knows of who has the address.
type election struct {
	self netip.Addr

	healthy bool       // the API server of this node answers
	holding bool       // this node has the address
	holder  netip.Addr // who said last that it has it; invalid: nobody ever did
	heardAt time.Time  // when; at first, when this node began to listen
	resigns bool       // it said that another may take it
	saidAt  time.Time  // when this node said so last
	offered bool       // this node said that another may take it
}

// step is what a node does next.
type step int

const (
	stepWait step = iota
	stepTake
	stepAdvertise
	stepOffer // another may take it; until one does, it stays
	stepYield // another node has it
)

// hear updates it by what another node says. An offer that is repeated is as old as it was: whoever waits to take the
// address would wait again each time.
func (e *election) hear(a advert, now time.Time) {
	resigns := a.priority == priorityResigned
	if resigns && e.resigns && a.from == e.holder {
		return
	}
	e.holder, e.heardAt, e.resigns = a.from, now, resigns
}

// next decides. It is pure. A node whose server does not answer keeps the address as long as no other takes it: the server
// of a control plane that has one node, and is only slow, would be cut off besides.
func (e *election) next(now time.Time) step {
	silent := now.Sub(e.heardAt)
	switch {
	case e.holding && e.isHeld() && silent < advertInterval && (!e.healthy || e.self.Less(e.holder)):
		return stepYield
	case e.holding && now.Sub(e.saidAt) >= advertInterval:
		if !e.healthy {
			return stepOffer
		}
		return stepAdvertise
	case e.holding || !e.healthy:
		return stepWait
	case e.resigns && silent >= e.skew():
		return stepTake
	case silent >= 3*advertInterval+e.skew():
		return stepTake
	}

	return stepWait
}

// isHeld reports whether another said last that it has the address.
func (e *election) isHeld() bool { return e.holder.IsValid() && !e.resigns }

// skew parts nodes that would otherwise take the address at one time, by the end of their own addresses.
func (e *election) skew() time.Duration {
	bytes := e.self.As4()
	return advertInterval * time.Duration(255-bytes[3]) / 256
}

// Lengths of messages, in bytes.
const (
	vrrpLength = 12
	ipv4Length = 20 // of a header without options
)

// encodeAdvert is a message of VRRP version 3 (RFC 9568, section 5.1) for one IPv4 address. The number of the virtual
// router is the end of its address: nodes of other clusters are told by the whole address.
func encodeAdvert(addr netip.Addr, priority byte) []byte {
	a := addr.As4()
	b := make([]byte, vrrpLength)
	b[0], b[1], b[2], b[3] = 3<<4|1, max(1, a[3]), priority, 1
	binary.BigEndian.PutUint16(b[4:], uint16(advertInterval/(10*time.Millisecond)))
	copy(b[8:], a[:])
	binary.BigEndian.PutUint16(b[6:], checksum(b))
	return b
}

// decodeAdvert reads a packet with its IPv4 header. An error is a message that is no node's of this cluster: VRRP of
// others, or one that came through a router (section 7.1).
func decodeAdvert(packet []byte, addr netip.Addr) (advert, error) {
	if len(packet) < ipv4Length {
		return advert{}, fmt.Errorf("%d bytes are no packet", len(packet))
	}

	header := int(packet[0]&0xf) * 4
	if header < ipv4Length || len(packet) < header+vrrpLength {
		return advert{}, fmt.Errorf("%d bytes are no advertisement", len(packet))
	}

	message := packet[header:]
	held, _ := netip.AddrFromSlice(message[8:12])
	switch {
	case packet[8] != 255:
		return advert{}, fmt.Errorf("its TTL is %d, not 255", packet[8])
	case message[0] != 3<<4|1 || message[3] != 1:
		return advert{}, fmt.Errorf("it is no advertisement of one address by version 3")
	case held != addr:
		return advert{}, fmt.Errorf("it is about %s", held)
	case checksum(message[:vrrpLength]) != 0:
		return advert{}, fmt.Errorf("its checksum is wrong")
	}

	from, _ := netip.AddrFromSlice(packet[12:16])
	return advert{from, message[2]}, nil
}

// checksum is that of RFC 1071, over the message alone; over one with its checksum it is zero.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
