package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"firstlight.dev/firstlight/pxe/limit"
)

// page is what each part of the chain says of itself over HTTP.
type page struct {
	Now     func(context.Context) (any, error) // at /, as JSON
	Ready   func() error                       // at /ready: 200, or 503 and why not
	Metrics []prometheus.Collector             // at /metrics
	Log     *slog.Logger
}

// serve answers at ADDRESS:PORT until ctx ends.
func (p page) serve(ctx context.Context, at string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("listen for questions: %w", err)
	}
	server := &limit.Server{Handler: p.handler(), Log: p.Log}
	if err := server.Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("answer questions: %w", err)
	}
	return nil
}

func (p page) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.Metrics...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := p.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		now, err := p.Now(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(now)
	})
	return mux
}

// meter makes packets per second of a count that grows. The count may begin again at zero.
type meter struct {
	mu        sync.Mutex
	count     uint64
	at        time.Time // zero: nothing was counted yet
	perSecond float64
}

// advance takes the count of now, and returns the packets per second since the last one.
func (m *meter) advance(count uint64, now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if count < m.count {
		m.count = 0
	}
	if passed := now.Sub(m.at).Seconds(); !m.at.IsZero() && passed > 0 {
		m.perSecond = math.Round(float64(count-m.count)/passed*10) / 10
	}
	m.count, m.at = count, now
	return m.perSecond
}

// rate is what advance returned.
func (m *meter) rate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.perSecond
}

// repeat calls do until ctx ends.
func repeat(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

func counter(name, help string, value func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) },
	)
}
