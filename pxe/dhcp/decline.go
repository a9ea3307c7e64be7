package dhcp

import (
	"context"
	"fmt"
	"time"

	"firstlight.dev/firstlight/pxe/arp"
	"firstlight.dev/firstlight/pxe/lease"
)

// declineEvery is how often one machine may have an address put aside. One that finds several addresses in use gets
// the next one after it; whoever makes up packets in its name takes no more than that.
const declineEvery = lease.Tick(time.Minute)

// declineWait is how long another machine has to answer for a declined address, if the configuration does not say.
const declineWait = 500 * time.Millisecond

// checkDeclined puts an address aside if another machine answers for it: a DECLINE alone may be anybody's, in any
// machine's name (RFC 2131 has no proof of it). Where ARP does not reach, behind a relay and with IPv6, it is believed.
func (s *Server) checkDeclined(ctx context.Context, r Request, bad lease.Lease) {
	if !s.mayDecline(r.MAC) {
		s.emit(Event{
			Kind:    KindRefuse,
			Machine: r.Machine,
			Addr:    bad.Addr,
			Reason:  ReasonDeclineLimit,
			Text:    fmt.Sprintf("%v declines more than one address a minute; %v stays as it is", r.MAC, bad.Addr),
		})
		return
	}
	if !bad.Subnet.Contains(s.conf.Server) || bad.Addr.Is6() {
		s.putAside(r, bad, "it says")
		return
	}

	select {
	case s.checks <- struct{}{}:
	default:
		return // it asks again
	}

	s.checked.Go(func() {
		defer func() { <-s.checks }()
		wait := s.conf.ConflictWait
		if wait == 0 {
			wait = declineWait
		}

		user, err := arp.InUse(ctx, s.conf.Interface, bad.Addr, wait)
		switch {
		case err != nil:
			s.deps.Log.Warn("check declined address", "addr", bad.Addr, "err", err)
		case user == nil, user.String() == r.MAC.String():
			s.emit(Event{
				Kind:    KindRefuse,
				Machine: r.Machine,
				Addr:    bad.Addr,
				Reason:  ReasonNotInUse,
				Text:    fmt.Sprintf("%v declines %v, and no other machine answers for it", r.MAC, bad.Addr),
			})
		default:
			s.putAside(r, bad, user.String()+" answers for it")
		}
	})
}

// mayDecline reports whether a machine has declined nothing for a while, and counts this time.
func (s *Server) mayDecline(mac lease.MAC) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for m, last := range s.declined { // those that count are as many as declined within a minute
		if now-last >= declineEvery {
			delete(s.declined, m)
		}
	}

	_, recently := s.declined[mac]
	if recently || len(s.declined) >= maxDeclined {
		return false
	}

	s.declined[mac] = now
	return true
}

// maxDeclined bounds the memory, and how many addresses all machines together have put aside in a minute.
const maxDeclined = 1024

// putAside keeps an address from everybody for a while.
func (s *Server) putAside(r Request, bad lease.Lease, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bad.Start = s.now()
	s.journal.Commit(s.table.Put(bad), nil)
	s.emit(Event{
		Kind:    KindDecline,
		Machine: r.Machine,
		Addr:    bad.Addr,
		Text: fmt.Sprintf(
			"%v found %v in use by another machine (%s); nobody gets it for %v", r.MAC, bad.Addr, why, bad.Duration,
		),
	})
}
