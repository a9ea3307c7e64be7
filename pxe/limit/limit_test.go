package limit

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var quiet = slog.New(slog.DiscardHandler)

// machine is the connection of a client; what it is for is only to be counted.
type machine struct {
	net.Conn
	closed bool
}

func (m *machine) Close() error { m.closed = true; return nil }

// connect lets a client open so many connections and returns those that are open afterwards.
func connect(s *shares, client string, count int) (open []*conn) {
	for range count {
		c := &conn{Conn: &machine{}, shares: s, client: netip.MustParseAddr(client)}
		if s.admit(c) {
			open = append(open, c)
		}
	}
	return open
}

func alive(all []*conn) (n int) {
	for _, c := range all {
		if !c.Conn.(*machine).closed {
			n++
		}
	}
	return n
}

func TestSharesAreFair(t *testing.T) {
	s := newShares(100, 64, nil, quiet)
	first := connect(s, "10.0.0.1", 80)
	assert.Len(t, first, 64, "more than one client may have")
	second := connect(s, "10.0.0.2", 64)
	assert.Equal(t, []int{50, 50}, []int{alive(first), alive(second)}, "each has half")
	third := connect(s, "10.0.0.3", 64)
	assert.Equal(t, 100, alive(first)+alive(second)+alive(third))
	for _, n := range []int{alive(first), alive(second), alive(third)} {
		assert.InDelta(t, 33, n, 1, "each has a third")
	}
	assert.False(t, first[0].Conn.(*machine).closed, "what came first stays")
	for _, c := range second {
		_ = c.Close()
		_ = c.Close() // a second time gives nothing back
	}
	assert.Equal(t, 100-alive(first)-alive(third), s.common)
	for _, c := range append(first, third...) {
		_ = c.Close()
	}
	assert.Equal(t, 100, s.common)
	assert.Empty(t, s.open)
}

func TestOneEachIsNotTakenAway(t *testing.T) {
	s := newShares(4, 2, nil, quiet)
	var all []*conn
	for _, client := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		all = append(all, connect(s, client, 1)...)
	}
	assert.Empty(t, connect(s, "10.0.0.5", 1), "nobody has more than it would have")
	assert.Equal(t, 4, alive(all))
}

func TestHalfIsKeptForKnownMachines(t *testing.T) {
	node := netip.MustParseAddr("10.0.0.9")
	s := newShares(64, 16, func(a netip.Addr) bool { return a == node }, quiet)
	var strangers []*conn
	for _, client := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"} {
		strangers = append(strangers, connect(s, client, 16)...)
	}
	assert.Equal(t, 32, alive(strangers), "they have their half")
	assert.Len(t, connect(s, node.String(), 16), 16)
	assert.Equal(t, 32, alive(strangers), "the node takes nothing from them")
	assert.Len(t, connect(s, "10.0.0.5", 1), 1, "one more stranger is served, too")
	own := &conn{Conn: &machine{}, shares: s}
	assert.True(t, s.admit(own), "what runs here is never refused")
}

// comers is a listener to which connections come from given addresses, one after the other.
type comers struct {
	net.Listener
	from []string
}

func (c *comers) Accept() (net.Conn, error) {
	if len(c.from) == 0 {
		return nil, net.ErrClosed
	}
	next := &comer{from: &net.TCPAddr{IP: net.ParseIP(c.from[0]), Port: 1024}}
	c.from = c.from[1:]
	return next, nil
}

// comer is one of them.
type comer struct {
	machine
	from net.Addr
}

func (c *comer) RemoteAddr() net.Addr { return c.from }
func (c *comer) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443} }

// TestAMachineThatConnectsWithoutEndIsSentAway: what it ends at once it may begin again, but not as often as it can.
func TestAMachineThatConnectsWithoutEndIsSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{shares: newShares(1024, 64, nil, quiet), handshakes: &Senders{Every: time.Second / handshakesPerSecond, Burst: handshakesAtOnce}}
		begun := func(from ...string) map[string]int {
			l.Listener = &comers{from: from}
			accepted := map[string]int{}
			for {
				c, err := l.Accept()
				if err != nil {
					return accepted
				}
				accepted[addrOf(c.RemoteAddr()).String()]++
				_ = c.Close()
			}
		}
		loop := slices.Repeat([]string{"10.0.0.66"}, 5000)
		assert.Equal(t, map[string]int{"10.0.0.66": handshakesAtOnce, "10.0.0.7": 1}, begun(append(loop, "10.0.0.7")...))
		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"10.0.0.66": handshakesPerSecond}, begun(loop...))
		own := slices.Repeat([]string{"10.0.0.1"}, 5000)
		assert.Equal(t, map[string]int{"10.0.0.1": 5000}, begun(own...), "programs here wait for nobody")
	})
}

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, s *Server) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	return l.Addr().String()
}

// pipes is a listener without sockets, for a bubble of time.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error {
	select {
	case <-p.end:
	default:
		close(p.end)
	}
	return nil
}

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// TestWhatMovesStaysAndWhatDoesNotIsCut: heads, bodies, answers and pauses, in a bubble whose time no load changes.
func TestWhatMovesStaysAndWhatDoesNotIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Log: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			time.Sleep(10 * time.Minute) // an answer may take its time
			_, _ = w.Write(append(b, make([]byte, 3<<20)...))
		})}
		p := &pipes{conns: make(chan net.Conn), end: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(ctx, p) }()
		cutAfter := func(c net.Conn) time.Duration {
			begun := time.Now()
			_, _ = io.Copy(io.Discard, c)
			return time.Since(begun)
		}

		silent := p.dial()
		assert.Equal(t, defaultHeader, cutAfter(silent), "a head that never comes")
		half := p.dial()
		_, err := io.WriteString(half, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
		require.NoError(t, err)
		assert.Equal(t, time.Minute, cutAfter(half), "a body that stops")

		slow := p.dial()
		_, err = io.WriteString(slow, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
		require.NoError(t, err)
		for range 5 {
			time.Sleep(50 * time.Second)
			_, err = io.WriteString(slow, "x")
			require.NoError(t, err, "a slow body moves")
		}
		answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
		require.NoError(t, err)
		all, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		assert.Len(t, all, 3<<20+5, "a slow client has its answer")
		assert.Equal(t, time.Minute, cutAfter(slow), "between two requests")

		stuck := p.dial()
		_, err = io.WriteString(stuck, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		_, err = stuck.Read(make([]byte, 1))
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		n, _ := io.Copy(io.Discard, stuck)
		assert.Less(t, n, int64(3<<20), "an answer that is not taken")
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestFilesAreSentWhole(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte(strings.Repeat("0123456789abcdef", 5<<16)), 0o600))
	addr := serve(t, &Server{Log: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, name)
	})})
	answer, err := http.Get("http://" + addr + "/file")
	require.NoError(t, err)
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.True(t, string(want) == string(got))
}

// TestOverTLS: one version of HTTP, and a certificate that is the server's.
func TestOverTLS(t *testing.T) {
	fixture := httptest.NewTLSServer(nil)
	defer fixture.Close()
	addr := serve(t, &Server{Log: quiet, TLS: &tls.Config{Certificates: fixture.TLS.Certificates},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })})
	client := fixture.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	answer, err := client.Get("https://" + addr)
	require.NoError(t, err)
	defer answer.Body.Close()
	proto, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1", string(proto))
}
