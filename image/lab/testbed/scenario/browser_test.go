package scenario_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/page"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/browser"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// TestANodeIsSwitchedOffByThePage: a viewer may not, an operator has it done by the appliance's own API server and BMC,
// and the audit log names who it was.
func TestANodeIsSwitchedOffByThePage(t *testing.T) {
	need(t)
	ctx, d := start(t, "page", 1, 30*time.Minute)
	site := d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)))
	allowed := strings.Replace(site, "interface: eth0", "interface: eth0, allow: [page]", 1)
	require.NotEqual(t, site, allowed, site)
	began := time.Now()
	require.NoError(t, d.Begin(ctx, allowed))
	follow(t, ctx, d, began, scenario.AllInState(1, metal3api.StateProvisioned))
	started(t, d)
	_, err := d.Sandbox.AwaitStage(ctx, "roles-bound", t.Output())
	require.NoError(t, err)

	server := d.Servers.Hosts()[0]
	viewer, at := logIn(t, ctx, d, "viewer", "vic@phone")
	_, err = viewer.Open(ctx, at+"nodes/"+server.Name+"/power-off")
	assert.ErrorContains(t, err, "403")

	operator, _ := logIn(t, ctx, d, "operator", "ann@laptop")
	assertRecordsShown(t, ctx, viewer, operator, at+"nodes/"+server.Name)
	shown, err := operator.Answer(ctx, at+"nodes/"+server.Name+"/power-off", nil)
	require.NoError(t, err)
	require.Contains(t, shown, server.Name+" is switched off.")
	require.Eventually(t, func() bool { return server.State() == simulator.Off }, 10*time.Minute, time.Second)

	said := ""
	assert.Eventually(t, func() bool {
		said = run(t, ctx, d, "firstlightd", "audit", "--user", "firstlight:")
		return strings.Contains(said, "firstlight:daemon as firstlight:ann@laptop")
	}, 2*time.Minute, time.Second)
	t.Log(said)
	assert.Regexp(t, `firstlight:ann@laptop .* power-off +nodes\.page\.firstlight\.dev/`+server.Name+` +200`, said)
}

// assertRecordsShown: the page of a node has what it asked when it booted, and for an operator what Ironic printed of it.
func assertRecordsShown(t *testing.T, ctx context.Context, viewer, operator *browser.Browser, node string) {
	await := func(b *browser.Browser, path string, words ...string) {
		var shown string
		assert.Eventually(t, func() bool {
			var err error
			shown, err = b.Open(ctx, path)
			return err == nil && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(shown, word) })
		}, 2*time.Minute, time.Second, "%s: %q", path, words)
		t.Logf("%s:\n%s", path, shown)
	}
	// The simulated firmware says by DHCP not what it is, so nothing of its boot is captured.
	await(viewer, node, "Its packets were not captured.", "Got its boot script: ", ", this appliance", "They may hold secrets.")
	_, err := viewer.Open(ctx, node+"/logs")
	assert.ErrorContains(t, err, "403")
	await(operator, node+"/logs", "lines: Ironic, about this node", "nothing answers SSH at ")
	await(operator, node+"/logs/ironic", "lines, which is all", "ironic.conductor", "Deploying on node ")
}

// logIn opens a browser on the appliance, for somebody with a role.
func logIn(t *testing.T, ctx context.Context, d *scenario.Scenario, role, user string) (b *browser.Browser, at string) {
	var login status.Login
	out := run(t, ctx, d, "firstlightd", "login", "--role", role, "--user", user, "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(out), &login))
	b, err := browser.New(d.Dialer())
	require.NoError(t, err)
	shown, err := b.Answer(ctx, page.LoginURL(login.URLs[0], login.Code), nil)
	require.NoError(t, err)
	require.Contains(t, shown, role+" "+user)
	return b, login.URLs[0]
}
