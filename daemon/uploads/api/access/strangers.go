package access

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ErrTooMany is a token that was not looked at, because its sender's address brought too many unknown ones.
var ErrTooMany = errors.New("too many unknown tokens from this address; wait a few seconds")

// How many unknown tokens one address may have looked at. All addresses of a /24 together stay below reviewQPS, and
// the first ones of all of them are looked at within askTime.
const (
	unknownEvery = 6 * time.Second
	unknownBurst = 8
	maxAddresses = 4096 // that are remembered
)

// strangers count the unknown tokens of each address.
type strangers struct {
	mu     sync.Mutex
	byAddr map[netip.Prefix]*rate.Limiter
}

// allow reports whether one more unknown token of a request's address may be looked at.
func (s *strangers) allow(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return true // no socket of another machine's
	}

	addr := from.Addr().Unmap()
	if to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && to.AddrPort().Addr().Unmap() == addr {
		return true // it runs on this machine
	}

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
		s.forget()
		limit = rate.NewLimiter(rate.Every(unknownEvery), unknownBurst)
		s.byAddr[sender] = limit
	}

	return limit.Allow()
}

// forget makes room: addresses that were quiet for long enough start from the beginning anyway.
func (s *strangers) forget() {
	if s.byAddr == nil || len(s.byAddr) < maxAddresses {
		if s.byAddr == nil {
			s.byAddr = map[netip.Prefix]*rate.Limiter{}
		}
		return
	}

	for sender, limit := range s.byAddr {
		if limit.Tokens() >= unknownBurst {
			delete(s.byAddr, sender)
		}
	}

	if len(s.byAddr) >= maxAddresses {
		clear(s.byAddr)
	}
}
