package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNetworksReadAsTheSiteAllows: nothing answers before the site says where, and nothing after it has taken that back.
func TestNetworksReadAsTheSiteAllows(t *testing.T) {
	const url = "http://127.0.9.100:9100/metrics"
	var isAllowed atomic.Bool
	addresses := func() []netip.Addr {
		if isAllowed.Load() {
			return []netip.Addr{netip.MustParseAddr("127.0.9.100")}
		}
		return nil
	}
	answers := func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		handler := Handler(&Parts{}, StatusCollector{document})
		ended <- ServeNetworks(ctx, func() bool { return true }, addresses, handler, slog.New(slog.DiscardHandler))
	}()
	assert.False(t, answers())
	isAllowed.Store(true)
	require.Eventually(t, answers, time.Minute, 50*time.Millisecond)
	isAllowed.Store(false)
	require.Eventually(t, func() bool { return !answers() }, time.Minute, 50*time.Millisecond)

	cancel()
	assert.NoError(t, <-ended)
}
