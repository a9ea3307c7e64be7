package discovery

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// leaseholder is what was found out about who has a lease. It is in memory: asking again costs nothing and locks no
// one.
type leaseholder struct {
	mac      string
	presence bmc.Presence
	seen     bool // it answered by Redfish alone, once
	asking   bool
	due      time.Time // asked again, if it is not known as a BMC
}

// setPresence takes an answer. Redfish alone counts at the second one: what a BMC serves it serves one after the other
// when it starts, and by IPMI it need not be told the password.
func (h *leaseholder) setPresence(p bmc.Presence, now time.Time) {
	h.asking, h.due = false, now.Add(presencePause)
	if p.IPMI || h.seen {
		h.presence = p
	}
	h.seen = p.IsBMC()
}

// Paces and bounds of questions without a login.
const (
	presencePause = 30 * time.Second // a BMC asks for an address before it answers others
	maxPresences  = 32               // at the same time
)

// askLeaseholders asks those who have a lease whether they are BMCs: each until it is one, and none that a node has.
func (f *Finder) askLeaseholders(ctx context.Context, v View, questions *sync.WaitGroup) {
	for _, l := range f.dueLeaseholders(v) {
		questions.Go(func() {
			p := f.Presence(ctx, l.Addr)
			f.mu.Lock()
			defer f.mu.Unlock()
			h := f.holders[l.Addr]
			if h == nil || h.mac != l.MAC {
				return // its lease ended meanwhile
			}
			isFirst := h.due.IsZero()
			h.setPresence(p, f.now())
			if isFirst || p.IsBMC() { // what is none is asked again and again
				f.Log.Info("leaseholder asked whether it is a BMC", "address", l.Addr, "mac", l.MAC, "presence", p.String())
			}
		})
	}
}

// dueLeaseholders are those to ask now. Who has no lease any more, or another's, is forgotten.
func (f *Finder) dueLeaseholders(v View) (due []Lease) {
	var leases []Lease
	if v.Policy.Leases {
		leases = f.Leases()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	holders := map[netip.Addr]*leaseholder{}
	asking := 0
	for _, l := range leases[:min(len(leases), maxBMCs)] {
		h := f.holders[l.Addr]
		if h == nil || h.mac != l.MAC {
			h = &leaseholder{mac: l.MAC}
		}
		holders[l.Addr] = h
		if h.asking {
			asking++
		}
	}

	for _, l := range leases[:min(len(leases), maxBMCs)] {
		h, addr := holders[l.Addr], l.Addr.String()
		isKnown := slices.ContainsFunc(v.Known, func(k Known) bool { return k.BMC == addr })
		isDue := !h.asking && !h.presence.IsBMC() && !f.now().Before(h.due)
		if isKnown || !isDue || !isIn(addr, v.Policy.BMCs) || asking >= maxPresences {
			continue
		}
		h.asking = true
		asking++
		due = append(due, l)
	}

	f.holders = holders
	return due
}

// leasedBMCs are the BMCs among those who have a lease, by their addresses. f.mu is held.
func (f *Finder) leasedBMCs() (all []LeasedBMC) {
	for addr, h := range f.holders {
		if h.presence.IsBMC() {
			all = append(all, LeasedBMC{Lease: Lease{Addr: addr, MAC: h.mac}, Presence: h.presence})
		}
	}
	slices.SortFunc(all, func(a, b LeasedBMC) int { return a.Addr.Compare(b.Addr) })
	return all
}

// presenceAt is what a BMC with a lease answered; the zero Presence of any other.
func (f *Finder) presenceAt(address string) (addr netip.Addr, p bmc.Presence) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return addr, p
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.holders[addr]; h != nil {
		p = h.presence
	}
	return addr, p
}

// tryLogin tries one login on the BMC of a machine. Of one that has a lease it is found out which server it is of, too.
func (f *Finder) tryLogin(ctx context.Context, m Machine, l site.Login) (Machine, bmc.Answer) {
	addr, p := f.presenceAt(m.BMC)
	if !p.IsBMC() {
		return m, f.Login(ctx, *m.bmc(l))
	}

	b := m.bmc(l)
	b.Address, b.VerifyCertificate = p.Address(addr), f.Named().BMC.VerifyCertificate
	address, who, a := f.Identify(ctx, *b)
	if m.BMCURL = string(address); m.MAC == "" {
		m.setIdentity(who)
	}
	return m, a
}
