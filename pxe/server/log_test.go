package server

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

type refuseAll struct{}

func (refuseAll) Boot(context.Context, pxe.Machine) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionRefuse, Reason: "no"}
}

// TestRequestsDoNotFillTheLog: a loop of requests leaves the journal to others.
func TestRequestsDoNotFillTheLog(t *testing.T) {
	var out bytes.Buffer
	s, err := New(Config{Interface: "lo", Addr: netip.MustParseAddr("127.0.0.1"), BootDirs: []string{t.TempDir()}, Booter: refuseAll{},
		Log: slog.New(slog.NewTextHandler(&out, nil))})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for range 20000 {
		s.http.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/ipxe/52-54-00-00-00-01", nil))
	}
	assert.Less(t, bytes.Count(out.Bytes(), []byte("\n")), 10000)
	assert.Contains(t, out.String(), "msg=\"http: request\"")
}
