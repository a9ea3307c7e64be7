package page

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// chainPattern is the page of the service chains of a cluster.
const chainPattern = "/clusters/{name}/chain"

func chainPath(ref string) string { return clusterPath(ref) + "/chain" }

// chainInterval is how long rates are measured, if somebody looked before; at most lookupTTL.
const chainInterval = 5 * time.Second

// chainAnswer is what the service chains of a cluster have counted, or why that is not known.
type chainAnswer struct {
	Chains []measuredChain
	Error  string
}

// measuredChain is a chain with the rates of its hops since they were read before.
type measuredChain struct {
	workload.Chain
	Rates []workload.Rates
}

// newChains measures the service chains of clusters, while somebody looks: each reading is followed by the next one, at
// the earliest chainInterval later.
func (s *Server) newChains() *lookup[chainAnswer] {
	return &lookup[chainAnswer]{
		ask: func(ctx context.Context, ref string) (a chainAnswer) {
			before, isKnown := s.chains.known()[ref]
			if isKnown {
				select {
				case <-time.After(chainInterval - time.Since(before.Time)):
				case <-ctx.Done():
				}
			}

			var all []workload.Chain
			c, err := s.askable(ref)
			if err == nil {
				all, err = s.sources.Chains(ctx, c)
			}
			a.Chains, a.Error = measureChains(before.Value.Chains, all), s.describeSilence(ref, err)
			return a
		},
		changed:  func() { s.hub.forget() },
		parallel: 2 * clusterTurns, // most of the time they wait
		timeout:  chainInterval + 20*time.Second,
		fresh:    -1, // asked again whoever looks
		stale:    30 * time.Second,
		wait:     3 * time.Second,
	}
}

// measureChains adds the rates since the readings before.
func measureChains(before []measuredChain, now []workload.Chain) (all []measuredChain) {
	for _, c := range now {
		m := measuredChain{Chain: c, Rates: make([]workload.Rates, len(c.Hops))}
		for i, h := range c.Hops {
			m.Rates[i] = h.RatesSince(findHop(before, c.Namespace, h.Part))
		}
		all = append(all, m)
	}
	return all
}

// findHop is the zero value if there is none.
func findHop(all []measuredChain, namespace, part string) workload.Hop {
	for _, c := range all {
		for _, h := range c.Hops {
			if c.Namespace == namespace && h.Part == part {
				return h
			}
		}
	}
	return workload.Hop{}
}

// askChain has it in the next picture what the service chains of a cluster have counted, and has them read once more
// after that: the page that is open gets the rates, and asks again then.
func (s *Server) askChain(r *http.Request) {
	if ref, ok := s.askedCluster(r); ok {
		s.chains.get(r.Context(), ref)
		s.chains.begin(r.Context(), ref)
	}
}

// chainPage is the page of the service chains of a cluster.
type chainPage struct {
	answerView
	Cluster, ClusterPath string
	Chains               []chainView
}

// chainView is one chain: its hops in the order in which packets pass them.
type chainView struct {
	Name         string
	RulesRefused bool
	Hops         []hopView
}

// hopView is one hop. Rates are per second; what is not known is "".
type hopView struct {
	Number         int
	Part           string
	PodName        string
	PodPath        string
	Node           string
	State          string // of the pod
	IsSilent       bool   // what it counts is not known
	Does           string // what it does with the packets that are counted
	Packets, Bytes string
	Lost           string // packets that it did not pass on
	Total          string // packets since the counter began
	Over           string // how long was measured
	Until          time.Time
	Unknown        string // why there are no rates
}

// hopCounters are which counters a part has, and what it does with packets.
type hopCounters struct{ does, packets, bytes, lost, loses string }

var chainCounters = map[string]hopCounters{
	counters.Generator: {"sent", counters.SentPackets, counters.SentBytes, counters.SendErrors, "not sent"},
	counters.Firewall:  {"forwarded", counters.ForwardedPackets, counters.ForwardedBytes, counters.DroppedPackets, "dropped"},
	counters.Sink:      {"received", counters.ReceivedPackets, counters.ReceivedBytes, "", ""},
}

// showChain is the page of the service chains of a cluster.
func showChain(p *picture, _ Role, r *http.Request) (any, string, bool) {
	c, ok := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	if !ok {
		return nil, r.PathValue("name"), false
	}

	ref := status.ClusterRef(p.doc.Clusters, c)
	a, isKnown := p.chains[ref]
	v := chainPage{
		answerView:  newAnswerView(c, isKnown, a.Time, a.Value.Error),
		Cluster:     ref,
		ClusterPath: clusterPath(ref),
	}
	for _, one := range a.Value.Chains {
		v.Chains = append(v.Chains, newChainView(ref, one))
	}
	return v, "Service chain of " + ref, true
}

func newChainView(ref string, c measuredChain) chainView {
	v := chainView{Name: c.Namespace}
	for i, h := range c.Hops {
		v.RulesRefused = v.RulesRefused || h.RulesRefused
		one := hopView{
			Number: i + 1, Part: h.Part, Does: chainCounters[h.Part].does, Until: h.Time,
			IsSilent: h.Error != "", Unknown: c.Rates[i].Unknown,
		}
		if h.Pod.Name != "" {
			one.PodName, one.Node, one.State = h.Pod.Name, h.Pod.Node, h.Pod.State
			one.PodPath = podPath(ref, workload.PodRef{Namespace: c.Namespace, Name: h.Pod.Name})
		}
		one.describeCounts(h, c.Rates[i])
		v.Hops = append(v.Hops, one)
	}
	return v
}

// describeCounts says what a hop counted.
func (v *hopView) describeCounts(h workload.Hop, r workload.Rates) {
	of := chainCounters[h.Part]
	if total, isKnown := h.Counters[of.packets]; isKnown {
		v.Total = fmt.Sprintf("%.0f", total)
	}
	if r.Unknown != "" {
		return
	}

	v.Over = fmt.Sprintf("%.1f s", r.Over.Seconds())
	if n, isKnown := r.PerSecond[of.packets]; isKnown {
		v.Packets = formatPerSecond(n)
	}
	if n, isKnown := r.PerSecond[of.bytes]; isKnown {
		v.Bytes = formatBytes(int64(n)) + "/s"
	}
	if n, isKnown := r.PerSecond[of.lost]; isKnown {
		v.Lost = formatPerSecond(n) + " " + of.loses
	}
}

// formatPerSecond is a rate of packets: those of less than ten each second have a decimal.
func formatPerSecond(n float64) string {
	if n > 0 && n < 10 {
		return fmt.Sprintf("%.1f/s", n)
	}
	return fmt.Sprintf("%.0f/s", n)
}
