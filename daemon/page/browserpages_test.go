package page

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
)

// TestABrowserReadsEveryPage opens the pages of the site in light and dark, wide and as narrow as a phone, without
// JavaScript: nothing is cut off, and the keyboard reaches what is to be followed or scrolled.
func TestABrowserReadsEveryPage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	of := rack(10)
	of.doc.Clusters[0].Updates = []status.NodeUpdate{updatingFar(), nightly()}
	s := newServer(t, of)
	c := startChromium(ctx, t)
	c.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	url, _ := serveAlone(t, s)
	c.logIn(s, url, Owner, nil)

	for _, page := range []struct{ path, name, shows string }{
		{"/nodes/node-001", "boot", "OFFER of 10.0.0.7"},
		{nodeLogsPath("node-000"), "logs", "agent fails"},
		{nodeLogsPath("node-000") + "/ironic", "node-log", "The last 300 lines"},
		{"/clusters/edge", "cluster", "CrashLoopBackOff: back-off 5m0s"},
		{"/clusters/lab", "cluster-failed", "It did not answer at"},
		{webPath, "pod", "it ended last with Error, exit code 2"},
		{webPath + "/logs/migrate", "log", "The last 500 lines"},
		{tenantPath("edge", "alpha"), "tenant", "alpha-dev, alpha-prod"},
		{chainPath("edge"), "chain", "1. generator"},
		{"/numbers", "numbers", "100 MB/s"},
		{"/updates", "updates", "Draining: 2 pods are still there"},
		{"/networks", "networks", "172.22.0.51"},
		{"/secrets", "secrets", "logins of BMCs"},
		{"/addons", "addons", "sriov-network, waiting, after sriov-operator"},
	} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{1200, 390} {
				c.size(width, 900, scheme)
				c.openAnswered(url + page.path)
				assert.Contains(t, c.value("document.getElementById('main').innerText"), page.shows, page.path)
				assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "%s, %d wide", page.path, width)
				c.picture(fmt.Sprintf("%s-%s-%d", page.name, scheme, width))
			}
		}
		assert.Equal(t, "Changes show when you load the page again.", c.value("document.getElementById('live').textContent"))
		c.checkKeyboard(page.path)
	}

	of.doc.Clusters = of.doc.Clusters[1:] // none is in service
	s.hub.forget()
	for _, width := range []int{1200, 390} {
		c.size(width, 900, "light")
		c.open(url + "/")
		assert.Contains(t, c.value("document.getElementById('checklist').innerText"), "All servers are installed and verified")
		assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "%d wide", width)
		c.picture(fmt.Sprintf("checklist-%d", width))
	}
}

// openAnswered loads a page again, as it tells people without JavaScript to, until what it asked is answered.
func (c *chromium) openAnswered(url string) {
	c.t.Helper()
	c.open(url)
	for strings.Contains(c.value("document.getElementById('main').innerText").(string), "It is being asked.") {
		time.Sleep(50 * time.Millisecond) // the connection has the deadline
		c.open(url)
	}
}

// checkKeyboard goes through a page by the Tab key: it reaches every link, button and region that scrolls, in order.
func (c *chromium) checkKeyboard(path string) {
	c.t.Helper()
	const all = "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"], input:not([type=hidden])')]"
	count := int(c.value(all + ".length").(float64))
	c.value("document.activeElement.blur()")
	var reached []string
	for range count {
		c.press("Tab", 9)
		reached = append(reached, fmt.Sprint(c.value(all+".indexOf(document.activeElement)")))
	}
	var want []string
	for i := range count {
		want = append(want, fmt.Sprint(i))
	}
	assert.Equal(c.t, strings.Join(want, " "), strings.Join(reached, " "), path)
}
