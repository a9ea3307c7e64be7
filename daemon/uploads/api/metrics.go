package api

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/artifact"
)

// counters are what the agent counts.
type counters struct {
	registry       *prometheus.Registry
	requests       *prometheus.CounterVec
	received, sent prometheus.Counter
}

func newCounters(r *prometheus.Registry) *counters {
	c := &counters{registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firstlight_artifact_requests_total",
			Help: "Requests answered, by method and status.",
		}, []string{"method", "status"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firstlight_artifact_received_bytes_total",
			Help: "Bytes of artifacts received.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firstlight_artifact_sent_bytes_total",
			Help: "Bytes of artifacts sent.",
		}),
	}
	r.MustRegister(c.requests, c.received, c.sent)
	return c
}

// usageCollector tells what the store holds whenever it is asked.
type usageCollector struct{ a *Agent }

func usageDescs() []*prometheus.Desc {
	labels := []string{"collection"}
	return []*prometheus.Desc{
		prometheus.NewDesc("firstlight_artifacts", "Artifacts, complete or not.", labels, nil),
		prometheus.NewDesc("firstlight_artifacts_complete", "Complete artifacts.", labels, nil),
		prometheus.NewDesc(
			"firstlight_artifact_stored_bytes", "Bytes received of the artifacts that there are.", labels, nil,
		),
		prometheus.NewDesc(
			"firstlight_artifact_announced_bytes", "Bytes announced of the artifacts that there are.", labels, nil,
		),
		prometheus.NewDesc("firstlight_artifact_transfers", "Uploads and downloads under way.", nil, nil),
		prometheus.NewDesc(
			"firstlight_artifact_store_read", "1 if the store was read since the agent started.", nil, nil,
		),
		prometheus.NewDesc(
			"firstlight_artifact_disk_bytes", "Size of the file system of store and scratch files.", nil, nil,
		),
		prometheus.NewDesc("firstlight_artifact_disk_free_bytes", "Bytes that are free on it.", nil, nil),
	}
}

func (usageCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range usageDescs() {
		out <- d
	}
}

func (u usageCollector) Collect(out chan<- prometheus.Metric) {
	descs := usageDescs()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descs[4], float64(len(u.a.transfers)))
	var s unix.Statfs_t
	if u.a.Config.Blobs.Local && unix.Statfs(u.a.Config.Blobs.Scratch, &s) == nil {
		gauge(descs[6], float64(int64(s.Blocks)*s.Bsize))
		gauge(descs[7], float64(int64(s.Bavail)*s.Bsize))
	}

	d := u.a.blobs.Load()
	if d == nil {
		gauge(descs[5], 0)
		return
	}

	gauge(descs[5], 1)
	sums := d.Usage()
	for _, c := range artifact.Collections() {
		s := sums[c]
		for i, v := range []int64{int64(s.Artifacts), int64(s.Complete), s.Octets, s.Announced} {
			gauge(descs[i], float64(v), string(c))
		}
	}
}

func (a *Agent) serveMetrics(w http.ResponseWriter, r *http.Request, _ call) error {
	promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// countRequests counts every answer.
func (a *Agent) countRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(c, r)
		a.metrics.requests.WithLabelValues(methodLabel(r.Method), strconv.Itoa(c.status)).Inc()
	})
}

// methodLabel is a label of few values, whatever clients send.
func methodLabel(m string) string {
	switch m {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE":
		return m
	}
	return "other"
}

// statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
