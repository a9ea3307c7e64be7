package page

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// hung ends a test that waits for what never comes.
const hung = 2 * time.Minute

// serveAlone serves on the loopback by TLS, and returns a client that trusts the authority.
func serveAlone(t testing.TB, s *Server) (string, *http.Client) {
	addr := netip.MustParseAddr("127.0.0.1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, []netip.Addr{addr}, []net.Listener{listener}) }()
	authority, err := s.authority()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(authority.PEM()))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		assert.NoError(t, <-ended)
	})
	return "https://" + listener.Addr().String(), &http.Client{Transport: transport}
}

// stream opens a stream of a session, until ctx ends.
func stream(ctx context.Context, t testing.TB, client *http.Client, url, secret string) *http.Response {
	r, err := http.NewRequestWithContext(ctx, "GET", url+"/events", nil)
	require.NoError(t, err)
	r.AddCookie(&http.Cookie{Name: cookie, Value: secret})
	answer, err := client.Do(r)
	for err != nil && ctx.Err() == nil { // on a busy machine the server gave the connection up before this side got on
		answer, err = client.Do(r)
	}
	if err != nil {
		assert.NoError(t, err)
		return &http.Response{Body: http.NoBody}
	}
	return answer
}

// nextVersion is the version that a stream says next; "" at its end.
func nextVersion(lines *bufio.Scanner) string {
	for lines.Scan() {
		if version, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return version
		}
	}
	return ""
}

func TestAStreamSaysWhatChanged(t *testing.T) {
	var mu sync.Mutex
	of := rack(10)
	sources := of.sources()
	document := sources.Document
	sources.Document = func() status.Document {
		mu.Lock()
		defer mu.Unlock()
		return document()
	}
	s := newServer(t, of)
	s.sources = sources
	url, client := serveAlone(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	b := logIn(t, s)
	answer := stream(ctx, t, client, url, b.cookie)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)

	first := nextVersion(lines)
	shown := func() string { return b.open("/").id("main").attr("data-version") }
	assert.Equal(t, first, shown(), "a page that is new is not fetched again")
	mu.Lock()
	of.doc.Name = "firstlight-cd34"
	mu.Unlock()
	second := nextVersion(lines)
	assert.NotEqual(t, first, second)
	assert.Equal(t, second, shown())

	s.logins.close(b.cookie)
	for second != "" { // a minute may begin meanwhile
		second = nextVersion(lines)
	}
	assert.NoError(t, ctx.Err(), "the stream ends with its session")
}

// TestFiveHundredTabs opens streams as 500 tabs of 63 browsers do: a share of them is served, the others are refused at
// once, pages come meanwhile, and nothing of it stays.
func TestFiveHundredTabs(t *testing.T) {
	s := newServer(t, rack(200))
	url, client := serveAlone(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	var opened, refused atomic.Int32
	var all sync.WaitGroup
	sessions := make([]browser, 63)
	for i := range sessions {
		sessions[i] = logIn(t, s)
	}
	bodies := make(chan func() error, 500)
	for i := range 500 {
		all.Go(func() {
			answer := stream(ctx, t, client, url, sessions[i%len(sessions)].cookie)
			switch answer.StatusCode {
			case http.StatusOK:
				opened.Add(1)
				bodies <- answer.Body.Close
			case http.StatusServiceUnavailable:
				refused.Add(1)
				assert.NotEmpty(t, answer.Header.Get("Retry-After"))
				answer.Body.Close()
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, maxStreams, opened.Load())
	assert.EqualValues(t, 500-maxStreams, refused.Load())
	assert.NotNil(t, sessions[0].open("/").id("headline"), "pages are served meanwhile")

	close(bodies)
	for end := range bodies {
		_ = end()
	}
	require.Eventually(t, func() bool { return len(s.streams) == 0 }, hung, 50*time.Millisecond, "all places are free again")
	for _, b := range sessions {
		assert.Zero(t, s.logins.find(b.cookie, false).streams)
	}
}

func TestASessionHasItsShareOfStreams(t *testing.T) {
	s := newServer(t, rack(1))
	url, client := serveAlone(t, s)
	b, other := logIn(t, s), logIn(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	for range maxSessionStreams {
		answer := stream(ctx, t, client, url, b.cookie)
		defer answer.Body.Close()
		require.Equal(t, http.StatusOK, answer.StatusCode)
	}
	for want, of := range map[int]browser{http.StatusServiceUnavailable: b, http.StatusOK: other} {
		answer := stream(ctx, t, client, url, of.cookie)
		answer.Body.Close()
		assert.Equal(t, want, answer.StatusCode)
	}
}
