package lease

import (
	"net/netip"
	"time"
)

// Space is what a subnet may give out.
type Space struct {
	Subnet netip.Prefix
	Pool   Range               // for anybody
	Known  Range               // for machines known without an address of their own
	Never  map[netip.Addr]bool // the server, the router
	Fixed  map[netip.Addr]MAC  // reserved: nobody else gets these, in or outside the ranges
	ByMAC  map[MAC]netip.Addr  // the same the other way; an invalid Addr is known without one
}

// Table is the state of all addresses: leases, offers under way, what is free. It does no
// I/O and no locking; every method takes the time.
type Table struct {
	spaces map[netip.Prefix]*space
	leases map[netip.Addr]Lease
	byMAC  map[key]netip.Addr // the newest address of a machine in a subnet
	holds  map[netip.Addr]hold
	held   map[key]netip.Addr
}

type key struct {
	mac    MAC
	subnet netip.Prefix
}

// hold keeps an offered address for its machine.
type hold struct {
	mac   MAC
	until Tick
}

// HoldTime is how long an offer is kept. PXE firmware collects offers for seconds before
// it answers one.
const HoldTime = time.Minute

// sweepEvery bounds the work that a flood on a full pool causes.
const sweepEvery = Tick(time.Second)

type space struct {
	Space
	pool, known queue
}

// queue hands out a range in the order in which addresses became free. Entries may be
// stale: whoever takes one looks whether it is free.
type queue struct {
	r      Range
	order  []uint32
	queued []bool
	swept  Tick
}

// NewTable returns the table of what was kept. Leases outside every space stay known, so
// that a space that comes back finds them.
func NewTable(spaces []Space, kept []Lease) *Table {
	t := &Table{
		leases: map[netip.Addr]Lease{},
		byMAC:  map[key]netip.Addr{},
		holds:  map[netip.Addr]hold{},
		held:   map[key]netip.Addr{},
	}
	for _, l := range kept {
		t.leases[l.Addr] = l
		k := key{l.MAC, l.Subnet}
		if old, ok := t.byMAC[k]; l.State != Declined && (!ok || t.leases[old].End() < l.End()) {
			t.byMAC[k] = l.Addr
		}
	}

	t.SetSpaces(spaces)
	return t
}

// SetSpaces replaces ranges and reservations; leases and offers stay as they are.
func (t *Table) SetSpaces(spaces []Space) {
	t.spaces = map[netip.Prefix]*space{}
	for _, s := range spaces {
		t.spaces[s.Subnet] = &space{Space: s, pool: newQueue(s.Pool), known: newQueue(s.Known)}
	}
}

func newQueue(r Range) queue {
	q := queue{r: r, queued: make([]bool, r.Len()), order: make([]uint32, r.Len())}
	for i := range q.order {
		q.order[i], q.queued[i] = uint32(i), true
	}
	return q
}

// Query asks for an address. Want is the machine's wish, or invalid.
type Query struct {
	MAC    MAC
	Subnet netip.Prefix
	Want   netip.Addr
}

// Pick finds the address for a machine: its own reserved one, the one it has or had, the
// one it wishes for, the longest free one; for a known machine also one that an unknown machine was offered and did not
// take; the one that rests for longest. False means there is none.
func (t *Table) Pick(q Query, now Tick) (netip.Addr, bool) {
	s, ok := t.spaces[q.Subnet]
	if !ok {
		return netip.Addr{}, false
	}

	fixed, known := s.ByMAC[q.MAC]
	if fixed.IsValid() && t.IsFor(q, fixed, now) {
		return fixed, true
	}

	k := key{q.MAC, q.Subnet}
	for _, a := range []netip.Addr{t.held[k], t.byMAC[k], q.Want} {
		if a.IsValid() && t.IsFor(q, a, now) {
			return a, true
		}
	}

	if known {
		if a, ok := t.pickFree(s, &s.known, q, now); ok {
			return a, true
		}
	}

	if a, ok := t.pickFree(s, &s.pool, q, now); ok {
		return a, true
	}

	if known {
		if a, ok := t.endOffer(s, q, now); ok {
			return a, true
		}
	}

	return t.endQuarantine(s, q, known, now)
}

// endOffer gives a known machine the address that was offered to an unknown one longest ago and not taken since.
// Nobody has it, and who makes up machines without end would have all of them under offer.
func (t *Table) endOffer(s *space, q Query, now Tick) (netip.Addr, bool) {
	var oldest netip.Addr
	for addr, h := range t.holds {
		if _, known := s.ByMAC[h.mac]; known || !s.Known.Contains(addr) && !s.Pool.Contains(addr) {
			continue
		}
		if l, leased := t.leases[addr]; leased && l.State != Free && now < l.End() {
			continue
		}
		if _, reserved := s.Fixed[addr]; reserved || s.Never[addr] {
			continue
		}
		until := t.holds[oldest].until
		if !oldest.IsValid() || h.until < until || h.until == until && addr.Less(oldest) {
			oldest = addr
		}
	}

	if !oldest.IsValid() {
		return netip.Addr{}, false
	}

	t.Unhold(Query{MAC: t.holds[oldest].mac, Subnet: q.Subnet})
	delete(t.holds, oldest)
	return oldest, true
}

// endQuarantine gives the machine the address that rests for longest, where nothing else is free: whoever used it may
// be gone, and a range whose addresses all rest serves nobody.
func (t *Table) endQuarantine(s *space, q Query, known bool, now Tick) (netip.Addr, bool) {
	var oldest Lease
	for addr, l := range t.leases {
		_, reserved := s.Fixed[addr]
		isOurs := s.Pool.Contains(addr) || known && s.Known.Contains(addr)
		rests := l.State == Declined && now < l.End()
		if reserved || !isOurs || !rests || s.Never[addr] {
			continue
		}
		if !oldest.Addr.IsValid() || l.Start < oldest.Start || l.Start == oldest.Start && addr.Less(oldest.Addr) {
			oldest = l
		}
	}

	if !oldest.Addr.IsValid() {
		return netip.Addr{}, false
	}

	oldest.State, oldest.Duration = Free, 0
	t.leases[oldest.Addr] = oldest
	return oldest.Addr, t.IsFor(q, oldest.Addr, now)
}

// IsFor tells whether the machine may have addr now: it lies where the machine may be, is
// reserved for nobody else, and nobody else has, was offered or complained about it.
func (t *Table) IsFor(q Query, addr netip.Addr, now Tick) bool {
	s, ok := t.spaces[q.Subnet]
	if !ok || s.Never[addr] {
		return false
	}

	owner, reserved := s.Fixed[addr]
	if reserved && owner != q.MAC {
		return false
	}

	_, known := s.ByMAC[q.MAC]
	if !reserved && !s.Pool.Contains(addr) && !(known && s.Known.Contains(addr)) {
		return false
	}
	if h, ok := t.holds[addr]; ok && h.mac != q.MAC && now < h.until {
		return false
	}

	l, ok := t.leases[addr]
	switch {
	case !ok, now >= l.End():
		return true
	case l.State == Declined:
		return false
	default:
		return l.MAC == q.MAC || l.State == Free
	}
}

// pickFree returns the first address of the queue that is free.
func (t *Table) pickFree(s *space, q *queue, query Query, now Tick) (netip.Addr, bool) {
	for range 2 {
		for len(q.order) > 0 {
			i := q.order[0]
			q.order, q.queued[i] = q.order[1:], false
			if a := numberAddr(q.r.First, addrNumber(q.r.First)+i); t.IsFor(query, a, now) {
				return a, true
			}
		}
		if q.swept != 0 && now-q.swept < sweepEvery {
			break
		}
		t.sweep(s, q, now)
	}
	return netip.Addr{}, false
}

// sweep queues what became free since the last sweep.
func (t *Table) sweep(s *space, q *queue, now Tick) {
	q.swept = max(now, 1)
	q.order = q.order[:0:0]
	nobody := Query{Subnet: s.Subnet}
	for i := range q.queued {
		a := numberAddr(q.r.First, addrNumber(q.r.First)+uint32(i))
		_, reserved := s.Fixed[a]
		q.queued[i] = !reserved && (q == &s.known || t.IsFor(nobody, a, now))
		if q.queued[i] {
			q.order = append(q.order, uint32(i))
		}
	}
}

// Hold keeps an offered address for its machine for HoldTime.
func (t *Table) Hold(q Query, addr netip.Addr, now Tick) {
	k := key{q.MAC, q.Subnet}
	if old, ok := t.held[k]; ok && old != addr {
		t.Unhold(q)
	}
	t.holds[addr], t.held[k] = hold{mac: q.MAC, until: now + Tick(HoldTime)}, addr
}

// Unhold forgets the offer to a machine: it took it, or chose another server.
func (t *Table) Unhold(q Query) {
	k := key{q.MAC, q.Subnet}
	if addr, ok := t.held[k]; ok {
		delete(t.held, k)
		if t.holds[addr].mac == q.MAC {
			delete(t.holds, addr)
		}
	}
}

// HeldAddress returns the address under offer to a machine.
func (t *Table) HeldAddress(q Query, now Tick) (netip.Addr, bool) {
	addr, ok := t.held[key{q.MAC, q.Subnet}]
	return addr, ok && now < t.holds[addr].until && t.holds[addr].mac == q.MAC
}

// LeaseOf returns the newest lease of a machine in a subnet, whatever its state.
func (t *Table) LeaseOf(q Query) (Lease, bool) {
	addr, ok := t.byMAC[key{q.MAC, q.Subnet}]
	if !ok {
		return Lease{}, false
	}

	l, ok := t.leases[addr]
	return l, ok && l.MAC == q.MAC
}

// LeaseAt returns the last lease of an address, whatever its state.
func (t *Table) LeaseAt(addr netip.Addr) (Lease, bool) {
	l, ok := t.leases[addr]
	return l, ok
}

// ReservedFor returns whose address addr is.
func (t *Table) ReservedFor(subnet netip.Prefix, addr netip.Addr) (MAC, bool) {
	s, ok := t.spaces[subnet]
	if !ok {
		return MAC{}, false
	}

	mac, ok := s.Fixed[addr]
	return mac, ok
}

// Put makes l the state of its address and returns all that changed, in the order in
// which it must reach the disk: a machine that got another address gives the old one back.
func (t *Table) Put(l Lease) []Lease {
	q := Query{MAC: l.MAC, Subnet: l.Subnet}
	k := key{l.MAC, l.Subnet}
	changed := []Lease{l}
	if old, ok := t.leases[l.Addr]; ok && old.MAC != l.MAC {
		if ko := (key{old.MAC, old.Subnet}); t.byMAC[ko] == l.Addr {
			delete(t.byMAC, ko)
		}
	}

	switch l.State {
	case Active:
		if addr, ok := t.byMAC[k]; ok && addr != l.Addr {
			if old := t.leases[addr]; old.MAC == l.MAC && old.IsActive(l.Start) {
				old.State, old.Start, old.Duration = Free, l.Start, 0
				t.leases[addr] = old
				changed = append(changed, old)
			}
		}
		t.byMAC[k] = l.Addr
		t.Unhold(q)
	case Declined:
		if t.byMAC[k] == l.Addr {
			delete(t.byMAC, k)
		}
		t.Unhold(q)
	case Free:
	}

	t.leases[l.Addr] = l
	return changed
}

// ExpireOffers drops offers that lapsed; the server calls it now and then.
func (t *Table) ExpireOffers(now Tick) {
	for addr, h := range t.holds {
		if now >= h.until {
			t.Unhold(Query{MAC: h.mac, Subnet: t.subnetOf(addr)})
			delete(t.holds, addr)
		}
	}
}

func (t *Table) subnetOf(addr netip.Addr) netip.Prefix {
	for p := range t.spaces {
		if p.Contains(addr) {
			return p
		}
	}
	return netip.Prefix{}
}
