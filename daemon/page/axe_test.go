package page

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// readAxe is axe-core, which looks for what people cannot see, read or reach. `scripts/deps test` brings it as
// testtools/package-lock.json names it.
func readAxe(t *testing.T) string {
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dir := filepath.Join(cache, "firstlight/axe")
	want, err := os.ReadFile("testtools/package-lock.json")
	require.NoError(t, err)
	have, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil || string(have) != string(want) {
		t.Skip("there is no axe-core, or another version; scripts/deps test brings it")
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	return string(text)
}

// violation is a rule of WCAG that a page breaks, as axe-core says it.
type violation struct {
	ID, Help string
	Nodes    []struct{ HTML, Why string }
}

// axeRun applies all rules of WCAG 2.2, A and AA.
const axeRun = `axe.run(document, {
	runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']},
	resultTypes: ['violations'],
}).then(found => JSON.stringify(found.violations.map(v => ({
	ID: v.id, Help: v.help, Nodes: v.nodes.map(n => ({HTML: n.html, Why: n.failureSummary})),
}))))`

// checkAxe holds the page that is open to WCAG 2.2 AA, in light and dark, wide and narrow.
func (c *chromium) checkAxe(name string) {
	c.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1200, 390} {
			c.size(width, 900, scheme)
			text, isText := c.value(axeRun).(string)
			require.True(c.t, isText, "%s: axe-core did not run", name)
			var found []violation
			require.NoError(c.t, json.Unmarshal([]byte(text), &found))
			for _, v := range found {
				assert.Fail(c.t, v.ID, "%s, %s, %d wide: %s: %+v", name, scheme, width, v.Help, v.Nodes)
			}
		}
	}
}

// TestEveryPageIsAccessible has axe-core look at every page and question, in its states.
func TestEveryPageIsAccessible(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	source := readAxe(t)
	c := startChromium(ctx, t)
	c.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": source})

	logInTo := func(s *Server, role Role) (url string) {
		url, _ = serveAlone(t, s)
		c.logIn(s, url, role, func() { c.checkAxe("the log-in") })
		return url
	}

	// A page with what it is to find: a rule that is broken is reported.
	r := newConsoleFixture(t)
	url := logInTo(r.Server, Owner)
	c.value("document.querySelector('h1').insertAdjacentHTML('afterend', '<input>')")
	assert.Contains(t, c.value(axeRun), `"ID":"label"`, "an input without a label")

	r.acts.Burst, r.acts.Every = 1000, time.Millisecond
	paths := []string{
		"/", "/nodes/node-000", "/nodes/node-001", "/nodes/node-004", "/nodes/node-004/console", "/nodes/node-002", "/nodes/52:54:00:99:00:01",
		nodeLogsPath("node-000"), nodeLogsPath("node-000") + "/ironic", nodeLogsPath("node-002"), nodeLogsPath("node-009"), "/discovered", "/clusters",
		"/clusters/edge", "/clusters/lab", tenantPath("edge", "alpha"), tenantPath("edge", "gone"), tenantPath("lab", "alpha"),
		chainPath("edge"), chainPath("lab"), chainPath("far"), tenantEditLink("edge", "alpha"), tenantEditLink("edge", ""), webPath, webPath + "/logs/web", webPath + "/logs/web/previous", webPath + "/logs/none",
		"/addons", "/networks", "/uploads", "/numbers", "/updates", "/site", "/site/documents/4", editPath, "/secrets", "/appliance", "/nothing",
	}
	for _, a := range actions() {
		paths = append(paths, a.path(r.places[a.name]))
		if a.choice != nil {
			paths = append(paths, r.question(a), a.path(r.places[a.name])+"?continue=yes")
		}
	}
	for _, path := range paths {
		c.openAnswered(url + path)
		c.checkAxe(path)
	}
	c.open(url + editPath)
	c.value("document.getElementById('text').value = 'nmae: x\\n'; document.querySelector('main form').submit()")
	c.await("document.getElementById('problems') !== null && document.readyState === 'complete'")
	c.checkAxe("a site document with mistakes")

	c.open(url + tenantEditLink("edge", "alpha"))
	c.value("document.getElementById('text').value = 'namespaces: [x'; document.querySelector('main form').submit()")
	c.await("document.getElementById('error') !== null && document.readyState === 'complete'")
	c.checkAxe("a Tenant with mistakes")
	c.value("document.getElementById('text').value = 'namespaces: [x]'; document.querySelector('main form').submit()")
	c.await("document.getElementById('checked') !== null && document.readyState === 'complete'")
	c.checkAxe("a Tenant that was checked")

	none := ready()
	none.doc.Clusters = []status.Cluster{{Name: "new", State: status.ClusterWaiting, Text: "nodes are verified first"}}
	for name, of := range map[string]*state{"begun": begun(), "stopped": stopped(), "empty": none} {
		url := logInTo(newServer(t, of), Viewer)
		for _, path := range []string{"/", "/discovered", "/clusters", "/addons", "/networks", "/uploads", "/site", "/numbers", "/updates", "/appliance"} {
			c.openAnswered(url + path)
			c.checkAxe(fmt.Sprintf("%s %s", name, path))
		}
	}
}
