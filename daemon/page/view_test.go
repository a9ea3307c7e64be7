package page

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// browser is one that is logged in, without a network.
type browser struct {
	t      testing.TB
	server *Server
	cookie string
}

func logIn(t testing.TB, s *Server) browser { return logInAs(t, s, Viewer) }

func logInAs(t testing.TB, s *Server, role Role) browser {
	code, _ := s.logins.mint(ann(role))
	secret, by, ok := s.logins.open(code)
	require.True(t, ok)
	require.Equal(t, ann(role), by)
	return browser{t, s, secret}
}

// ann is a person with a role.
func ann(role Role) Person { return Person{"ann@laptop", role} }

// ask sends a request with the session's cookie, and with more headers as name and value in turn.
func (b browser) ask(method, path, form string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://10.10.110.20"+path, strings.NewReader(form))
	r.RemoteAddr = "10.10.110.66:1000"
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if b.cookie != "" {
		r.AddCookie(&http.Cookie{Name: cookie, Value: b.cookie})
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	b.server.handler.ServeHTTP(w, r)
	return w
}

// open is a page as it is read.
func (b browser) open(path string) document {
	w := b.ask("GET", path, "")
	require.Equal(b.t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	return parse(b.t, w.Body.Bytes())
}

func TestTheRackShowsWhatNeedsAPersonFirst(t *testing.T) {
	installing := ready()
	installing.doc.Clusters = []status.Cluster{{Name: "edge", State: status.ClusterInstalling, Percent: 40}}
	for _, c := range []struct {
		name     string
		state    *state
		level    string
		headline string
		groups   []string // titles with counts, in order
	}{
		{"just switched on", begun(), "busy", "Coming up", nil},
		{"stopped", stopped(), "bad", "Stopped: needs you", nil},
		{"no nodes", ready(), "good", "Ready", nil},
		{"a cluster is installed", installing, "busy", "Ready. On its way: cluster edge", nil},
		{"1 node", rack(1), "bad", "Needs you: node node-000; cluster lab; component default/sriov-operator", []string{"Need you 1", "Not named by the site 1"}},
		{"10 nodes", rack(10), "bad", "Needs you: node node-000; cluster lab; component default/sriov-operator",
			[]string{"Need you 1", "On their way 3", "In service 6", "Not named by the site 1"}},
		{"200 nodes", rack(200), "bad", "Needs you: 20 of 200 nodes; cluster lab; component default/sriov-operator",
			[]string{"Need you 20", "On their way 60", "In service 120", "Not named by the site 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := logIn(t, newServer(t, c.state)).open("/")
			headline := d.id("headline")
			require.NotNil(t, headline)
			assert.Equal(t, c.headline, headline.text())
			assert.Equal(t, "headline "+c.level, headline.attr("class"))
			if shown := d.id("summary"); c.state.doc.Summary == "Ready" {
				assert.Nil(t, shown, "the headline says it")
			} else {
				assert.Equal(t, c.state.doc.Summary, shown.text())
			}
			assert.Equal(t, c.state.doc.Next, d.id("next").text())
			assert.Contains(t, d.all("title")[0].text(), c.headline)

			var groups []string
			for _, section := range d.all("section") {
				if len(section.with("card")) > 0 {
					groups = append(groups, section.all("h2")[0].text())
				}
			}
			assert.Equal(t, c.groups, groups)
			assert.Equal(t, c.groups == nil, d.id("empty") != nil, "an empty rack says so")

			for _, n := range c.state.doc.Nodes {
				li := d.id("node-" + n.Name)
				require.NotNil(t, li, n.Name)
				assert.Contains(t, li.text(), n.Why)
				assert.Contains(t, li.text(), n.Next)
				assert.Equal(t, "/nodes/"+n.Name, li.all("a")[0].attr("href"))
				bars := li.all("progress")
				assert.Equal(t, !n.Verified, len(bars) == 1, "%s has a bar while it is on its way", n.Name)
				if len(bars) == 1 {
					assert.Equal(t, fmt.Sprint(n.Percent), bars[0].attr("value"))
				}
			}
		})
	}
}

// TestNothingIsSaidTwice: the summary of a ready appliance begins with the headline.
func TestNothingIsSaidTwice(t *testing.T) {
	d := ready().doc
	d.Stages = append(d.Stages, status.Stage{
		Name: "cluster-api-ready", Title: "Cluster API starts", Waiting: "applying", State: status.StateWorking, AfterReady: true,
	})
	assert.Equal(t, "Cluster API starts: applying", newHeadline(d).Summary)
}

func TestTheRackShowsTheBringUp(t *testing.T) {
	d := logIn(t, newServer(t, begun())).open("/")
	assert.Equal(t, "Networks get their addresses working: waits for a linkno NIC has a link", d.id("stage-links-up").text())
	assert.NotNil(t, d.id("stage-ironic-ready"))
	assert.Nil(t, d.id("stage-cluster-api-ready"), "Ready does not wait for it")
	assert.Contains(t, d.id("empty").text(), "not known yet")
	assert.Contains(t, logIn(t, newServer(t, ready())).open("/").id("empty").text(), "names no node")
}

func TestANodeShowsAllThatIsKnownOfIt(t *testing.T) {
	b := logIn(t, newServer(t, rack(10)))
	d := b.open("/nodes/node-001")
	text := d.id("main").text()
	for _, fact := range []string{
		"has its image written to /dev/nvme0n1, 1.2 of 2.4 GB", "redfish://10.30.0.1/redfish/v1/Systems/1", "on",
		"Rack 2000", "SN1", "32 threads, Processor 5 x86_64", "262144 MiB", "960 GB", "Disk 1", "it boots by this one",
		"logs in as admin", "the connection ended", "boot 2 since",
	} {
		assert.Contains(t, text, fact)
	}
	assert.NotContains(t, text, "secret-of-", "names of Secrets are of no use here")
	assert.Len(t, d.id("boots").all("tr"), 6)

	failed := b.open("/nodes/node-000")
	assert.Contains(t, failed.id("preflight").text(), "failed401 UnauthorizedCorrect the password.")
	assert.Contains(t, failed.id("boots").text(), "has not booted from the network")

	unknown := b.open("/nodes/52:54:00:99:00:01")
	assert.Contains(t, unknown.id("main").text(), "Maker Box 9")
	assert.Contains(t, unknown.id("boots").text(), "Asked for an address")

	w := b.ask("GET", "/nodes/nobody", "")
	assert.Equal(t, http.StatusNotFound, w.Code)
	assert.Contains(t, parse(t, w.Body.Bytes()).id("main").text(), "Nothing of this name is here")
}

func TestOtherPagesShowTheirState(t *testing.T) {
	full, empty := logIn(t, newServer(t, rack(10))), logIn(t, newServer(t, begun()))
	clusters := full.open("/clusters")
	assert.Equal(t, []string{"lab", "edge"}, texts(clusters.all("h2")), "what failed comes first")
	assert.Contains(t, clusters.id("cluster-lab").text(), "node lab-2 has no address")
	assert.Contains(t, clusters.id("cluster-lab").text(), "waiting: no lease")
	assert.Contains(t, empty.open("/clusters").id("empty").text(), "There is no cluster")

	uploads := full.open("/uploads")
	assert.Contains(t, uploads.id("room").text(), "20 GB")
	assert.Contains(t, uploads.id("collections").text(), "1 of 2")
	assert.Contains(t, empty.open("/uploads").id("empty").text(), "no place for uploads yet")
	broken := rack(1)
	broken.doc.Artifacts.Conditions[0] = status.Check{Name: "serving", State: status.CheckFailed, Fix: "Restart it."}
	assert.Contains(t, logIn(t, newServer(t, broken)).open("/uploads").id("failed").text(), "Restart it.")

	appliance := full.open("/appliance")
	assert.Contains(t, appliance.id("networks").text(), "10.10.110.20/24")
	assert.Contains(t, appliance.id("ready-stages").text(), "2 stages hold")
	assert.Contains(t, appliance.id("stage-ironic-ready").text(), "Ironic startsironic-ready Ironic answers.")
	assert.Contains(t, empty.open("/appliance").id("networks").text(), "No network has its role yet")
	assert.Contains(t, logIn(t, newServer(t, stopped())).open("/appliance").id("stages").text(), "unknown key")

	follows := rack(1)
	follows.doc.Source = &status.Source{
		From: "https://git.example/racks.git@main sites/rack-7", State: status.SourceRefused, Revision: "main@sha1:1", Offered: "main@sha1:2",
		Applied: time.Unix(1800000000, 0), Behind: time.Unix(1800000060, 0), Refused: "site.yaml:3: <b>",
	}
	d := logIn(t, newServer(t, follows)).open("/appliance")
	for _, shown := range []string{"https://git.example/racks.git@main sites/rack-7", "refused", "main@sha1:1", "main@sha1:2", "site.yaml:3: <b>"} {
		assert.Contains(t, d.id("source").text(), shown)
	}
	assert.Contains(t, d.id("headline").text(), "revision of the source refused")
	assert.Nil(t, full.open("/appliance").id("source"))
}

func TestWhatIsShownIsEscaped(t *testing.T) {
	b := logIn(t, newServer(t, stopped()))
	d := b.open("/")
	assert.Contains(t, d.id("stage-site-read").text(), "<script>alert(1)</script>")
	assert.Len(t, d.all("script"), 1, "only our own script is one")
}

func TestTheMainPartIsThatOfThePage(t *testing.T) {
	b := logIn(t, newServer(t, rack(10)))
	part := b.ask("GET", "/?part=main", "").Body.String()
	assert.True(t, strings.HasPrefix(part, "<main "), part)
	assert.Contains(t, b.ask("GET", "/", "").Body.String(), part)
	assert.Contains(t, b.ask("GET", "/events-not", "").Body.String(), "Nothing of this name is here")
}

// TestAPageIsMadeOnceForAll: whoever looks at a long document again and again has it masked and compared once.
func TestAPageIsMadeOnceForAll(t *testing.T) {
	s := newServer(t, rack(10))
	b := logIn(t, s)
	before := b.open("/site/documents/5").id("document").text()
	s.hub.last.history = nil // a page that is made now has none
	assert.Equal(t, before, b.open("/site/documents/5").id("document").text())
	assert.Equal(t, http.StatusNotFound, logInAs(t, s, Owner).ask("GET", "/site/documents/5", "").Code, "of another role")

	made := 0
	of := func(isFound bool) func() (rendering, error) {
		return func() (rendering, error) {
			made++
			return rendering{isFound: isFound}, nil
		}
	}
	for range 3 {
		_, err := s.hub.last.render("found", of(true))
		require.NoError(t, err)
	}
	assert.Equal(t, 1, made)
	for range 3 {
		_, err := s.hub.last.render("not found", of(false))
		require.NoError(t, err)
	}
	assert.Equal(t, 4, made)
	assert.NotContains(t, s.hub.last.rendered, "not found")
}

// TestPagesAreLight holds the first load, compressed, to 150 KiB.
func TestPagesAreLight(t *testing.T) {
	b := logIn(t, newServer(t, rack(200)))
	w := b.ask("GET", "/", "", "Accept-Encoding", "gzip, br")
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	weight := w.Body.Len()
	z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
	require.NoError(t, err)
	page, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NotNil(t, parse(t, page).id("node-node-199"))
	for name := range assets() {
		weight += b.ask("GET", "/assets/"+name, "").Body.Len()
	}
	t.Logf("%d bytes", weight)
	assert.Less(t, weight, 150<<10)
}

// BenchmarkWatch is what an open page costs in each interval in which nothing changes.
func BenchmarkWatch(b *testing.B) {
	s := newServer(b, rack(200))
	for b.Loop() {
		s.hub.when = s.hub.when.Add(-pictureAge)
		_, err := s.hub.current()
		require.NoError(b, err)
	}
}
