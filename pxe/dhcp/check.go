package dhcp

import (
	"context"
	"fmt"
	"net"

	"firstlight.dev/firstlight/pxe/arp"
	"firstlight.dev/firstlight/pxe/lease"
)

const (
	maxChecks  = 32 // address checks under way; machines beyond them are offered unchecked
	maxRetries = 3  // addresses tried for one DISCOVER
)

// check asks the wire whether anybody uses the address about to be offered, and answers
// when that is known. False means too many checks are under way: offer unchecked.
func (s *Server) check(ctx context.Context, w *packetConn, r Request, a Answer, proxy bool) bool {
	if addr4(r.Packet.GatewayIPAddr).IsValid() {
		return false // ARP does not pass a relay
	}

	select {
	case s.checks <- struct{}{}:
	default:
		return false
	}

	s.checked.Go(func() {
		defer func() { <-s.checks }()
		for range maxRetries {
			user, err := arp.InUse(ctx, s.conf.Interface, a.Hold, s.conf.ConflictWait)
			if err != nil {
				s.deps.Log.Warn("check address", "addr", a.Hold, "err", err)
			}

			if user == nil || user.String() == r.MAC.String() { // its own, configured by hand
				s.finish(w, r, a, nil)
				return
			}
			if a = s.quarantine(ctx, r, a, user, proxy); a.Reply == nil || !a.NewAddress {
				s.finish(w, r, a, nil)
				return
			}
		}
	})
	return true
}

// quarantine keeps an address that somebody uses from everybody, and decides again.
func (s *Server) quarantine(ctx context.Context, r Request, a Answer, user net.HardwareAddr, proxy bool) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, q := s.now(), s.queryOf(r)
	mac, _ := lease.MACFrom(user)
	s.table.Unhold(q)
	bad := lease.Lease{
		Addr:     a.Hold,
		MAC:      mac,
		Subnet:   q.Subnet,
		State:    lease.Declined,
		Start:    now,
		Duration: s.conf.quarantine(),
	}
	s.journal.Commit(s.table.Put(bad), nil)
	s.emit(Event{Kind: KindDecline, Machine: r.Machine, Addr: a.Hold,
		Text: fmt.Sprintf(
			"%v is in use by %v without a lease; nobody gets it for %v", a.Hold, user, s.conf.quarantine(),
		)})
	a = Decide(ctx, s.plan, s.table, now, s.deps.Booter, proxy, r)
	if a.Hold.IsValid() {
		s.table.Hold(q, a.Hold, now)
	}

	return a
}
