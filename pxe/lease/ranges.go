package lease

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// maxRange bounds the memory of a range: a /16 of IPv4, a /112 of IPv6.
const maxRange = 1 << 16

// Range is First to Last, both included; the zero Range holds nothing.
type Range struct {
	First, Last netip.Addr
}

// IsZero tells whether r holds nothing.
func (r Range) IsZero() bool { return !r.First.IsValid() && !r.Last.IsValid() }

// String is FIRST-LAST.
func (r Range) String() string { return r.First.String() + "-" + r.Last.String() }

// Contains tells whether a lies in r.
func (r Range) Contains(a netip.Addr) bool {
	return !r.IsZero() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Overlaps tells whether r and o share an address.
func (r Range) Overlaps(o Range) bool {
	return !r.IsZero() && !o.IsZero() && r.First.Compare(o.Last) <= 0 && o.First.Compare(r.Last) <= 0
}

// Len is the number of addresses.
func (r Range) Len() int {
	if r.IsZero() {
		return 0
	}
	return int(addrNumber(r.Last)) - int(addrNumber(r.First)) + 1
}

// Split parts r before its last n addresses. Either part may hold nothing.
func (r Range) Split(n int) (front, back Range) {
	switch {
	case n <= 0:
		return r, Range{}
	case n >= r.Len():
		return Range{}, r
	}
	cut := numberAddr(r.Last, addrNumber(r.Last)-uint32(n))
	return Range{First: r.First, Last: cut}, Range{First: cut.Next(), Last: r.Last}
}

// Check returns what is wrong with r as a range of p.
func (r Range) Check(p netip.Prefix) error {
	switch {
	case r.First.BitLen() != p.Addr().BitLen() || r.Last.BitLen() != p.Addr().BitLen():
		return fmt.Errorf("%v is not a range of %v; give its first and last address", r, p)
	case r.Last.Less(r.First):
		return fmt.Errorf("%v ends before it begins; swap the two", r)
	case !IsHost(r.First, p) || !IsHost(r.Last, p):
		return fmt.Errorf("%v is not inside %v; leave out the network and broadcast addresses", r, p)
	case r.Last != numberAddr(r.First, addrNumber(r.Last)):
		return fmt.Errorf("%v has more than %d addresses; make it smaller", r, maxRange)
	case r.Len() > maxRange:
		return fmt.Errorf("%v has %d addresses; at most %d are kept", r, r.Len(), maxRange)
	}
	return nil
}

// IsHost tells whether a may be a machine's address in p: not the network, not its broadcast. IPv6 has no broadcast,
// and its first address is that of all routers (RFC 4291 2.6.1).
func IsHost(a netip.Addr, p netip.Prefix) bool {
	if !p.Contains(a) {
		return false
	}
	if a.Is6() {
		return a != p.Masked().Addr()
	}
	last := addrNumber(p.Masked().Addr()) | uint32(uint64(1)<<(32-p.Bits())-1)
	return a != p.Masked().Addr() && addrNumber(a) != last
}

// addrNumber is the last 32 bits of an address: all of IPv4's.
func addrNumber(a netip.Addr) uint32 {
	b := a.AsSlice()
	return binary.BigEndian.Uint32(b[len(b)-4:])
}

// numberAddr is base with n as its last 32 bits.
func numberAddr(base netip.Addr, n uint32) netip.Addr {
	b := base.AsSlice()
	binary.BigEndian.PutUint32(b[len(b)-4:], n)
	a, _ := netip.AddrFromSlice(b)
	return a
}
