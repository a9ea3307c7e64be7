// Package address says at which address a host is reached, from what is known of its NICs:
// the address that the site gave, the lease of a DHCP server, what inspection saw. It never
// answers with an address that the host may have lost.
package address

import (
	"net/netip"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// Lease is the last that a lease file says of a MAC.
type Lease struct {
	Addr  netip.Addr
	State string    // active, free, …; "" if the block does not say
	Ends  time.Time // zero: never
}

// IsActive tells whether the address is the machine's at now.
func (l Lease) IsActive(now time.Time) bool {
	return l.Addr.IsValid() && l.State == "active" && (l.Ends.IsZero() || now.Before(l.Ends))
}

// Leases are leases by MAC, in lower case with colons.
type Leases map[string]Lease

// ParseISC reads a lease file of ISC's dhcpd (dhcpd.leases(5)), which is also what package
// pxe/lease writes: of each MAC the last block counts, whatever earlier ones say. A block
// that is cut off says nothing, one without its state or its MAC leaves its neighbours alone.
func ParseISC(text []byte) Leases {
	all := Leases{}
	var block *Lease
	var mac string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(line), ";"))
		switch {
		case len(words) == 0:
		case words[0] == "lease" && words[len(words)-1] == "{":
			addr, _ := netip.ParseAddr(words[1])
			block, mac = &Lease{Addr: addr}, ""
		case block == nil:
		case words[0] == "}":
			if mac != "" {
				all[mac] = *block
			}
			block = nil
		case len(words) == 3 && words[0] == "binding" && words[1] == "state":
			block.State = words[2]
		case len(words) == 3 && words[0] == "hardware" && words[1] == "ethernet":
			m, _ := site.ParseMAC(words[2])
			mac = string(m)
		case words[0] == "ends":
			block.Ends = parseEnd(words[1:])
		}
	}

	return all
}

// parseEnd reads the end of a lease: never, WEEKDAY DATE TIME in UTC, or epoch SECONDS. What
// cannot be read was long ago.
func parseEnd(words []string) time.Time {
	switch {
	case len(words) == 1 && words[0] == "never":
		return time.Time{}
	case len(words) >= 3 && words[0] != "epoch":
		if t, err := time.Parse("2006/01/02 15:04:05", words[1]+" "+words[2]); err == nil {
			return t
		}
	case len(words) >= 2:
		if d, err := time.ParseDuration(strings.TrimSuffix(words[1], ";") + "s"); err == nil {
			return time.Unix(0, 0).Add(d)
		}
	}
	return time.Unix(0, 0)
}
