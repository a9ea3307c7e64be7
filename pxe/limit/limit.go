// Package limit is what every HTTP server of the product is made of: it bounds what clients can hold. Connections are
// shared out fairly between addresses, half of them may be kept for machines that are known, and heads, bodies,
// answers and pauses have deadlines. A test holds the tree to it: no http.Server is made anywhere else.
package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
)

// Server answers HTTP/1.1 on any number of listeners. Handler and Log are required.
//
// HTTP/2 is left out: one connection would then hold hundreds of requests, and the limits count connections.
type Server struct {
	Handler http.Handler
	Log     *slog.Logger
	TLS     *tls.Config // nil: in clear

	Connections int // at once, those of programs on this machine apart; 0: 1024
	PerClient   int // of one address at once; 0: 64

	// Known reports whether a machine at an address is one that must be served whatever others do. Half of the
	// connections are kept for such machines. It must answer from memory; nil: none is known.
	Known func(netip.Addr) bool

	// Inside reports whether an address is that of a program which may have as many connections as it wants, as those
	// at this machine's own addresses may: a pod's. nil: none is.
	Inside func(netip.Addr) bool

	Header    time.Duration // for TLS and the head of a request; 0: 10 s
	Idle      time.Duration // between two requests; 0: 1 minute
	Stall     time.Duration // within a body, and for each MiB of an answer; 0: 1 minute
	MaxHeader int           // bytes of a request's head; 0: 64 KiB
	Grace     time.Duration // for requests under way when the server ends; 0: they are cut
}

// Defaults. Firmware, agents and container runtimes open a handful of connections each.
const (
	defaultConnections = 1024
	defaultPerClient   = 64
	defaultHeader      = 10 * time.Second
	defaultWait        = time.Minute
	defaultMaxHeader   = 64 << 10
)

// How many TLS connections one address may begin. Each costs a signature here and next to nothing there: one machine
// would have the appliance sign and do nothing else. A node that pulls its first images begins some dozens.
const (
	handshakesPerSecond = 32
	handshakesAtOnce    = 256
)

// orDefault is a value, or what stands for zero.
func orDefault[T int | time.Duration](value, usual T) T {
	if value <= 0 {
		return usual
	}
	return value
}

// Serve answers on listeners until ctx ends, which is the context of every request, too. It closes the listeners.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	shares := newShares(
		orDefault(s.Connections, defaultConnections), orDefault(s.PerClient, defaultPerClient), s.Known, s.Log,
	)
	stall := orDefault(s.Stall, defaultWait)
	server := &http.Server{
		Handler:           boundBodies(s.Handler, stall),
		ReadHeaderTimeout: orDefault(s.Header, defaultHeader),
		IdleTimeout:       orDefault(s.Idle, defaultWait),
		MaxHeaderBytes:    orDefault(s.MaxHeader, defaultMaxHeader),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
		// No WriteTimeout: two gigabytes to a slow management network take an hour. Instead each piece of an
		// answer must move within Stall; see conn.
	}
	server.Protocols.SetHTTP1(true)
	handshakes := &Senders{Every: time.Second / handshakesPerSecond, Burst: handshakesAtOnce}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- s.stop(server) })
	var group errgroup.Group
	for _, l := range listeners {
		group.Go(func() error {
			limited := &listener{Listener: l, shares: shares, inside: s.Inside, stall: stall}
			if s.TLS == nil {
				return end(server, server.Serve(limited))
			}

			limited.handshakes = handshakes
			return end(server, server.Serve(tls.NewListener(limited, s.TLS)))
		})
	}

	err := group.Wait()
	if !stop() {
		return errors.Join(err, <-stopped)
	}
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}

	return nil
}

// end is why a listener is not served any more; nil if all end.
func end(server *http.Server, err error) error {
	if !errors.Is(err, http.ErrServerClosed) { // then the others must not go on alone
		return errors.Join(err, server.Close())
	}
	return nil
}

// stop ends a server, and what is under way after its time.
func (s *Server) stop(server *http.Server) error {
	if s.Grace > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), s.Grace)
		defer cancel()
		if server.Shutdown(ctx) == nil {
			return nil
		}
	}
	return server.Close()
}

// boundBodies gives each read of a request's body its time.
func boundBodies(next http.Handler, stall time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &body{ReadCloser: r.Body, control: http.NewResponseController(w), stall: stall}
			b.extend() // also for what the server itself reads of a body that the handler leaves
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// body is a request's body that must move.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	b.extend()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// From here on the server reads ahead, to see whether the client goes: that may take as long as the answer.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// extend moves the deadline on. A connection that is gone has none and reads no more anyway.
func (b *body) extend() { _ = b.control.SetReadDeadline(time.Now().Add(b.stall)) }
