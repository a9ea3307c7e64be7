package metrics

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

func document() status.Document {
	return status.Document{State: status.StateWorking, Started: time.Unix(1700000000, 0),
		Stages:     []status.Stage{{Name: "links-up", State: status.StateReady, Attempts: 2}, {Name: "node-ready", State: status.StateWaiting}},
		Nodes:      []status.Node{{Name: "node-1", State: "provisioned", Rule: "proven", Percent: 100, Verified: true}, {Name: "node-2", State: "absent", Percent: 25, Next: "plug it in"}},
		Launch:     status.Launch{State: status.LaunchRunning, Elapsed: 12.5},
		Clusters:   []status.Cluster{{Name: "edge", State: "ready"}, {Name: "far", State: "failed", Error: "e"}},
		Components: []status.Component{{Name: "shop/db", On: []status.ComponentOn{{Cluster: "edge", State: "degraded"}}}},
		Addresses:  []status.Address{{Role: "bmc", DHCP: "silent"}, {Role: "baremetal"}},
		AwayCopy:   &status.AwayCopy{Made: time.Unix(1700000000, 0), Error: "no route to host"},
		Source:     &status.Source{State: status.SourceLost, Behind: time.Unix(1800000000, 0)}}
}

func read(t *testing.T, parts *Parts) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(parts, StatusCollector{document}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	return w.Body.String()
}

func TestTheDocumentAsFigures(t *testing.T) {
	text := read(t, &Parts{})
	for _, line := range []string{
		"firstlight_ready 0",
		"firstlight_start_time_seconds 1.7e+09",
		`firstlight_stage_ready{stage="links-up"} 1`,
		`firstlight_stage_ready{stage="node-ready"} 0`,
		`firstlight_stage_attempts_total{stage="links-up"} 2`,
		`firstlight_node_state{node="node-1",situation="proven",state="provisioned"} 1`,
		`firstlight_node_proven{node="node-1"} 1`,
		`firstlight_node_proven{node="node-2"} 0`,
		`firstlight_node_progress_ratio{node="node-2"} 0.25`,
		`firstlight_launch_state{state="running"} 1`,
		"firstlight_launch_elapsed_seconds 12.5",
		`firstlight_cluster_state{cluster="edge",state="ready"} 1`,
		`firstlight_node_needs_action{node="node-1"} 0`,
		`firstlight_node_needs_action{node="node-2"} 1`,
		`firstlight_cluster_needs_action{cluster="edge"} 0`,
		`firstlight_cluster_needs_action{cluster="far"} 1`,
		`firstlight_component_state{cluster="edge",component="shop/db",state="degraded"} 1`,
		`firstlight_network_dhcp_state{network="bmc",state="silent"} 1`,
		"firstlight_away_copy_failed 1",
		"firstlight_away_copy_timestamp_seconds 1.7e+09",
		`firstlight_source_state{state="lost"} 1`,
		"firstlight_source_behind_timestamp_seconds 1.8e+09",
	} {
		assert.Contains(t, text, line+"\n")
	}
}

func TestAPartThatBeginsAnewBeginsWithNothing(t *testing.T) {
	parts := &Parts{}
	for range 2 { // what registers twice in one registry panics
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "firstlight_registry_sent_bytes_total", Help: "b"})
		parts.NewRegistry("registry").MustRegister(c)
		c.Add(7)
	}
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "firstlight_pxe_panics_total", Help: "p"})
	parts.NewRegistry("pxe").MustRegister(other)
	text := read(t, parts)
	assert.Contains(t, text, "firstlight_registry_sent_bytes_total 7\n")
	assert.Contains(t, text, "firstlight_pxe_panics_total 0\n")
}

// TestARemotePartIsOneOfThem: another process counts under its own words and labels, and one that is not there, or says
// something else, takes nothing from the others.
func TestARemotePartIsOneOfThem(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "metrics.sock")
	parts := &Parts{}
	parts.Set("registry", Remote{Socket: socket})
	own := prometheus.NewCounter(prometheus.CounterOpts{Name: "firstlight_pxe_panics_total", Help: "p"})
	parts.NewRegistry("pxe").MustRegister(own)
	assert.NotContains(t, read(t, parts), "firstlight_registry")

	remote := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "firstlight_registry_requests_total", Help: "r"}, []string{"method", "code"})
	remote.MustRegister(c)
	c.WithLabelValues("GET", "200").Add(3)
	var answer http.Handler = promhttp.HandlerFor(remote, promhttp.HandlerOpts{})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer.ServeHTTP(w, r) }),
	}}
	server.Start()
	defer server.Close()
	text := read(t, parts)
	assert.Contains(t, text, "# TYPE firstlight_registry_requests_total counter\n")
	assert.Contains(t, text, `firstlight_registry_requests_total{code="200",method="GET"} 3`+"\n")
	assert.Contains(t, text, "firstlight_pxe_panics_total 0\n")

	answer = http.NotFoundHandler()
	assert.NotContains(t, read(t, parts), "firstlight_registry")
	answer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no metrics {") })
	text = read(t, parts)
	assert.NotContains(t, text, "firstlight_registry")
	assert.Contains(t, text, "firstlight_pxe_panics_total 0\n")
}
