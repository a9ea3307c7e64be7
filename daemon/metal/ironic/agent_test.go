package ironic

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAgentsDue(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	node := func(power string, ago time.Duration, url string) string {
		return fmt.Sprintf(`{"uuid": "one", "power_state": %q, "inspection_finished_at": %q, "driver_internal_info": {%s}}`, power, now.Add(-ago).Format("2006-01-02T15:04:05+00:00"), url)
	}
	const called = `"agent_url": "https://172.22.0.33:9999"`
	for name, c := range map[string]struct {
		answer string
		want   bool
	}{
		"inspected, and silent since":        {node("power on", 10*time.Second, ""), true},
		"inspected, and called":              {node("power on", 10*time.Second, called), false},
		"silent for longer than Ironic is":   {node("power on", FastTrack+time.Second, ""), false},
		"switched off":                       {node("power off", 10*time.Second, ""), false},
		"inspected before the clock was set": {node("power on", -time.Hour, ""), true},
		"never inspected":                    {`{"uuid": "one", "power_state": "power on", "inspection_finished_at": null, "driver_internal_info": {}}`, false},
		"not there":                          {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/v1/nodes", r.URL.Path)
				_, _ = fmt.Fprintf(w, `{"nodes": [%s]}`, c.answer)
			}))
			defer server.Close()
			root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			got, err := API{Endpoint: server.URL, CA: root}.AgentsDue(t.Context(), now)
			require.NoError(t, err)
			assert.Equal(t, c.want, got["one"])
		})
	}
}
