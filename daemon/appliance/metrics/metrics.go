// Package metrics gives the appliance's figures to whoever reads Prometheus' text format: how stages,
// nodes and clusters stand, made from the status document at each reading, and the counters of the
// parts that serve the site. docs/metrics.md lists them; a test holds the two together.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/pxe/limit"
)

// Address is where they are read: on the appliance itself, since they need no log-in.
const Address = "127.0.0.1:9100"

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

// StatusCollector is the collector of what the status document says.
type StatusCollector struct{ Document func() status.Document }

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("firstlight_"+name, help, labels, nil)
}

var (
	ready     = newDesc("ready", "1 while every stage of the plan holds.")
	started   = newDesc("start_time_seconds", "When the daemon started, in seconds since 1970.")
	stage     = newDesc("stage_ready", "1 while the stage holds, else 0.", "stage")
	attempts  = newDesc("stage_attempts", "Times a stage was acted on since the daemon started.", "stage")
	node      = newDesc("node_state", "1 for the state that the node is in.", "node", "state", "situation")
	verified  = newDesc("node_proven", "1 if every check of the node's launch held, else 0.", "node")
	percent   = newDesc("node_progress_ratio", "How far the node is on its way to proven, 0 to 1.", "node")
	launch    = newDesc("launch_state", "1 for the state that the launch is in.", "state")
	launchFor = newDesc("launch_elapsed_seconds", "Time that the launch took so far, counted while the appliance ran.")
	cluster   = newDesc("cluster_state", "1 for the state that the cluster is in.", "cluster", "state")
)

// Describe implements prometheus.Collector.
func (StatusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ready, started, stage, attempts, node, verified, percent, launch, launchFor, cluster} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s StatusCollector) Collect(to chan<- prometheus.Metric) {
	d := s.Document()
	put := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	put(ready, boolValue(d.State == status.StateReady))
	put(started, float64(d.Started.Unix()))
	for _, one := range d.Stages {
		put(stage, boolValue(one.State == status.StateReady), one.Name)
		put(attempts, float64(one.Attempts), one.Name)
	}

	for _, n := range d.Nodes {
		put(node, 1, n.Name, n.State, n.Rule)
		put(verified, boolValue(n.Verified), n.Name)
		put(percent, float64(n.Percent)/100, n.Name)
	}

	if d.Launch.State != "" {
		put(launch, 1, string(d.Launch.State))
		put(launchFor, d.Launch.Elapsed)
	}

	for _, c := range d.Clusters {
		put(cluster, 1, c.Name, c.State)
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Handler answers GET /metrics with all of it.
func Handler(document func() status.Document, parts *Parts) http.Handler {
	own := prometheus.NewRegistry()
	own.MustRegister(StatusCollector{document})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{own, parts}, promhttp.HandlerOpts{}))
	return mux
}

// Serve answers on an address until ctx ends.
func Serve(ctx context.Context, address string, h http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for readers of metrics: %w", err)
	}

	if err := (&limit.Server{Handler: h, Log: log}).Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}

	return nil
}
