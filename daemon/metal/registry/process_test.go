package registry

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/metrics"
)

// TestTheProcessServesWhatItIsTold from the moment that it is told, at another address when that changes, and counts
// for whoever reads its socket.
func TestTheProcessServesWhatItIsTold(t *testing.T) {
	dir := t.TempDir()
	p := &Process{
		Settings: filepath.Join(dir, "settings"),
		Layout:   filepath.Join(dir, "none"),
		Store:    filepath.Join(dir, "store"),
		Metrics:  filepath.Join(dir, "run", "metrics.sock"),
		Port:     8001, // at addresses of its own
		Log:      slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	a := newAuthority(t)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: a.Pool()},
	}}
	says := func(at, want string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			response, err := client.Get("https://" + at + ":8001" + AddressesPath)
			if !assert.NoError(c, err) {
				return
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			assert.NoError(c, err)
			assert.Equal(c, want, string(text))
		}, time.Minute, 50*time.Millisecond)
	}
	for _, at := range []string{"127.0.0.2", "127.0.0.3"} {
		require.NoError(t, settingsOf(t, a, at+"/8").Write(p.Settings, os.Getgid()))
		says(at, at+"/8\n")
	}
	families, err := metrics.Remote{Socket: p.Metrics}.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	assert.ElementsMatch(t, []string{"firstlight_registry_requests_total", "firstlight_registry_sent_bytes_total"}, names)
	cancel()
	assert.NoError(t, <-ended)
}
