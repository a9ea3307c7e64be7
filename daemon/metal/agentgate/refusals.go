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

// refusals remembers what was refused, so that each is told once, and why a host's agent was refused last.
type refusals struct {
	mu     sync.Mutex
	told   map[toldKey]time.Time
	byHost map[string]hostRefusal
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

// note remembers a refusal and reports whether it is to be told.
func (r *refusals) note(q Request, v View, why Refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, key := time.Now(), toldKey{from: q.From, reason: why.Reason}
	if r.told == nil {
		r.told, r.byHost = map[toldKey]time.Time{}, map[string]hostRefusal{}
		r.limit = rate.NewLimiter(tellRate, tellBurst)
	}

	// Hosts are as many as the API has. An agent that is early is not refused for long, and what is on a disk Ironic
	// says of its host.
	if v.Host != nil && why.Reason != ReasonNotYet && why.Reason != ReasonBusy && why.Reason != ReasonDisk {
		key.host = v.Host.Name
		r.byHost[key.host] = hostRefusal{why.Sentence(), now}
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

func (r *refusals) last(host string) (sentence string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusal := r.byHost[host]
	return refusal.sentence, refusal.at
}
