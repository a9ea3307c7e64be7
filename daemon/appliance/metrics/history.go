package metrics

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Names of what a History keeps, besides Labeled ones.
const (
	Processors     = "firstlight_processors"
	ProcessorBusy  = "firstlight_processor_busy_seconds_total"
	MemorySize     = "firstlight_memory_size_bytes"
	MemoryFree     = "firstlight_memory_available_bytes"
	DHCPAcks       = "firstlight_pxe_dhcp_acks_total"
	TFTPBytes      = "firstlight_pxe_tftp_bytes_total"
	HTTPBytes      = "firstlight_pxe_http_bytes_total"
	ContainerBytes = "firstlight_registry_sent_bytes_total"
	NodeState      = "firstlight_node_state" // one for each state: NodeState/provisioned
)

// keptNames are the metrics of which the sum over all labels is kept; for NodeState one for each state.
var keptNames = []string{
	Processors, ProcessorBusy, MemorySize, MemoryFree, DHCPAcks, TFTPBytes, HTTPBytes, ContainerBytes, NodeState,
}

// How often a History takes a sample, and how many it has: those of an hour.
const (
	HistoryEvery = time.Minute
	historyKept  = 61
)

// Sample is what some metrics were at one moment, by their names. What could not be read is not in it. It is not changed.
type Sample struct {
	Time   time.Time
	Values map[string]float64
}

// History is the last hour of a few metrics, in memory alone.
type History struct {
	From prometheus.Gatherer
	Log  *slog.Logger

	mu      sync.Mutex
	samples []Sample
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context) error {
	tick := time.NewTicker(HistoryEvery)
	defer tick.Stop()
	for {
		h.take(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take adds a sample, and forgets those that are too old.
func (h *History) take(now time.Time) {
	families, err := h.From.Gather()
	if err != nil {
		h.Log.Debug("some metrics were not read", "error", err) // the others were
	}
	values := map[string]float64{}
	for _, f := range families {
		if !slices.Contains(keptNames, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			values[keyOf(f.GetName(), m)] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, Sample{now, values})
	h.samples = slices.Clone(h.samples[max(0, len(h.samples)-historyKept):])
}

func keyOf(name string, m *dto.Metric) string {
	if name != NodeState {
		return name
	}
	for _, l := range m.GetLabel() {
		if l.GetName() == "state" {
			return name + "/" + l.GetValue()
		}
	}
	return name
}

// Samples are those of the last hour, the oldest first.
func (h *History) Samples() []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.samples)
}
