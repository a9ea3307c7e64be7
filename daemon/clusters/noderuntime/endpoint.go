package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Endpoint gives the API servers of a cluster one address on this node, so that nothing outside the
// cluster has to hold a common one: whatever runs here asks 127.0.0.1 and is connected to a server that
// answers. TLS goes through it untouched.
type Endpoint struct {
	Servers []netip.AddrPort
	Log     *slog.Logger

	good atomic.Int64 // index of the server that answered last: tried first
	dial func(context.Context, netip.AddrPort) (net.Conn, error)
}

const (
	dialTimeout = 3 * time.Second // for one server out of several; the next is tried then
	lookEvery   = 5 * time.Second
)

// Run listens at an address, with a port, until ctx ends.
func (e *Endpoint) Run(ctx context.Context, listen string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	return e.serve(ctx, listener)
}

// serve connects whoever comes until ctx ends, and then ends what is connected.
func (e *Endpoint) serve(ctx context.Context, listener net.Listener) error {
	if e.dial == nil {
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
		e.dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", to.String())
		}
	}

	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}

			var passing interface{ Temporary() bool }
			if errors.As(err, &passing) && passing.Temporary() { // out of files: they come back
				time.Sleep(100 * time.Millisecond)
				continue
			}

			return fmt.Errorf("accept: %w", err)
		}
		wg.Go(func() { e.connect(ctx, conn) })
	}
}

// connect joins a client with the first server that takes it.
func (e *Endpoint) connect(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := e.dialServer(ctx)
	if err != nil {
		e.Log.Warn("no API server answers", "error", err)
		return
	}
	defer server.Close()

	defer context.AfterFunc(ctx, func() { _ = client.Close(); _ = server.Close() })()
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(server, client) })
	wg.Go(func() { copyHalf(client, server) })
	wg.Wait()
}

// dialServer tries the server that answered last, then the others in turn.
func (e *Endpoint) dialServer(ctx context.Context) (net.Conn, error) {
	first := e.good.Load()
	var all []error
	for i := range e.Servers {
		at := (int(first) + i) % len(e.Servers)
		conn, err := e.dial(ctx, e.Servers[at])
		if err == nil {
			if i > 0 {
				e.good.Store(int64(at))
				e.Log.Info("another API server is used", "server", e.Servers[at], "instead of", e.Servers[first])
			}
			return conn, nil
		}

		all = append(all, err)
	}

	return nil, errors.Join(all...)
}

// copyHalf copies one direction and tells the other end that it is over.
func copyHalf(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}

	_ = to.Close()
	_ = from.Close()
}
