// Package pool decides which address of an IPPool a claim gets. It is pure.
package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
)

// Address is one address of a pool with what its range says of the network.
type Address struct {
	Address    netip.Addr
	Prefix     int32
	Gateway    string   // "": none
	DNSServers []string // of the range, or of the pool
}

// Errors of Allocate. ErrExhausted ends when an address is released or the pool grows; the others when someone edits
// the pool or the claim.
var (
	ErrExhausted   = errors.New("the pool has no free address; add a range to it")
	ErrOutOfBounds = errors.New("the address is in no range of the pool")
	ErrInUse       = errors.New("another claim has the address, or is to have it")
)

// Allocate is the address of a claim: that which is preallocated for it, that which it asks for ("" for any), or a
// free one. used are the addresses in use by the names of their claims.
func Allocate(spec v1alpha1.IPPoolSpec, claim, asked string, used map[string]netip.Addr) (Address, error) {
	if had, ok := used[claim]; ok {
		a, err := describe(spec, had)
		if err != nil { // the pool was edited since; nobody loses an address for that
			a = Address{Address: had, Prefix: spec.Prefix}
		}
		return a, nil
	}

	taken := map[netip.Addr]bool{}
	for _, a := range used {
		taken[a] = true
	}
	for name, text := range spec.PreAllocations {
		addr, err := netip.ParseAddr(string(text))
		if err != nil {
			return Address{}, fmt.Errorf("preAllocations[%s]: %w", name, err)
		}
		if name == claim {
			asked = string(text)
			if taken[addr] {
				return Address{}, fmt.Errorf("preallocated address %s: %w", addr, ErrInUse)
			}
			continue
		}
		taken[addr] = true
	}

	if asked != "" {
		addr, err := netip.ParseAddr(asked)
		if err != nil {
			return Address{}, fmt.Errorf("address asked for: %w", err)
		}
		if taken[addr] {
			return Address{}, fmt.Errorf("address %s: %w", addr, ErrInUse)
		}
		return describe(spec, addr)
	}

	return allocateFree(spec, taken)
}

// most is how many addresses of a range are looked at: an IPv6 network has more than anyone uses.
const most = 1 << 17

func allocateFree(spec v1alpha1.IPPoolSpec, taken map[netip.Addr]bool) (Address, error) {
	var free []netip.Addr
	for i, r := range spec.Pools {
		first, last, err := bounds(r)
		if err != nil {
			return Address{}, fmt.Errorf("pools[%d]: %w", i, err)
		}
		n := 0
		for a := first; a.IsValid() && a.Compare(last) <= 0 && n < most; a = a.Next() {
			n++
			if taken[a] {
				continue
			}
			if spec.AllocationStrategy != v1alpha1.StrategyRandom {
				return describe(spec, a)
			}
			free = append(free, a)
		}
	}
	if len(free) == 0 {
		return Address{}, ErrExhausted
	}
	return describe(spec, free[rand.IntN(len(free))])
}

// bounds are the first and the last address of a range.
func bounds(r v1alpha1.Range) (first, last netip.Addr, err error) {
	var subnet netip.Prefix
	if r.Subnet != nil {
		if subnet, err = netip.ParsePrefix(*r.Subnet); err != nil {
			return first, last, fmt.Errorf("subnet: %w", err)
		}
		first, last = subnet.Masked().Addr().Next(), lastOf(subnet)
	}
	if r.Start != nil {
		if first, err = netip.ParseAddr(string(*r.Start)); err != nil {
			return first, last, fmt.Errorf("start: %w", err)
		}
	}
	if r.End != nil {
		end, err := netip.ParseAddr(string(*r.End))
		if err != nil {
			return first, last, fmt.Errorf("end: %w", err)
		}
		if !last.IsValid() || end.Compare(last) < 0 {
			last = end
		}
	}

	switch {
	case !first.IsValid() || !last.IsValid():
		return first, last, errors.New("it needs subnet, or start and end")
	case first.Is4() != last.Is4():
		return first, last, errors.New("IPv4 and IPv6 are mixed")
	case subnet.IsValid() && !subnet.Contains(first):
		return first, last, fmt.Errorf("start %s is not in subnet %s", first, subnet)
	}
	return first, last, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// describe is an address with what the range that it is in says of it.
func describe(spec v1alpha1.IPPoolSpec, addr netip.Addr) (Address, error) {
	for _, r := range spec.Pools {
		first, last, err := bounds(r)
		if err != nil || addr.Compare(first) < 0 || addr.Compare(last) > 0 {
			continue
		}
		out := Address{Address: addr, Prefix: spec.Prefix}
		if r.Prefix != 0 {
			out.Prefix = r.Prefix
		}
		switch {
		case r.Gateway != nil:
			out.Gateway = string(*r.Gateway)
		case spec.Gateway != nil:
			out.Gateway = string(*spec.Gateway)
		}
		servers := spec.DNSServers
		if len(r.DNSServers) > 0 {
			servers = r.DNSServers
		}
		for _, s := range servers {
			out.DNSServers = append(out.DNSServers, string(s))
		}
		return out, nil
	}
	return Address{}, fmt.Errorf("%s: %w", addr, ErrOutOfBounds)
}

// DNSServers are the name servers for an address of a pool: Cluster API's IPAddress has none.
func DNSServers(spec v1alpha1.IPPoolSpec, addr string) []string {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return nil
	}
	d, err := describe(spec, a)
	if err != nil {
		return nil
	}
	return d.DNSServers
}
