// Package nodehealth tells the kubelet whether what a pod keeps on a node is as wanted.
package nodehealth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"firstlight.dev/firstlight/pxe/limit"
)

// Health is how the last try went. At first it is an error: nothing was tried.
type Health struct {
	what string // that is as wanted, or not
	log  *slog.Logger

	mu    sync.Mutex
	state error
}

// New is of something that is not looked at yet; what names it, for people.
func New(what string, log *slog.Logger) *Health {
	return &Health{what: what, log: log, state: errors.New("not looked yet")}
}

// Set takes what a try came to. Each change is logged once.
func (h *Health) Set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && (h.state == nil || h.state.Error() != err.Error()) {
		h.log.Error(h.what+" is not as wanted", "error", err)
	} else if err == nil && h.state != nil {
		h.log.Info(h.what + " is as wanted")
	}
	h.state = err
}

// Serve answers at an address, 200 or 503 with the error, until ctx ends. The channel gets the error that ended it.
func (h *Health) Serve(ctx context.Context, addr string) (<-chan error, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for questions of health: %w", err)
	}

	server := &limit.Server{Handler: http.HandlerFunc(h.answer), Log: h.log}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	return ended, nil
}

func (h *Health) answer(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != nil {
		http.Error(w, h.state.Error(), http.StatusServiceUnavailable)
	}
}
