package daemon

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/registry"
	pxemetrics "firstlight.dev/firstlight/pxe/metrics"
)

// scrape is what a reader of metrics gets of every part, where each vector has counted something.
func scrape(t *testing.T) string {
	t.Helper()
	parts := new(metrics.Parts)
	(&bmctrust.Forwarder{Pins: new(bmctrust.Pins)}).Register(parts.NewRegistry("bmc"))
	registry.NewCounters(parts.NewRegistry("registry")).Requests.WithLabelValues("GET", "200").Inc()
	boot := pxemetrics.New(parts.NewRegistry("pxe"))
	boot.DHCPRefusals.WithLabelValues("pool-empty").Inc()
	boot.TFTPTransfers.WithLabelValues("done").Inc()
	boot.HTTPRequests.WithLabelValues("2xx").Inc()
	boot.Scripts.WithLabelValues("disk").Inc()
	boot.Panics.WithLabelValues("dhcp").Inc()

	document := status.Document{
		State:      status.StateReady,
		Stages:     []status.Stage{{Name: "links-up", State: status.StateReady, Attempts: 1}},
		Nodes:      []status.Node{{Name: "node-1", State: "provisioned", Rule: "proven"}},
		Launch:     status.Launch{State: status.LaunchRunning},
		Clusters:   []status.Cluster{{Name: "edge", State: status.ClusterReady}},
		Components: []status.Component{{Name: "shop/db", On: []status.ComponentOn{{Cluster: "edge", State: "ready"}}}},
		Addresses:  []status.Address{{Role: "bmc", DHCP: "serving"}},
		AwayCopy:   &status.AwayCopy{Made: time.Now()},
		Source:     &status.Source{State: status.SourceLost, Behind: time.Now()},
	}
	dir := t.TempDir()
	authority, err := ca.Open(dir, time.Now)
	require.NoError(t, err)
	_, _, err = authority.Issue("page", ca.Names{Of: "page"})
	require.NoError(t, err)

	w := httptest.NewRecorder()
	metrics.Handler(parts,
		metrics.StatusCollector{Document: func() status.Document { return document }},
		metrics.MachineCollector{Data: dir, Proc: procWithPressure(t), Certificates: []string{dir + "/*.crt"}},
	).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	return w.Body.String()
}

// procWithPressure is a proc as the appliance's kernel has it; not every kernel that runs tests counts pressure.
func procWithPressure(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pressure"), 0o755))
	for name, text := range map[string]string{
		"meminfo":      "MemTotal: 2048 kB\nMemAvailable: 512 kB\n",
		"stat":         "cpu  100 0 50 800 0 0 0 0 0 0\ncpu0 100 0 50 800 0 0 0 0 0 0\nbtime 1\n",
		"pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestMetricsFollowTheConventions: names, base units, _total and help texts, as Prometheus' own linter wants them.
func TestMetricsFollowTheConventions(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t))).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// TestThePageListsTheMetrics: it names what there is with its labels, and nothing else; pxe's are one row.
func TestThePageListsTheMetrics(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(firstlight_[a-z_]+)` \\| ([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = sortedLabels(regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(m[2], -1))
	}

	exposed := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(firstlight_[a-z_]+)(?:\{(.*)\})? `).FindAllStringSubmatch(scrape(t), -1) {
		if !strings.HasPrefix(m[1], "firstlight_pxe_") {
			exposed[m[1]] = sortedLabels(regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(m[2], -1))
		}
	}
	assert.Equal(t, exposed, listed)
}

// sortedLabels are the first groups of matches, in order.
func sortedLabels(matches [][]string) string {
	var names []string
	for _, m := range matches {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
