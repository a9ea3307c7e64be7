package lease

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func spaceOf(first, last string) Space {
	return Space{Subnet: subnet, Pool: Range{netip.MustParseAddr(first), netip.MustParseAddr(last)},
		Never: map[netip.Addr]bool{netip.MustParseAddr("172.22.0.1"): true},
		Fixed: map[netip.Addr]MAC{netip.MustParseAddr("172.22.0.12"): {9}}, ByMAC: map[MAC]netip.Addr{{9}: netip.MustParseAddr("172.22.0.12"), {8}: {}}}
}

// TestTableGivesNoAddressTwice plays random machines against a small pool and checks after
// every step what must hold.
func TestTableGivesNoAddressTwice(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.19")}, nil)
		now := Tick(time.Hour)
		using := map[netip.Addr]MAC{} // as the machines believe
		until := map[netip.Addr]Tick{}
		given := 0
		for range 3000 {
			now += Tick(rng.IntN(200)) * Tick(time.Second) / 10
			mac := MAC{byte(rng.IntN(16))}
			q := Query{MAC: mac, Subnet: subnet}
			if rng.IntN(4) == 0 {
				first := netip.MustParseAddr("172.22.0.8")
				q.Want = numberAddr(first, addrNumber(first)+uint32(rng.IntN(14)))
			}
			addr, ok := table.Pick(q, now)
			if !ok {
				continue
			}
			require.True(t, table.IsFor(q, addr, now))
			table.Hold(q, addr, now)
			l := Lease{Addr: addr, MAC: mac, Subnet: subnet, Start: now, Duration: time.Duration(1+rng.IntN(60)) * time.Second}
			switch rng.IntN(10) {
			case 0, 1: // never answers the offer
				continue
			case 2:
				l.State = Declined
			case 3:
				l.State = Free
				delete(using, addr)
			default:
				l.State = Active
			}
			if owner, used := using[addr]; used && owner != mac && now < until[addr] {
				t.Fatalf("seed %d: %v has %v until %v, given to %v at %v", seed, owner, addr, until[addr], mac, now)
			}
			for a, m := range using { // a machine that got another address left the old one
				if m == mac {
					delete(using, a)
				}
			}
			table.Put(l)
			if l.State == Active {
				given++
				using[addr], until[addr] = mac, l.End()
			}
			assert.True(t, mac == MAC{9} || addr != netip.MustParseAddr("172.22.0.12"), "a reserved address was given away")
		}
		assert.Greater(t, given, 300)
	}
}

// TestPoolComesBack: when all leases of a full pool end, all addresses can be had again.
func TestPoolComesBack(t *testing.T) {
	table := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.19")}, nil)
	now := Tick(time.Hour)
	for range 3 {
		for i := range 9 {
			q := Query{MAC: MAC{100, byte(i), byte(now >> 40), byte(now >> 32)}, Subnet: subnet}
			addr, ok := table.Pick(q, now)
			require.True(t, ok, "address %d", i)
			table.Put(Lease{Addr: addr, MAC: q.MAC, Subnet: subnet, State: Active, Start: now, Duration: time.Minute})
		}
		_, ok := table.Pick(Query{MAC: MAC{200}, Subnet: subnet}, now)
		require.False(t, ok)
		addr, ok := table.Pick(Query{MAC: MAC{9}, Subnet: subnet}, now)
		require.True(t, ok, "the known machine has no room")
		assert.Equal(t, netip.MustParseAddr("172.22.0.12"), addr)
		now += Tick(2 * time.Minute)
	}
}

func TestOffersLapse(t *testing.T) {
	table := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.10")}, nil)
	q, other := Query{MAC: MAC{1}, Subnet: subnet}, Query{MAC: MAC{2}, Subnet: subnet}
	addr, ok := table.Pick(q, 1)
	require.True(t, ok)
	table.Hold(q, addr, 1)
	_, ok = table.Pick(other, 2)
	require.False(t, ok)
	late := 2 + Tick(HoldTime)
	table.ExpireOffers(late)
	assert.Empty(t, table.holds)
	assert.Empty(t, table.held)
	_, ok = table.Pick(other, late)
	assert.True(t, ok)
}

func TestRangeSplit(t *testing.T) {
	a := netip.MustParseAddr
	all := Range{a("172.22.0.10"), a("172.22.0.12")}
	for n, want := range map[int][2]Range{
		-1: {all, {}}, 0: {all, {}},
		1: {{a("172.22.0.10"), a("172.22.0.11")}, {a("172.22.0.12"), a("172.22.0.12")}},
		2: {{a("172.22.0.10"), a("172.22.0.10")}, {a("172.22.0.11"), a("172.22.0.12")}},
		3: {{}, all}, 4: {{}, all},
	} {
		front, back := all.Split(n)
		assert.Equal(t, want, [2]Range{front, back}, n)
	}
}

func TestRangeCheck(t *testing.T) {
	a := netip.MustParseAddr
	for _, r := range []Range{{a("172.22.0.0"), a("172.22.0.9")}, {a("172.22.0.9"), a("172.22.0.255")}, {a("172.22.0.9"), a("172.22.0.8")},
		{a("172.22.0.9"), a("172.22.1.8")}, {a("::1"), a("::2")}, {}} {
		assert.Error(t, r.Check(subnet), "%v", r)
	}
	assert.NoError(t, Range{a("172.22.0.1"), a("172.22.0.254")}.Check(subnet))
	assert.Error(t, Range{a("10.0.0.1"), a("10.255.0.1")}.Check(netip.MustParsePrefix("10.0.0.0/8")), "too large")
}

// TestOldAddressIsReleased: what goes to the disk names the new address of a machine and gives back its old one.
func TestOldAddressIsReleased(t *testing.T) {
	table := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.19")}, nil)
	old := some(10, Tick(time.Hour))
	require.Equal(t, []Lease{old}, table.Put(old))

	moved, released := old, old
	moved.Addr, moved.Start = some(11, 0).Addr, old.Start+Tick(time.Minute)
	released.State, released.Start, released.Duration = Free, moved.Start, 0
	changed := table.Put(moved)
	assert.Equal(t, []Lease{moved, released}, changed)

	again := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.19")}, changed)
	assert.True(t, again.IsFor(Query{MAC: MAC{2}, Subnet: subnet}, old.Addr, moved.Start), "another may have it after a restart")
}

// TestTheOldestQuarantineEnds: when nothing else is free, the address that rests for longest is given, one after the
// other; a reserved one is nobody else's even then.
func TestTheOldestQuarantineEnds(t *testing.T) {
	table := NewTable([]Space{spaceOf("172.22.0.10", "172.22.0.13")}, nil)
	now := Tick(time.Hour)
	a := netip.MustParseAddr
	for i, addr := range []string{"172.22.0.11", "172.22.0.13", "172.22.0.10", "172.22.0.12"} {
		table.Put(Lease{Addr: a(addr), MAC: MAC{byte(i)}, Subnet: subnet, State: Declined, Start: now + Tick(i), Duration: time.Hour})
	}
	now += Tick(time.Minute)
	var got []string
	for n := range 4 {
		q := Query{MAC: MAC{1, byte(n)}, Subnet: subnet}
		addr, ok := table.Pick(q, now)
		if !ok {
			continue
		}
		require.True(t, table.IsFor(q, addr, now))
		table.Put(Lease{Addr: addr, MAC: q.MAC, Subnet: subnet, Start: now, Duration: time.Hour})
		got = append(got, addr.String())
	}
	assert.Equal(t, []string{"172.22.0.11", "172.22.0.13", "172.22.0.10"}, got)
}

// TestAnOfferToAnUnknownMachineKeepsNoKnownOneWaiting: a site that grows takes addresses from the pool for its nodes. What
// made-up machines were offered of them, and did not take, is theirs at once; what a machine has or a node was offered is
// not.
func TestAnOfferToAnUnknownMachineKeepsNoKnownOneWaiting(t *testing.T) {
	table := NewTable([]Space{spaceOf("172.22.0.20", "172.22.0.23")}, nil)
	now := Tick(time.Hour)
	var offered []netip.Addr
	for i := range 4 {
		q := Query{MAC: MAC{1, byte(i)}, Subnet: subnet}
		addr, ok := table.Pick(q, now+Tick(i))
		require.True(t, ok)
		table.Hold(q, addr, now+Tick(i))
		offered = append(offered, addr)
	}
	taken := Query{MAC: MAC{1, 0}, Subnet: subnet}
	table.Put(Lease{Addr: offered[0], MAC: taken.MAC, Subnet: subnet, Start: now, Duration: time.Hour})

	nodes := []MAC{{2, 0}, {2, 1}, {2, 2}}
	grown := spaceOf("172.22.0.20", "172.22.0.21")
	grown.Known = Range{netip.MustParseAddr("172.22.0.22"), netip.MustParseAddr("172.22.0.23")}
	grown.ByMAC = map[MAC]netip.Addr{nodes[0]: {}, nodes[1]: {}, nodes[2]: {}}
	table.SetSpaces([]Space{grown})
	now += Tick(time.Second)

	_, ok := table.Pick(Query{MAC: MAC{1, 9}, Subnet: subnet}, now)
	assert.False(t, ok, "an unknown machine gets what another was offered")
	for i, mac := range nodes {
		q := Query{MAC: mac, Subnet: subnet}
		addr, ok := table.Pick(q, now)
		require.True(t, ok, "node %d", i)
		assert.Equal(t, offered[i+1], addr, "not the oldest offer")
		table.Hold(q, addr, now)
		assert.False(t, table.IsFor(Query{MAC: MAC{1, byte(i + 1)}, Subnet: subnet}, addr, now))
		again, ok := table.Pick(q, now)
		assert.True(t, ok && again == addr)
	}
	table.spaces[subnet].ByMAC[MAC{2, 3}] = netip.Addr{}
	_, ok = table.Pick(Query{MAC: MAC{2, 3}, Subnet: subnet}, now)
	assert.False(t, ok, "a node gets what another node was offered, or what a machine has")
}
