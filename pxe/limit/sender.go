package limit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxSenders is how many addresses are remembered.
const maxSenders = 4096

// Senders bounds how often requests of one address may try something, such as a token that may be wrong. Programs on
// this machine are not bounded. Every and Burst are required.
type Senders struct {
	Every time.Duration // one more try after this long
	Burst int           // tries at once

	mu     sync.Mutex
	byAddr map[netip.Prefix]*rate.Limiter
}

// Allow reports whether one more try of a request's address is allowed, and counts it.
func (s *Senders) Allow(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return true // no socket of another machine's
	}

	addr := from.Addr().Unmap()
	if to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && to.AddrPort().Addr().Unmap() == addr {
		return true // it runs on this machine
	}

	return s.allow(addr)
}

func (s *Senders) allow(addr netip.Addr) bool {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64 // one machine has as many addresses below as it likes
	}

	sender, err := addr.WithZone("").Prefix(bits)
	if err != nil {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.byAddr[sender]
	if limit == nil {
		s.makeRoom()
		limit = rate.NewLimiter(rate.Every(s.Every), s.Burst)
		s.byAddr[sender] = limit
	}

	return limit.Allow()
}

// makeRoom forgets addresses that were quiet for long enough to start from the beginning anyway; all, if none were.
func (s *Senders) makeRoom() {
	if s.byAddr == nil {
		s.byAddr = map[netip.Prefix]*rate.Limiter{}
	}

	if len(s.byAddr) < maxSenders {
		return
	}

	for sender, limit := range s.byAddr {
		if limit.Tokens() >= float64(s.Burst) {
			delete(s.byAddr, sender)
		}
	}

	if len(s.byAddr) >= maxSenders {
		clear(s.byAddr)
	}
}
