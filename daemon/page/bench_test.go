package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
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
