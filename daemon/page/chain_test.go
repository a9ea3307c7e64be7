package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// passing are the readings of a chain whose generator sends 500 packets a second, of which the firewall drops 400.
func passing() func() []workload.Chain {
	began := time.Now()
	hop := func(part string, counted map[string]float64) workload.Hop {
		return workload.Hop{
			Part: part, Time: time.Now(), Began: "a", Counters: counted,
			Pod: workload.Pod{Namespace: "service-chain", Name: part + "-1", Node: "edge-1", State: "Running", IsWell: true},
		}
	}
	return func() []workload.Chain {
		seconds := 1000 + time.Since(began).Seconds()
		return []workload.Chain{{Namespace: "service-chain", Hops: []workload.Hop{
			hop(counters.Generator, map[string]float64{
				counters.SentPackets: 500 * seconds, counters.SentBytes: 32_000 * seconds, counters.SendErrors: 0,
			}),
			hop(counters.Firewall, map[string]float64{
				counters.ForwardedPackets: 100 * seconds, counters.ForwardedBytes: 9200 * seconds, counters.DroppedPackets: 400 * seconds,
			}),
			hop(counters.Sink, map[string]float64{
				counters.ReceivedPackets: 100 * seconds, counters.ReceivedBytes: 6400 * seconds,
			}),
		}}}
	}
}

// cells are the texts of a row.
func cells(row *document) string { return strings.Join(texts(row.all("th", "td")), " | ") }

// TestPacketsOfEachHopAreShown: once read there are counts, with the second reading rates; then again and again while
// the page is open, at an interval, and no more when nobody looks.
func TestPacketsOfEachHopAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // the last reading is awaited
		of := rack(1)
		s := newServerOffline(t, of)
		asked, read := 0, of.chains["edge"]
		var mu sync.Mutex
		s.sources.Chains = func(context.Context, status.Cluster) ([]workload.Chain, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return read(), nil
		}
		b := logIn(t, s)
		assert.Equal(t, chainPath("edge"), b.open("/clusters/edge").id("to-chain").all("a")[0].attr("href"))

		d := b.open(chainPath("edge"))
		assert.Equal(t, "Service chain of edge", d.id("title").text())
		assert.Equal(t, "1. generator | not known: it was read once, and a rate takes two readings | 500000 | generator-1 on edge-1: Running",
			cells(d.id("hop-service-chain-generator")))
		assert.Equal(t, "check", d.id("hop-service-chain-generator").attr("class"))

		for reading := 2; reading < 5; reading++ {
			time.Sleep(chainInterval)
			synctest.Wait()
			assert.Equal(t, reading, asked)
			d = b.open(chainPath("edge"))
			clock := formatClock(time.Now())
			assert.Regexp(t, `^1\. generator \| 500/s sent \| 32 kB/s \| 0/s not sent \| 5\.0 s, until `+clock+` \| [0-9]+ \| generator-1`,
				cells(d.id("hop-service-chain-generator")))
			assert.Contains(t, cells(d.id("hop-service-chain-firewall")), "2. firewall | 100/s forwarded | 9.2 kB/s | 400/s dropped | 5.0 s")
			assert.Contains(t, cells(d.id("hop-service-chain-sink")), "3. sink | 100/s received | 6.4 kB/s | – | 5.0 s")
			assert.Equal(t, "check ok", d.id("hop-service-chain-sink").attr("class"))
			assert.Equal(t, []string{"/clusters/edge/pods/service-chain/sink-1"}, hrefs([]document{*d.id("hop-service-chain-sink")}))
		}

		time.Sleep(10 * time.Minute)
		assert.Equal(t, 5, asked, "nobody looks")
		d = b.open(chainPath("edge"))
		assert.Contains(t, cells(d.id("hop-service-chain-sink")), "it was read once", "what was read ten minutes ago says nothing of now")
	})
}

// TestPagesOfAChainAloneAreDrawnAgain: while somebody watches a chain, its page is told of each reading, by any way to write
// its path; other pages are not, nor is that of another chain, nor others of the same cluster.
func TestPagesOfAChainAloneAreDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // the last reading is awaited
		of := rack(1)
		of.doc.Clusters = append(of.doc.Clusters,
			status.Cluster{Name: "far", State: status.ClusterReady, Namespace: "default", Kind: status.KindProvisioning})
		s := newServerOffline(t, of)
		b := logIn(t, s)
		b.open(chainPath("edge"))
		synctest.Wait()

		const watched = 40 * time.Second // less than a minute, in which ages change
		told := map[string]*httptest.ResponseRecorder{}
		ctx, cancel := context.WithTimeout(t.Context(), watched)
		defer cancel()
		for _, path := range []string{"", "/", "/clusters/edge", chainPath("edge"), "/clusters/%65dge/chain", chainPath("far")} {
			r := httptest.NewRequestWithContext(ctx, "GET", "/events?page="+url.QueryEscape(path), nil)
			r.AddCookie(&http.Cookie{Name: cookie, Value: b.cookie})
			w := httptest.NewRecorder()
			told[path] = w
			go s.handler.ServeHTTP(w, r)
		}
		for range watched / chainInterval {
			time.Sleep(chainInterval)
			b.open(chainPath("edge"))
		}
		cancel()
		synctest.Wait()

		for path, w := range told {
			versions := strings.Count(w.Body.String(), "event: version")
			if strings.HasSuffix(path, "dge/chain") {
				assert.Greater(t, versions, 5, path)
			} else {
				assert.Equal(t, 1, versions, path)
			}
		}
		shown := b.open(chainPath("edge")).id("main").attr("data-version")
		assert.NotEqual(t, b.open("/").id("main").attr("data-version"), shown)
	})
}

// TestWhatIsNotKnownOfAChainIsSaid: a part that is silent, or counts from zero again; no chain; a cluster that is silent.
func TestWhatIsNotKnownOfAChainIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // the last reading is awaited
		of := rack(1)
		of.doc.Clusters = append(of.doc.Clusters,
			status.Cluster{Name: "far", State: status.ClusterReady, Namespace: "default", Kind: status.KindProvisioning},
			status.Cluster{Name: "new", State: status.ClusterWaiting, Namespace: "default", Kind: status.KindProvisioning})
		s := newServerOffline(t, of)
		now := passing()()
		var silence error
		s.sources.Chains = func(_ context.Context, c status.Cluster) ([]workload.Chain, error) {
			if c.Name == "far" {
				return nil, nil
			}
			return now, silence
		}
		b := logIn(t, s)
		next := func() document {
			time.Sleep(chainInterval)
			synctest.Wait()
			return b.open(chainPath("edge"))
		}
		b.open(chainPath("edge"))

		later := passing()()
		later[0].Hops[0] = workload.Hop{Part: counters.Generator, Error: "connection refused", Pod: now[0].Hops[0].Pod}
		later[0].Hops[1].Counters[counters.ForwardedPackets] = 5
		later[0].Hops[1].RulesRefused = true
		for i := 1; i < 3; i++ {
			later[0].Hops[i].Time = time.Now().Add(chainInterval)
		}
		later[0].Hops[2].Pod = workload.Pod{}
		delete(later[0].Hops[2].Counters, counters.ReceivedBytes) // as an add-on of before
		now = later
		d := next()
		assert.Equal(t, "1. generator | not known: connection refused | not known | generator-1 on edge-1: Running",
			cells(d.id("hop-service-chain-generator")))
		assert.Equal(t, "check failed", d.id("hop-service-chain-generator").attr("class"))
		assert.Contains(t, cells(d.id("hop-service-chain-firewall")), "not known: its counters began again at zero since the last reading | 5 |")
		assert.Contains(t, d.id("chain-service-chain").text(), "The rules of its ConfigMap are wrong, and those of before hold")
		assert.Contains(t, cells(d.id("hop-service-chain-sink")), "0/s received | not counted by this version of the add-on | – |")
		assert.Contains(t, cells(d.id("hop-service-chain-sink")), "| none")

		silence = errors.New("https://172.22.1.7:6443: i/o timeout")
		d = next()
		assert.Contains(t, d.id("chain").text(), "There was no answer at")
		assert.Contains(t, d.id("chain").text(), "https://172.22.1.7:6443: i/o timeout")
		assert.Contains(t, d.id("chain").text(), "check its control planes")
		assert.Nil(t, d.id("empty"), "a cluster that does not answer may have one")

		assert.Contains(t, b.open(chainPath("far")).id("empty").text(), "No service chain runs on it. The add-on service-chain brings")
		assert.Contains(t, b.open(chainPath("new")).id("chain").text(), "cannot be asked yet")
		assert.Equal(t, http.StatusNotFound, b.ask("GET", chainPath("gone"), "").Code)
	})
}

// TestAChainIsAskedWhileThePageIsShown: a cluster that takes its time holds no page.
func TestAChainIsAskedWhileThePageIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // the last reading is awaited
		s := newServerOffline(t, rack(1))
		s.chains.wait = 3 * time.Second
		answer := make(chan []workload.Chain)
		s.sources.Chains = func(context.Context, status.Cluster) ([]workload.Chain, error) { return <-answer, nil }
		d := logIn(t, s).open(chainPath("edge"))
		assert.Contains(t, d.id("chain").text(), "It is being asked.")
		answer <- nil
	})
}
