package page

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// contents are those of a cluster on which one of three pods is not well.
func contents() workload.Contents {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return workload.Contents{
		Server:  "https://172.22.1.7:6443",
		Version: "v1.34.2",
		Nodes: []workload.Node{
			{Name: "edge-2", State: "NotReady", Reason: "container runtime is down", Roles: []string{"worker"}},
			{Name: "edge-1", State: "Ready", IsWell: true, Roles: []string{"control-plane"}, Version: "v1.34.2", Address: "172.22.1.7"},
		},
		Pods: []workload.Pod{
			{Namespace: "default", Name: "web", State: "CrashLoopBackOff", Ready: "0/1", Restarts: 12, Node: "edge-1", Reason: "back-off 5m0s"},
			{Namespace: "kube-system", Name: "coredns", State: "Running", Ready: "1/1", Node: "edge-1", IsWell: true},
		},
		Events: []workload.Event{
			{Time: at, Type: "Warning", Reason: "BackOff", Object: "Pod default/web", Message: "Back-off restarting failed container", Count: 9},
		},
		NodeCount: 2, SickNodes: 1, PodCount: 3, SickPods: 1, MoreEvents: true,
		HasTenants: true,
		Tenants: []workload.Tenant{
			{TenantID: alpha().TenantID, IsReady: true, Reason: "Ready", Message: "has 2 of 2 namespaces", Isolated: true,
				Namespaces: []string{"alpha-dev", "alpha-prod"}, Owners: []string{"User ann"}, Quota: []string{"pods: 50"}},
			{TenantID: workload.TenantID{Name: "beta", UID: "b", Version: "9"}, Reason: "NamespaceTaken", Deletes: true,
				Message: "namespace alpha-dev is that of Tenant alpha", Namespaces: []string{"alpha-dev", "beta"}},
		},
	}
}

func TestAClusterShowsAllThatIsKnownOfIt(t *testing.T) {
	b := logIn(t, newServer(t, rack(10)))
	d := b.open("/clusters/edge")
	assert.Equal(t, "edge", d.id("title").text())
	assert.Contains(t, d.id("stands").text(), "Good ready, nodes 3/3 is verified Asked for byProvisioning default/edge")
	assert.Equal(t, "edge-1 master v1.34.2 172.22.1.7 metal3/node-006 installed", strings.Join(texts(d.id("member-edge-1").all("th", "td")), " "))
	assert.Equal(t, "/nodes/node-006", d.id("member-edge-1").all("a")[0].attr("href"))
	assert.Contains(t, d.id("verification").text(), "DNS")
	assert.Contains(t, d.id("verification").text(), "every node resolves names")
	assert.Contains(t, d.id("reach").text(),
		"(umask 077; ssh root@10.10.110.20 firstlightd kubeconfig edge > edge.kubeconfig) kubectl --kubeconfig edge.kubeconfig get nodes")

	runs := d.id("workload")
	assert.Contains(t, runs.text(), "Kubernetes v1.34.2 at https://172.22.1.7:6443")
	assert.Contains(t, runs.text(), "2 nodes, 1 not well; 3 pods, 1 not well.")
	assert.Equal(t, []string{"edge-2", "edge-1", "default/web", "kube-system/coredns", "beta", "alpha"}, texts(rowHeads(runs)), "what is not well comes first")
	assert.Contains(t, d.id("pod-default/web").text(), "CrashLoopBackOff: back-off 5m0s")
	assert.Equal(t, "check failed", d.id("pod-default/web").attr("class"))
	assert.Contains(t, runs.text(), "1 more are not listed")
	assert.Contains(t, runs.text(), "Warning BackOff Pod default/web: Back-off restarting failed container (9 times)")
	assert.Contains(t, runs.text(), "newer ones may be missing")

	lab := b.open("/clusters/lab")
	assert.Contains(t, lab.id("stands").text(), "Needs you failed, nodes 1/2 node lab-2 has no address")
	assert.Contains(t, lab.id("stands").text(), "/opt/kud/multi-cluster/lab/log/2.log")
	assert.Contains(t, lab.id("member-lab-2").text(), "waiting: no lease")
	assert.Contains(t, lab.id("verification").text(), "has not run yet")
	assert.Contains(t, lab.id("reach").text(), "no kubeconfig to hand out before it is ready")
	assert.Contains(t, lab.id("workload").text(), "It did not answer at")
	assert.Contains(t, lab.id("workload").text(), "https://172.22.1.5:6443: i/o timeout")
	assert.Contains(t, lab.id("workload").text(), "check its control planes")

	assert.Equal(t, http.StatusNotFound, b.ask("GET", "/clusters/nobody", "").Code)
	assert.Equal(t, []string{"/clusters/lab", "/clusters/edge"}, hrefs(b.open("/clusters").all("h2")))
}

// rowHeads are the first cells of the rows of all tables in it.
func rowHeads(d *document) (all []document) {
	for _, h := range d.all("th") {
		if h.attr("scope") == "row" {
			all = append(all, h)
		}
	}
	return all
}

func hrefs(of []document) (list []string) {
	for _, d := range of {
		for _, a := range d.all("a") {
			list = append(list, a.attr("href"))
		}
	}
	return list
}

func TestAClusterThatIsNotThereYetSaysSo(t *testing.T) {
	of := rack(1)
	of.doc.Clusters = []status.Cluster{{Name: "new", State: status.ClusterWaiting, Text: "nodes are verified first"}}
	d := logIn(t, newServer(t, of)).open("/clusters/new")
	assert.Contains(t, d.id("stands").text(), "On its way waiting nodes are verified first")
	assert.Contains(t, d.id("members").text(), "No node is a member yet.")
	assert.Contains(t, d.id("workload").text(), "cannot be asked yet")
	assert.Nil(t, d.id("updates"))
}

// TestClustersOfOneNameAreToldApart: each has its page, its kubeconfig and what runs on it.
func TestClustersOfOneNameAreToldApart(t *testing.T) {
	of, deeds := rack(1), newAPIServer(t)
	of.doc.Clusters = []status.Cluster{
		{Name: "edge", State: "ready", Namespace: "default", Kind: status.KindProvisioning},
		{Name: "edge", State: "ready", Namespace: "metal3", Kind: status.KindCluster},
		{Name: "far", State: "ready", Namespace: "metal3", Kind: status.KindCluster},
	}
	s := newServerWith(t, of, deeds.deeds())
	s.sources.Workload = func(_ context.Context, c status.Cluster) (workload.Contents, error) {
		return workload.Contents{Version: "of " + c.Namespace}, nil
	}
	b := logInAs(t, s, Owner)
	assert.Equal(t, []string{"/clusters/default%2Fedge", "/clusters/metal3%2Fedge", "/clusters/far"}, hrefs(b.open("/clusters").all("h2")))
	assert.Equal(t, http.StatusNotFound, b.ask("GET", "/clusters/edge", "").Code, "it could be either")
	for _, namespace := range []string{"default", "metal3"} {
		d := b.open("/clusters/" + namespace + "%2Fedge")
		assert.Equal(t, namespace+"/edge", d.id("title").text())
		assert.Contains(t, d.id("workload").text(), "Kubernetes of "+namespace)
		assert.Contains(t, hrefs(d.id("actions").all("li")), "/clusters/"+namespace+"%2Fedge/kubeconfig")
		assert.Equal(t, http.StatusOK, b.ask("GET", "/clusters/"+namespace+"%2Fedge/kubeconfig", "").Code)
	}
	assert.Contains(t, b.open("/clusters/far").id("reach").text(),
		"ssh root@10.10.110.20 firstlightd kubeconfig far > far.kubeconfig")
	assert.Contains(t, b.open("/clusters/metal3%2Fedge").id("reach").text(),
		"ssh root@10.10.110.20 firstlightd kubeconfig metal3/edge > edge.kubeconfig")
	assert.Equal(t, "metal3/edge", b.open("/clusters/metal3%2Fedge").id("title").text())
}

// TestWhatRunsOnAClusterIsAskedOnce: for all who look, within some seconds, and shown as soon as it is there.
func TestWhatRunsOnAClusterIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := rack(1)
		s := newServerOffline(t, of)
		asked, say := 0, make(chan workload.Contents)
		s.sources.Workload = func(context.Context, status.Cluster) (workload.Contents, error) {
			asked++
			return <-say, nil
		}
		b, other := logIn(t, s), logIn(t, s)
		d := b.open("/clusters/edge")
		assert.Contains(t, d.id("workload").text(), "It is being asked.", "the page is there meanwhile")
		assert.Contains(t, d.id("members").text(), "edge-1")
		assert.Contains(t, other.open("/clusters/edge").id("workload").text(), "It is being asked.")

		before := mustPicture(t, s).version
		say <- contents()
		synctest.Wait()
		assert.NotEqual(t, before, mustPicture(t, s).version, "open pages are told")
		assert.Contains(t, b.open("/clusters/edge").id("workload").text(), "Kubernetes v1.34.2")
		assert.Contains(t, other.open("/clusters/edge").id("workload").text(), "Kubernetes v1.34.2")
		assert.Equal(t, 1, asked)

		before = mustPicture(t, s).version
		time.Sleep(21 * time.Second)
		b.open("/clusters/edge")
		say <- contents()
		synctest.Wait()
		assert.Equal(t, 2, asked, "and again while somebody looks")
		if time.Now().Unix()/60 == time.Now().Add(-21*time.Second).Unix()/60 {
			assert.Equal(t, before, mustPicture(t, s).version, "the same answer is nothing new")
		}
	})
}

// newServerOffline is a server whose people may read all, without an API server.
func newServerOffline(t testing.TB, of *state) *Server {
	s := newServerWith(t, of, Deeds{})
	s.reviews.ask = func(context.Context, string) error { return nil }
	return s
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// TestEveryReadingIsTriedByEveryRole tries what is read besides the status document as each role, past the page's own
// checks too. It prints the table of docs/page.md.
func TestEveryReadingIsTriedByEveryRole(t *testing.T) {
	var out strings.Builder
	out.WriteString("| page | verb and resource of `page.firstlight.dev` | viewer | operator | owner | the API server says no |\n")
	out.WriteString("|---|---|---|---|---|---|\n")
	for _, of := range readings() {
		path := strings.NewReplacer("/nodes/{name}", "/nodes/node-000", "/tenants/{name}", tenantPath("edge", "alpha"), "{name}", "edge", "{namespace}", "default", "{pod}", "web", "{container}", "web", "{log}", "ironic").Replace(of.pattern)
		shown := placeholder.ReplaceAllStringFunc(of.pattern, func(word string) string { return strings.ToUpper(strings.Trim(word, "{}")) })
		shown = strings.ReplaceAll(shown, "/tenants/NAME", "/tenants/CLUSTER%2FNAME")
		fmt.Fprintf(&out, "| `%s` | `%s %s` |", shown, readVerb, of.resource)
		for _, role := range Roles() {
			api := newAPIServer(t)
			s := newServerWith(t, rack(10), api.deeds())
			w := logInAs(t, s, role).ask("GET", path, "")
			err := s.checkReading(t.Context(), ann(role), of)
			if role.covers(of.needs) {
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, w.Code, "%s as %s", path, role)
				require.NotContains(t, w.Body.String(), "Not shown")
				require.Equal(t, "firstlight:ann@laptop "+role.group(), api.reviewed[0])
				out.WriteString(" shown |")
				continue
			}
			require.ErrorIs(t, err, errForbidden)
			require.Equal(t, http.StatusForbidden, w.Code)
			out.WriteString(" page 403, API 403 |")
		}

		api := newAPIServer(t)
		api.forbids = true
		s := newServerWith(t, rack(10), api.deeds())
		s.sources.Workload = func(context.Context, status.Cluster) (workload.Contents, error) {
			panic("a cluster is asked for someone who may not know")
		}
		s.sources.Pod, s.sources.Log, s.sources.Chains = nil, nil, nil // they panic, too
		s.sources.Packets, s.sources.NodeLogs = nil, nil
		w := logInAs(t, s, Owner).ask("GET", path, "")
		require.Contains(t, w.Body.String(), "Not shown: the appliance&#39;s API server does not allow that to your role.")
		if of.isWhole {
			require.Equal(t, http.StatusForbidden, w.Code)
			out.WriteString(" 403 |\n")
		} else {
			require.Equal(t, http.StatusOK, w.Code)
			out.WriteString(" the rest is shown |\n")
		}
	}
	goldentest.CheckPart(t, "../../docs/page.md", "readings", out.String())
}

// TestNobodyReadsWhileTheAPIServerIsSilent: the page is shown without what needs a right.
func TestNobodyReadsWhileTheAPIServerIsSilent(t *testing.T) {
	api := newAPIServer(t)
	s := newServerWith(t, rack(10), api.deeds())
	api.Close()
	d := logInAs(t, s, Owner).open("/clusters/edge")
	assert.Contains(t, d.id("workload").text(), "Not shown: the appliance's API server does not answer")
	assert.Contains(t, d.id("members").text(), "edge-1")

	none := newServerWith(t, rack(10), Deeds{API: func() (*rest.Config, error) { return nil, assert.AnError }})
	assert.Contains(t, logIn(t, none).open("/clusters/edge").id("workload").text(), "does not answer")
}

// TestAKubeconfigIsNotKeptByTheBrowser: it is a file that no cache has, for an owner alone.
func TestAKubeconfigIsNotKeptByTheBrowser(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	a := findAction(t, "kubeconfig")
	w := r.post(b, a, r.form(b, a))
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	assert.Equal(t, "attachment; filename=edge.kubeconfig", w.Header().Get("Content-Disposition"))
	assert.Equal(t, "kubeconfig of edge", w.Body.String())
	assert.Nil(t, logInAs(t, r.Server, Operator).open("/clusters/edge").id("actions"))
}

func findAction(t *testing.T, name string) action {
	for _, a := range actions() {
		if a.name == name {
			return a
		}
	}
	require.Fail(t, "no action "+name)
	return action{}
}
