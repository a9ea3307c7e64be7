package page

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestABrowserEditsTheSite: on a phone in the dark, by keyboard, with scripts switched off.
func TestABrowserEditsTheSite(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	r := newFixture(t)
	url, _ := serveAlone(t, r.Server)
	c.size(390, 844, "dark")
	c.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	loaded := "document.readyState === 'complete'"
	fits := func(name string) {
		t.Helper()
		assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "%s: a phone shows its whole width", name)
		c.picture(name)
	}

	c.logIn(r.Server, url, Owner, nil)
	c.open(url + "/site")
	fits("site-phone")
	c.value("document.querySelector('#document a').focus()")
	c.press("Enter", 13)
	c.await("location.pathname === '/site/edit' && " + loaded)
	assert.NotContains(t, c.value("document.getElementById('text').value"), secretOfSite)
	fits("site-edit-phone")

	c.value("document.getElementById('text').focus(); document.getElementById('text').setSelectionRange(0, 0)")
	c.call("Input.insertText", map[string]any{"text": "clusterz: 3\n"})
	c.press("Tab", 9)
	assert.Equal(t, "Check", c.value("document.activeElement.textContent"), "the button is next")
	c.press("Enter", 13)
	c.await("document.getElementById('problems') !== null && " + loaded)
	assert.Contains(t, c.value("document.getElementById('problems').textContent"), "site.yaml:1: clusterz: unknown key")
	fits("site-problems-phone")

	c.value("document.getElementById('text').focus(); document.getElementById('text').setSelectionRange(0, 12)")
	c.call("Input.insertText", map[string]any{"text": "# Rack 7.\n"})
	c.press("Tab", 9)
	c.press("Enter", 13)
	c.await("document.getElementById('checked') !== null && " + loaded)
	fits("site-checked-phone")
	c.value("document.querySelector('#checked .next a').focus()")
	c.press("Enter", 13)
	c.await("location.pathname.endsWith('/replace') && " + loaded)
	fits("site-apply-phone")
	c.value("document.querySelector('.confirm button').focus()")
	c.press("Enter", 13)
	c.await("location.pathname === '/site' && " + loaded)
	assert.Equal(t, "site.yaml is replaced and in effect.", c.value("document.getElementById('notice').textContent"))
	assert.Equal(t, "# Rack 7.\n"+string(r.of.siteText), string(r.api.stick))
}
