package nodehealth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/freeport"
)

func TestTheLastTryIsAnswered(t *testing.T) {
	port, err := freeport.FindTCP()
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", port)

	var log strings.Builder
	h := New("table", slog.New(slog.NewTextHandler(&log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	ended, err := h.Serve(ctx, addr)
	require.NoError(t, err)
	ask := func() (int, string) {
		t.Helper()
		r, err := http.Get("http://" + addr)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, strings.TrimSpace(string(text))
	}

	code, text := ask()
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Equal(t, "not looked yet", text)
	for _, err := range []error{errors.New("no nft"), errors.New("no nft"), nil, nil} {
		h.Set(err)
	}
	code, _ = ask()
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, 1, strings.Count(log.String(), "no nft"), "an error is said once")
	assert.Equal(t, 1, strings.Count(log.String(), "table is as wanted"))

	stop()
	<-ended
}
