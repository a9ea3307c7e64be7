// Package metrics gives the appliance's figures to whoever reads Prometheus' text format: how stages, nodes, clusters
// and components stand, made from the status document at each reading; what the machine has left; and the counters of
// the parts that serve the site. docs/metrics.md lists them; a test holds the two together.
package metrics

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Parts are the counters of each part. A part that begins anew begins with none.
type Parts struct {
	mu  sync.Mutex
	all map[string]prometheus.Gatherer
}

// NewRegistry is an empty registry for a part, in place of the one that it had.
func (p *Parts) NewRegistry(name string) prometheus.Registerer {
	r := prometheus.NewRegistry()
	p.Set(name, r)
	return r
}

// Set makes what g gathers the counters of a part.
func (p *Parts) Set(name string, g prometheus.Gatherer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]prometheus.Gatherer{}
	}
	p.all[name] = g
}

// Gather implements prometheus.Gatherer.
func (p *Parts) Gather() ([]*dto.MetricFamily, error) {
	p.mu.Lock()
	all := prometheus.Gatherers{}
	for _, r := range p.all {
		all = append(all, r)
	}

	p.mu.Unlock()
	return all.Gather()
}

// Handler answers GET /metrics with what the collectors say, and the counters of the parts.
func Handler(parts *Parts, collectors ...prometheus.Collector) http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{own, parts}, promhttp.HandlerOpts{}))
	return mux
}
