package page

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/pxe/capture"
)

// TestPagesOfWhatIsReadAloneAreDrawnAgain: when a cluster, or what else is read while somebody looks, says something new,
// those pages are told that show it, and no others.
func TestPagesOfWhatIsReadAloneAreDrawnAgain(t *testing.T) {
	const (
		edge     = "/clusters/edge"
		tenant   = "/tenants/edge%2Falpha"
		other    = "/clusters/edge/pods/default/gone"
		log      = webPath + "/logs/web"
		previous = log + previousLog
	)
	far := clusterPath("far")
	all := []string{
		"/", "/clusters", "/nodes/node-000", nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic", edge, far, tenant, webPath, other, log, previous, chainPath("edge"),
		"/secrets", "/updates",
	}

	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // the last answer is awaited
		of := rack(1)
		of.doc.Clusters = append(of.doc.Clusters,
			status.Cluster{Name: "far", State: status.ClusterReady, Namespace: "default", Kind: status.KindProvisioning})
		of.workloads["far"] = workload.Contents{}
		of.chains["edge"] = func() []workload.Chain { return nil }
		s := newServerOffline(t, of)
		secrets := listing()
		s.sources.Secrets = func(context.Context) vault.Listing { return secrets }
		b := logInAs(t, s, Owner)
		for _, path := range all {
			b.open(path)
		}
		synctest.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		told := map[string]*httptest.ResponseRecorder{}
		for _, path := range all {
			r := httptest.NewRequestWithContext(ctx, "GET", "/events?page="+url.QueryEscape(path), nil)
			r.AddCookie(&http.Cookie{Name: cookie, Value: logInAs(t, s, Viewer).cookie})
			told[path] = httptest.NewRecorder()
			go s.handler.ServeHTTP(told[path], r)
		}
		versions := map[string]string{}      // that were told last
		changed := func() (paths []string) { // since it was asked before
			time.Sleep(2 * pictureAge)
			synctest.Wait()
			for _, path := range all {
				if version := nextVersion(bufio.NewScanner(told[path].Body)); version != "" {
					versions[path], paths = version, append(paths, path)
				}
				told[path].Body.Reset()
			}
			return paths
		}
		assert.Equal(t, all, changed(), "a stream begins with the version of its page")
		assert.Empty(t, changed())

		web := workload.PodRef{Namespace: "default", Name: "web"}
		for _, c := range []struct {
			what   string
			change func()
			page   string // has it read again
			told   []string
		}{
			{"a cluster", func() {
				of.workloads["edge"] = workload.Contents{NodeCount: 9}
				s.workloads.expire("edge")
			}, edge, []string{edge, tenant}},
			{"another cluster", func() {
				of.workloads["far"] = workload.Contents{NodeCount: 9}
				s.workloads.expire("far")
			}, far, []string{far}},
			{"a pod", func() {
				of.pods[web] = workload.PodDetails{}
				s.pods.expire(podKey("edge", web))
			}, webPath, []string{webPath}},
			{"a log", func() {
				of.logs[workload.LogRef{Pod: web, Container: "web"}] = workload.Log{Text: "starts\n", Lines: 1}
				s.logs.expire(logKey("edge", workload.LogRef{Pod: web, Container: "web"}))
			}, log, []string{log}},
			{"a log of before", func() {
				of.logs[workload.LogRef{Pod: web, Container: "web", IsPrevious: true}] = workload.Log{Text: "ended\n", Lines: 1}
				s.logs.expire(logKey("edge", workload.LogRef{Pod: web, Container: "web", IsPrevious: true}))
			}, previous, []string{previous}},
			{"a chain", func() {
				of.chains["edge"] = func() []workload.Chain {
					return []workload.Chain{{Namespace: "a", Hops: []workload.Hop{{Part: counters.Sink}}}}
				}
				s.chains.expire("edge")
			}, chainPath("edge"), []string{chainPath("edge")}},
			{"packets", func() {
				of.packets[mac(0)] = []capture.Exchange{{Protocol: capture.DHCP, Kind: capture.Discover, Count: 1}}
				s.packets.expire(mustPicture(t, s).packetsKey("node-000"))
			}, "/nodes/node-000", []string{"/nodes/node-000"}},
			{"logs of a node", func() {
				of.nodeLogs["node-000"] = []NodeLog{{ID: "ironic", Title: "Ironic", Log: workload.Log{Text: "new\n", Lines: 1}}}
				s.nodeLogs.expire("node-000")
			}, nodeLogsPath("node-000"), []string{nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic"}},
			{"secrets", func() {
				secrets = vault.Listing{Error: "DATA is gone"}
				s.secrets.expire("")
			}, "/secrets", []string{"/secrets"}},
			{"versions", func() {
				of.updates = nil
				s.versions.expire("")
			}, "/updates", []string{"/updates"}},
			{"the appliance", func() { of.doc.Name = "firstlight-cd34" }, "/", all},
		} {
			c.change()
			b.open(c.page)
			assert.Equal(t, c.told, changed(), c.what)
			for _, path := range c.told {
				assert.Equal(t, versions[path], b.open(path).id("main").attr("data-version"), "%s: it is not fetched again", path)
			}
		}
		cancel()
		synctest.Wait()
	})
}
