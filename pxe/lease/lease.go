// Package lease keeps which machine has which address, so that an address is never
// given twice: a table in memory that decides, a journal on disk that every lease
// reaches before its machine hears of it, and ISC dhcpd's lease text for readers.
//
// No decision looks at the wall clock. Time is counted by the boot clock, and time spent
// switched off does not count: a dead RTC or a jump of years neither frees an address in
// use nor keeps a free one longer than one lease time.
package lease

import (
	"fmt"
	"net"
	"net/netip"
	"time"
)

// MAC is an Ethernet address usable as a map key.
type MAC [6]byte

// String is the colon form in lower case.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MACFrom converts a hardware address; false unless it has six bytes.
func MACFrom(h net.HardwareAddr) (MAC, bool) {
	if len(h) != 6 {
		return MAC{}, false
	}
	return MAC(h), true
}

// State of an address.
type State byte

// States. Free means the machine had the address and may have it again; Declined
// that a machine found it in use, so that nobody gets it for a while.
const (
	Active   State = 'A'
	Free     State = 'F'
	Declined State = 'D'
)

// String is ISC dhcpd's word: active, free, abandoned.
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Free:
		return "free"
	case Declined:
		return "abandoned"
	default:
		return fmt.Sprintf("state-%d", byte(s))
	}
}

// Tick is a point of the lease clock: how long leases were kept since the journal began,
// not counting time switched off.
type Tick time.Duration

// Lease binds an address to a machine. There is at most one per address, and one active
// per machine and subnet.
type Lease struct {
	Addr     netip.Addr
	MAC      MAC
	Subnet   netip.Prefix
	State    State
	Start    Tick          // last granted or renewed, released or declined
	Duration time.Duration // from Start; quarantine if Declined
	Hostname string        // option 12, as the machine sent it
	UUID     string        // option 97, "" if it never sent one
	Arch     uint16        // option 93 of the last PXE request
}

// End is when the lease or quarantine ends on the lease clock.
func (l Lease) End() Tick { return l.Start + Tick(l.Duration) }

// IsActive tells whether the machine may use the address at now.
func (l Lease) IsActive(now Tick) bool { return l.State == Active && now < l.End() }

// ListedLease is a lease as readers see it, with times of the wall clock, computed when read.
type ListedLease struct {
	Addr     netip.Addr   `json:"address"`
	MAC      string       `json:"mac"`
	Subnet   netip.Prefix `json:"subnet"`
	State    string       `json:"state"` // active, free, abandoned
	Starts   time.Time    `json:"starts"`
	Ends     time.Time    `json:"ends"`
	Hostname string       `json:"hostname,omitempty"`
	UUID     string       `json:"uuid,omitempty"`
}

// list converts l for readers at the pair (now, wall) of simultaneous times.
func (l Lease) list(now Tick, wall time.Time) ListedLease {
	state := l.State
	if state == Active && now >= l.End() {
		state = Free
	}
	return ListedLease{
		Addr:     l.Addr,
		MAC:      l.MAC.String(),
		Subnet:   l.Subnet,
		State:    state.String(),
		Hostname: l.Hostname,
		UUID:     l.UUID,
		Starts:   wall.Add(time.Duration(l.Start - now)),
		Ends:     wall.Add(time.Duration(l.End() - now)),
	}
}
