package page

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bench"
)

// firstPaint is the goal of the rack of 200 nodes: milliseconds from a request to its last byte.
const firstPaint = 200

// BenchmarkFirstPaint is the server time of the first page that a browser loads after a change: nothing is left of the
// request before.
func BenchmarkFirstPaint(b *testing.B) {
	runs := bench.Runs(b, 21)
	bench.Run(b, "page", func(context.Context) (rows []bench.Row, err error) {
		for _, nodes := range []int{1, 10, 200} {
			var times []float64
			browser := logIn(b, newServer(b, rack(nodes)))
			for range runs {
				browser.server.hub.last = nil
				begun := time.Now()
				w := browser.ask("GET", "/", "", "Accept-Encoding", "gzip")
				times = append(times, float64(time.Since(begun).Microseconds())/1000)
				if w.Code != http.StatusOK {
					return rows, fmt.Errorf("the rack of %d nodes is answered with %d", nodes, w.Code)
				}
			}
			rows = append(rows, bench.Row{
				Name: fmt.Sprintf("page/first-paint-%d", nodes), Unit: "ms", Ours: bench.Median(times),
				Note: fmt.Sprintf("rendered and compressed anew for each request, without the network; median of %d", runs),
			}.Less("bar", firstPaint, 1))
		}
		return rows, nil
	})
}

// idleTab is the goal of a page that is open and that nobody touches: seconds of a processor in a minute, 1 %.
const idleTab = 0.6

// BenchmarkIdle is what the server takes of a processor while one tab is open and nothing happens: it follows the stream
// of changes by TLS, and fetches the main part again when the version is another one, as page.js does, which is once in a
// minute because of ages. The tab's own side of the connections is counted as well; what the daemon's other parts take
// for what they say is not.
func BenchmarkIdle(b *testing.B) {
	const minutes = 2
	bench.Run(b, "page-idle", func(ctx context.Context) (rows []bench.Row, err error) {
		for _, nodes := range []int{1, 10, 200} {
			tab, leave := context.WithCancel(ctx)
			defer leave()
			fetched := followRack(tab, b, newServer(b, rack(nodes)))
			before, known := bench.ProcessorTime(), fetched.Load()
			select {
			case <-time.After(minutes * time.Minute):
			case <-ctx.Done():
				return rows, ctx.Err()
			}
			used, again := bench.ProcessorTime()-before, fetched.Load()-known
			leave()
			if again == 0 {
				return rows, fmt.Errorf("the tab of the rack of %d nodes followed nothing", nodes)
			}
			rows = append(rows, bench.Row{
				Name: fmt.Sprintf("page/idle-%d", nodes), Unit: "s/min", Ours: used.Seconds() / minutes,
				Note: fmt.Sprintf("of a processor, with one tab open; %d minutes, in which it was fetched %d times", minutes, again),
			}.Less("bar", idleTab, 1))
		}
		return rows, nil
	})
}

// followRack follows the rack as a tab that is open does, until ctx ends. It returns a count of the main parts that it
// has got, and waits at the end of the benchmark until the tab is closed.
func followRack(ctx context.Context, b *testing.B, s *Server) *atomic.Int64 {
	secret, fetched, ended := logIn(b, s).cookie, new(atomic.Int64), make(chan struct{})
	url, client := serveAlone(b, s)
	events := stream(ctx, b, client, url, secret)
	b.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		defer events.Body.Close()
		for lines := bufio.NewScanner(events.Body); lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "data: ") {
				continue
			}
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+"/?"+partParameter+"=main", http.NoBody) // it is one
			r.AddCookie(&http.Cookie{Name: cookie, Value: secret})
			main, err := client.Do(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, main.Body); err == nil && main.StatusCode == http.StatusOK {
				fetched.Add(1)
			}
			_ = main.Body.Close()
		}
	}()
	return fetched
}

// BenchmarkSite is what the pages of a site of 200 nodes cost, when nothing is left of the request before.
func BenchmarkSite(b *testing.B) {
	of, _ := acting()
	full := rack(200)
	of.siteText, of.history, of.hosts, of.doc = full.siteText, full.history, full.hosts, full.doc
	api := newAPIServer(b)
	api.stick = of.siteText
	s := newServerWith(b, of, api.deeds())
	owner := logInAs(b, s, Owner)
	for _, path := range []string{"/site", "/site/documents/5", editPath, editPath + "?from=4"} {
		b.Run(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-"), func(b *testing.B) {
			before := bench.ProcessorTime()
			for b.Loop() {
				s.hub.last = nil
				w := owner.ask("GET", path, "", "Accept-Encoding", "gzip")
				require.Equal(b, http.StatusOK, w.Code)
			}
			b.ReportMetric(float64((bench.ProcessorTime()-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}
