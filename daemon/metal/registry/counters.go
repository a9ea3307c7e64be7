package registry

import "github.com/prometheus/client_golang/prometheus"

// Counters are what the registry counts.
type Counters struct {
	Requests  *prometheus.CounterVec // method, code: the status of the answer
	SentBytes prometheus.Counter
}

// NewCounters makes the counters and registers them with a registry, unless that is nil.
func NewCounters(to prometheus.Registerer) *Counters {
	c := &Counters{
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firstlight_registry_requests_total",
			Help: "Requests for container images, by method and status.",
		}, []string{"method", "code"}),
		SentBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firstlight_registry_sent_bytes_total",
			Help: "Bytes of container images sent.",
		}),
	}
	if to != nil {
		to.MustRegister(c.Requests, c.SentBytes)
	}
	return c
}
