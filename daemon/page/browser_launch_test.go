package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/machines"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// launchHung ends a launch that hangs.
const launchHung = 80 * time.Minute

// launch is an appliance with two servers, and a browser in its network.
type launch struct {
	*chromium
	ctx      context.Context
	rack     *scenario.Scenario
	machines *machines.Machines
	pages    string // where the page is
}

// newLaunch makes a rack whose site names two servers and a cluster of both. The daemon was just started.
func newLaunch(t *testing.T) *launch {
	root := sandbox.RequireRoot(t)
	if !sandbox.HasKind("fleet") {
		t.Skip("makes a cluster, which takes many minutes; set FIRSTLIGHT_TEST=native,fleet")
	}
	ctx, cancel := context.WithTimeout(t.Context(), launchHung)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	rack, err := scenario.Start(ctx, scenario.Config{
		Name: "watched", Dir: t.TempDir(), Root: root, Programs: programs, Log: t.Output(),
		Servers: simulator.Config{Hosts: 2, BootTime: 15 * time.Second},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rack.Close()) })
	l := &launch{ctx: ctx, rack: rack}
	l.machines, err = machines.New(ctx, rack, machines.Config{Root: root, Dir: t.TempDir(), Log: t.Output()})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			l.tell(t)
		}
		assert.NoError(t, l.machines.Close())
	})

	site := "name: rack\nnetworks: {provisioning: {interface: eth0, allow: [page]}}\n" +
		"clusters: [{name: edge, controlPlane: [{node: node1}], workers: [{node: node2}], " +
		"addOns: [multus, network-policy, service-chain, tenants]}]\nnodes:\n"
	for i, s := range rack.Servers.Hosts() {
		site += s.SiteEntry(fmt.Sprintf("links: [{network: provisioning, mac: %q, address: %s}]", s.MAC, machines.Address(i)))
	}
	require.NoError(t, rack.Begin(ctx, site))

	l.chromium = startChromiumIn(ctx, t, netns.PathOf(rack.Sandbox.PID()))
	top, err := bench.FindTop()
	require.NoError(t, err)
	l.chromium.pictures = filepath.Join(top, "build", "launch")
	require.NoError(t, os.RemoveAll(l.chromium.pictures))
	require.NoError(t, os.MkdirAll(l.chromium.pictures, 0o755))
	return l
}

// tell logs what there is for who reads why the test failed.
func (l *launch) tell(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), time.Minute)
	defer cancel()
	for _, line := range []string{
		"firstlightd status; firstlightd why", "kubectl get pods,jobs,bmh,bpa,kc -A -o wide",
		"kubectl -n bpa logs --all-containers --tail=40 job/$(kubectl -n bpa get jobs -o jsonpath={.items[0].metadata.name})",
	} {
		out, err := l.rack.Sandbox.Run(ctx, "sh", "-c", line)
		t.Logf("# %s (%v)\n%s", line, err, out)
	}
	for name := range l.machines.Systems() {
		t.Log(l.machines.Logs(name))
	}
}

// enter logs in as somebody of a role by `firstlightd login`, as soon as that works and the page answers.
func (l *launch) enter(role Role) {
	l.t.Helper()
	var login status.Login
	for {
		out, err := l.rack.Sandbox.Run(l.ctx, "firstlightd", "login", "--role", string(role), "--user", "ann@laptop", "-o", "json")
		if err == nil && json.Unmarshal([]byte(out), &login) == nil && len(login.URLs) > 0 {
			break
		}
		require.NoError(l.t, l.ctx.Err(), err)
		time.Sleep(200 * time.Millisecond)
	}
	l.pages = strings.TrimSuffix(login.URLs[0], "/")
	l.follow(LoginURL(login.URLs[0], login.Code), nil)
}

// awaitPhase waits until an expression holds while servers boot, and takes a picture.
func (l *launch) awaitPhase(name, expression string) {
	l.t.Helper()
	for l.value(expression) != true {
		require.NoError(l.t, l.machines.Follow(l.ctx))
		require.NoError(l.t, l.ctx.Err(), name)
		time.Sleep(200 * time.Millisecond)
	}
	l.picture(name)
	l.t.Logf("%s %s: %s", time.Now().Format("15:04:05"), name, l.value("document.title"))
}

// workload asks the cluster that was made.
func (l *launch) workload(args ...string) string {
	l.t.Helper()
	const access = "/opt/kud/multi-cluster/edge/artifacts/admin.conf"
	out, err := l.rack.Sandbox.Run(l.ctx, "kubectl", append([]string{"--kubeconfig", access}, args...)...)
	require.NoError(l.t, err)
	return out
}

// notePhases has a page keep whatever it shows of the launch: the headline, each step of the checklist, each node with the
// group that it is in. It is asked whenever anything on the page changes, so that what is there for a moment is noted, too.
const notePhases = `
window.phases = [];
const last = {};
const note = () => {
  const now = { headline: document.getElementById("headline").textContent.trim() };
  for (const e of document.querySelectorAll("#checklist li"))
    now[e.id] = e.querySelector(".level").textContent + " " + (e.querySelector(".fact") || { textContent: "" }).textContent;
  for (const e of document.querySelectorAll("li[id^=node-]"))
    now[e.id] = e.closest("section").id + " " + e.querySelector(".facts").textContent.split(",")[0];
  for (const id in { ...last, ...now }) {
    const is = (now[id] || "gone").trim();
    if (last[id] !== is) phases.push(id + ": " + is);
    last[id] = is;
  }
};
new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
note();`

// TestABrowserWatchesALaunch: a page that is opened as soon as the appliance answers, and never loaded again, shows two
// servers from power to a verified cluster, each phase in its turn. Then what it shows of the cluster is the cluster's:
// a Tenant that is made by it, and packets that pass a service chain.
func TestABrowserWatchesALaunch(t *testing.T) {
	l := newLaunch(t)
	l.size(1200, 900, "light")
	l.enter(Viewer)
	l.value(notePhases)

	nodes := func(state string) string {
		return "[...document.querySelectorAll('li[id^=node-] .facts')].some(e => e.textContent.startsWith('" + state + "'))"
	}
	step := func(id, text string) string {
		return "document.getElementById('step-" + id + "').textContent.includes('" + text + "')"
	}
	l.awaitPhase("1-power", "document.getElementById('bringup') !== null")
	l.awaitPhase("2-inspecting", nodes("inspecting"))
	l.awaitPhase("3-installing", nodes("provisioning"))
	l.awaitPhase("4-verified", step("verified", "2 of 2"))
	l.awaitPhase("5-cluster", step("in-service", "edge is installing"))
	l.awaitPhase("6-in-service", "document.getElementById('checklist') === null")

	var phases []string
	for _, p := range l.value("window.phases").([]any) { // which a page that is loaded again has not
		phases = append(phases, p.(string))
	}
	t.Log("what the page showed:\n" + strings.Join(phases, "\n"))
	goldentest.WriteBlock(t, "../../docs/page.md", "launch", strings.Join(phases, "\n")+"\n")
	for _, n := range []string{"node-node1", "node-node2"} {
		assertOrder(t, phases, n+": on-their-way inspecting", n+": on-their-way provisioning",
			n+": on-their-way provisioned", n+": in-service provisioned")
	}
	assertOrder(t, phases, "step-appliance: now", "step-appliance: done", "step-verified: now", "step-verified: done 2 of 2",
		"step-in-service: now edge is installing", "step-in-service: gone")
	assertOrder(t, phases, "headline: Coming up", "headline: Ready")
	assertOrder(t, phases, "step-asked: done 1 cluster", "headline: Ready") // the site asks for it from the start

	l.value("document.querySelector('a[href=\"/clusters\"]').click()")
	l.awaitPhase("7-clusters", "location.pathname === '/clusters' && document.readyState === 'complete'")
	l.open(l.pages + clusterPath("edge"))
	l.awaitPhase("8-verification", "document.querySelectorAll('#verification .check.ok').length > 0")
	assert.EqualValues(t, 0, l.value("document.querySelectorAll('#verification .check.failed').length"))
	t.Log("\n" + l.workload("get", "nodes", "-o", "wide"))

	l.open(l.pages + "/addons")
	l.awaitPhase("9-addons", "document.querySelectorAll('#main tr.check.ok').length === 4")
	l.makeTenant()
	l.watchChain()
}

// makeTenant has an owner make a Tenant by the page, and asks the cluster what it has then.
func (l *launch) makeTenant() {
	l.t.Helper()
	l.enter(Owner)
	l.open(l.pages + tenantEditLink("edge", ""))
	l.value(`document.getElementById("name").value = "alpha";
document.getElementById("text").value = "namespaces: [alpha-dev, alpha-prod]\nowners: [{kind: User, name: bob}]\nquota: {hard: {pods: '7'}}\n";
document.querySelector("form.editor button").click()`)
	l.await("document.querySelector('#checked a') !== null")
	l.picture("10-tenant-checked")
	l.value("document.querySelector('#checked a').click()")
	l.await("document.querySelector('form.confirm') !== null")
	l.value("document.querySelector('form.confirm button').click()")
	l.await("location.pathname === '" + tenantPath("edge", "alpha") + "'")
	l.awaitPhase("11-tenant", "document.getElementById('main').textContent.includes('2 of 2 namespaces')")

	for _, namespace := range []string{"alpha-dev", "alpha-prod"} {
		l.t.Log("\n" + l.workload("-n", namespace, "get", "resourcequotas,rolebindings,limitranges,networkpolicies"))
		assert.Equal(l.t, "7", l.workload("-n", namespace, "get", "resourcequota", "tenant-quota", "-o", "jsonpath={.spec.hard.pods}"))
		assert.Equal(l.t, "User bob",
			l.workload("-n", namespace, "get", "rolebinding", "tenant-owners", "-o", "jsonpath={.subjects[*].kind} {.subjects[*].name}"))
		assert.Equal(l.t, "yes\n", l.workload("-n", namespace, "auth", "can-i", "create", "deployments", "--as", "bob"))
	}
}

// watchChain sees packets pass the sample, and a rule stop most of them, on a page that is not loaded again.
func (l *launch) watchChain() {
	l.t.Helper()
	l.open(l.pages + chainPath("edge"))
	l.value("window.marked = true")
	rate := func(part, does string) string {
		return `/\b[1-9][0-9.]*\/s ` + does + `/.test(document.getElementById("hop-service-chain-` + part + `")?.innerText)`
	}
	l.awaitPhase("12-chain", rate("generator", "sent")+"&&"+rate("firewall", "forwarded")+"&&"+rate("sink", "received"))
	l.t.Log("\n" + l.value("document.querySelector('#chain-service-chain tbody').innerText").(string))

	l.workload("-n", "service-chain", "patch", "configmap", "chain", "--type=merge", "-p",
		`{"data": {"rules": "- {protocol: udp, port: 9000, limit: 100/second, action: drop}"}}`)
	l.awaitPhase("13-rule", rate("firewall", "dropped"))
	l.t.Log("\n" + l.value("document.querySelector('#chain-service-chain tbody').innerText").(string))
	assert.Equal(l.t, true, l.value("window.marked"), "the page was not loaded again")
}

// assertOrder checks that something begins with each text, in their order.
func assertOrder(t *testing.T, all []string, texts ...string) {
	t.Helper()
	at := 0
	for _, s := range all {
		if at < len(texts) && strings.HasPrefix(s, texts[at]) {
			at++
		}
	}
	assert.Equal(t, len(texts), at, "%q comes not, or not after what is before it in %q", texts[min(at, len(texts)-1)], texts)
}
