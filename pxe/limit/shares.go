package limit

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// shares are the places for connections and who has them.
//
// A client, which is one address, has so many at most. Half of the places can be kept for known machines; the others
// are for whoever comes. When those are all taken, a client that has fewer than another takes one of the other's, so
// that machines that open connections without end are left with the same share as one that opens a single one.
type shares struct {
	perClient int
	known     func(netip.Addr) bool
	log       *slog.Logger
	warn      rate.Sometimes

	mu       sync.Mutex
	reserved int                    // places left for known machines
	common   int                    // places left for all
	open     map[netip.Addr][]*conn // of each client that has one, in the order in which they came
}

func newShares(connections, perClient int, known func(netip.Addr) bool, log *slog.Logger) *shares {
	s := &shares{
		perClient: perClient,
		known:     known,
		log:       log,
		warn:      rate.Sometimes{First: 1, Interval: time.Minute},
		common:    connections,
		open:      map[netip.Addr][]*conn{},
	}
	if known != nil {
		s.reserved = connections / 2
		s.common -= s.reserved
	}

	return s
}

// admit gives a connection a place, and reports whether there is one.
func (s *shares) admit(c *conn) bool {
	if !c.client.IsValid() {
		return true
	}

	isKnown := s.known != nil && s.known(c.client)
	s.mu.Lock()
	evicted, ok := s.place(c, isKnown)
	s.mu.Unlock()
	if evicted != nil {
		_ = evicted.Close()
	}
	if evicted != nil || !ok {
		s.warn.Do(func() {
			s.log.Warn("connections closed: too many", "client", c.client, "limit of one client", s.perClient)
		})
	}

	return ok
}

// place finds a place, also at the cost of a client that has more.
func (s *shares) place(c *conn, isKnown bool) (evicted *conn, ok bool) {
	if len(s.open[c.client]) >= s.perClient {
		return nil, false
	}

	switch {
	case isKnown && s.reserved > 0:
		s.reserved--
		c.reserved = true
	case s.common > 0:
		s.common--
	default:
		if evicted = s.greediest(len(s.open[c.client]) + 1); evicted == nil {
			return nil, false
		}
		s.remove(evicted)
		s.common--
	}

	s.open[c.client] = append(s.open[c.client], c)
	return evicted, true
}

// greediest is the last common connection of the client that has most of them, if these are more than another would
// have with one more.
func (s *shares) greediest(more int) (last *conn) {
	for _, all := range s.open {
		var common []*conn
		for _, c := range all {
			if !c.reserved {
				common = append(common, c)
			}
		}
		if len(common) > more {
			more, last = len(common), common[len(common)-1]
		}
	}
	return last
}

// release gives a place back.
func (s *shares) release(c *conn) {
	if !c.client.IsValid() {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
}

// remove gives a place back, once.
func (s *shares) remove(c *conn) {
	all := s.open[c.client]
	for i, other := range all {
		if other != c {
			continue
		}

		s.open[c.client] = append(all[:i:i], all[i+1:]...)
		if c.reserved {
			s.reserved++
		} else {
			s.common++
		}
	}

	if len(s.open[c.client]) == 0 {
		delete(s.open, c.client)
	}
}
