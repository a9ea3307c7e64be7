// Package netprobe puts small questions to the networks of a node, from the appliance: who uses
// an address, does a router answer, does a resolver. Whether it can ask at all depends on
// whether it has an address in that network.
package netprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/pxe/arp"
)

// LocalAddr is an address of this machine on one of its interfaces.
type LocalAddr struct {
	Interface string
	Prefix    netip.Prefix
}

// LocalAddrs are this machine's IPv4 addresses on interfaces that are up, loopback left out.
func LocalAddrs() ([]LocalAddr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}

	var legs []LocalAddr
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}

		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}

		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				legs = append(legs, LocalAddr{i.Name, p})
			}
		}
	}

	return legs, nil
}

// InterfaceFor is the interface whose network holds addr: the one with the longest prefix. It is
// "" if this machine is not in that network.
func InterfaceFor(legs []LocalAddr, addr netip.Addr) string {
	best := LocalAddr{}
	for _, l := range legs {
		if l.Prefix.Masked().Contains(addr) && (best.Interface == "" || l.Prefix.Bits() > best.Prefix.Bits()) {
			best = l
		}
	}
	return best.Interface
}

// IsLocal tells whether addr is one of this machine's own.
func IsLocal(legs []LocalAddr, addr netip.Addr) bool {
	return slices.ContainsFunc(legs, func(l LocalAddr) bool { return l.Prefix.Addr() == addr })
}

// AddressUser asks three times who uses addr on an interface and returns the MAC, "" if nobody
// answers within about three seconds.
func AddressUser(ctx context.Context, ifname string, addr netip.Addr) (string, error) {
	for range 3 {
		mac, err := arp.InUse(ctx, ifname, addr, time.Second)
		if err != nil || ctx.Err() != nil {
			return "", errors.Join(err, ctx.Err())
		}
		if mac != nil {
			return strings.ToLower(mac.String()), nil
		}
	}
	return "", nil
}
