package agentgate

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	tellInterval = time.Hour // the same refusal of the same address is told again after this
	maxTold      = 4096      // so many are remembered as told
	tellRate     = 1         // lines a second, whoever asks
	tellBurst    = 20
)

// refusals remembers what was refused, so that each is told once, why a host's agent was refused last, and what another
// machine said last in a host's name.
type refusals struct {
	mu     sync.Mutex
	told   map[toldKey]time.Time
	byHost map[string]hostRefusal
	claims map[string]hostRefusal
	limit  *rate.Limiter
}

type toldKey struct {
	from   netip.Addr
	host   string
	reason Reason
}

type hostRefusal struct {
	sentence string
	at       time.Time
}

// concern is what a refusal says of one host.
type concern struct {
	host     string // "": of none
	isClaim  bool   // another machine called in the host's name
	sentence string
}

// note remembers a refusal and reports whether it is to be told.
func (r *refusals) note(from netip.Addr, c concern, why Refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, key := time.Now(), toldKey{from: from, reason: why.Reason}
	if r.told == nil {
		r.told, r.byHost, r.claims = map[toldKey]time.Time{}, map[string]hostRefusal{}, map[string]hostRefusal{}
		r.limit = rate.NewLimiter(tellRate, tellBurst)
	}

	if c.host != "" && why.isOfHost() { // hosts are as many as the API has
		key.host = c.host
		last := r.byHost
		if c.isClaim {
			last = r.claims
		}
		last[c.host] = hostRefusal{c.sentence, now}
	}

	if now.Sub(r.told[key]) < tellInterval || !r.limit.AllowN(now, 1) {
		return false
	}

	if len(r.told) >= maxTold {
		clear(r.told)
	}

	r.told[key] = now
	return true
}

// clear forgets the last refusal of a host: its agent was let through.
func (r *refusals) clear(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byHost, host)
}

// claim outlives an agent that was let through: that says nothing of the other machine.
func (r *refusals) claim(host string) (sentence string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	claim := r.claims[host]
	return claim.sentence, claim.at
}

func (r *refusals) last(host string) (sentence string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusal := r.byHost[host]
	return refusal.sentence, refusal.at
}
