package page

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// processorTime is what this process has had of the processor: a busy computer does not count.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
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
			before := processorTime(b)
			for b.Loop() {
				s.hub.last = nil
				w := owner.ask("GET", path, "", "Accept-Encoding", "gzip")
				require.Equal(b, http.StatusOK, w.Code)
			}
			b.ReportMetric(float64((processorTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}
