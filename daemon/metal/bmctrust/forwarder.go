package bmctrust

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/pxe/limit"
)

// Address is where the forwarder listens: on the loopback, which Ironic's pod shares.
const Address = "127.0.0.1:6188"

// Timeouts. BMCs are slow: seconds for a handshake are usual. Ironic gives up after a minute.
const (
	dialTimeout      = 20 * time.Second
	handshakeTimeout = 30 * time.Second
)

// Forwarder is the proxy by which Ironic speaks to BMCs with TLS (CONNECT, RFC 9110, 9.3.6). It checks the certificate
// of a BMC in the connection that the password then goes through, and shows Ironic one of an authority that Ironic alone
// trusts, and no BMC's own. What goes to other machines it passes on as it is.
type Forwarder struct {
	Pins *Pins
	Log  *slog.Logger

	// BMC is the one at an endpoint; nil: no host has it. It must answer from memory. The error says that this is not
	// known yet.
	BMC func(endpoint string) (*site.BMC, error)
	// Certificate is what Ironic is shown in place of the BMC's, for the host that it asked for.
	Certificate func(host string) (tls.Certificate, error)

	// Refused counts connections to BMCs that were told nothing.
	Refused atomic.Int64
}

// Serve forwards until ctx ends.
func (f *Forwarder) Serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", Address)
	if err != nil {
		return fmt.Errorf("listen as forwarder to BMCs: %w", err)
	}

	if err := (&limit.Server{Handler: f, Log: f.Log}).Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("serve as forwarder to BMCs: %w", err)
	}

	return nil
}

// ServeHTTP makes one connection.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, "this forwarder takes CONNECT HOST:PORT", http.StatusMethodNotAllowed)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout+handshakeTimeout)
	defer cancel()
	endpoint := strings.ToLower(r.Host)
	b, err := f.BMC(endpoint)
	var far net.Conn
	if err == nil {
		far, err = f.dial(ctx, endpoint, b)
	}
	if err != nil {
		f.refuse(w, endpoint, err)
		return
	}
	defer far.Close()

	near, err := accept(w)
	if err != nil {
		f.Log.Debug("connection to a BMC ended", "bmc", endpoint, "error", err)
		return
	}
	defer near.Close()

	if b != nil {
		if near, err = f.secure(ctx, near, host); err != nil {
			f.Log.Warn("Ironic does not speak TLS to the forwarder", "bmc", endpoint, "error", err)
			return
		}
		defer near.Close()
	}

	join(r.Context(), near, far)
}

// dial connects to a BMC and checks it, or to another machine (b is nil).
func (f *Forwarder) dial(ctx context.Context, endpoint string, b *site.BMC) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if b == nil {
		return dialer.DialContext(ctx, "tcp", endpoint)
	}
	return (&tls.Dialer{NetDialer: dialer, Config: f.Pins.TLS(*b)}).DialContext(ctx, "tcp", endpoint)
}

// refuse answers with the reason in the status line, because Ironic shows that.
func (f *Forwarder) refuse(w http.ResponseWriter, endpoint string, err error) {
	var change Change
	if errors.As(err, &change) || errors.Is(err, ErrNotRecorded) {
		f.Refused.Add(1)
	}

	f.Log.Debug("connection of Ironic's refused", "to", endpoint, "error", err)
	conn, buffered, hijackErr := http.NewResponseController(w).Hijack()
	if hijackErr != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()

	reason := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, err.Error())
	fmt.Fprintf(buffered, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", reason)
	_ = buffered.Flush()
}

// accept takes the connection over and says that it stands.
func accept(w http.ResponseWriter) (net.Conn, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take connection over: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &rest{conn, buffered.Reader}, nil
}

// rest is a connection of which a part was read already.
type rest struct {
	net.Conn
	from *bufio.Reader
}

func (r *rest) Read(b []byte) (int, error) { return r.from.Read(b) }

// CloseWrite ends our side, as a TCP connection does.
func (r *rest) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return r.Conn.Close()
}

// secure is the BMC's side of TLS, for Ironic.
func (f *Forwarder) secure(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	certificate, err := f.Certificate(host)
	if err != nil {
		return nil, err
	}

	secured := tls.Server(conn, &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
	})
	return secured, secured.HandshakeContext(ctx)
}

// farewell is how long one side may still speak after the other has ended: a BMC that hangs is not waited for.
const farewell = time.Minute

// join carries bytes both ways until both sides have ended, or ctx has.
func join(ctx context.Context, near, far net.Conn) {
	stop := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
			_ = way[0].SetReadDeadline(time.Now().Add(farewell))
		})
	}
	both.Wait()
}
