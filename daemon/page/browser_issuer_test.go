package page

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestABrowserLogsInByTheIssuer: by keyboard, with an issuer at another site, whose answer is a link of that site.
func TestABrowserLogsInByTheIssuer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	r, i := newFixture(t), newTestIssuer(t)
	named := *r.of.site
	named.Appliance.OIDC = i.site()
	r.of.site = &named
	r.api.trusts = i.site()
	url, _ := serveAlone(t, r.Server)
	const loaded = "document.readyState === 'complete'"
	logInAs := func(user string) {
		c.open(url + "/login")
		c.value("document.querySelector('a.button').focus()")
		c.press("Enter", 13)
		c.await("location.hostname === 'localhost' && document.querySelector('button') !== null && " + loaded)
		c.value(fmt.Sprintf("document.querySelector('button[value=%s]').focus()", user))
		c.press("Enter", 13)
	}

	logInAs("eve")
	c.await("location.hostname === '127.0.0.1' && document.getElementById('error') !== null && " + loaded)
	assert.Contains(t, c.value("document.getElementById('error').innerText"), "none of your groups has a role")

	logInAs("vic")
	c.await("location.pathname === '/' && document.querySelector('.role') !== null && " + loaded)
	assert.Contains(t, c.value("document.querySelector('.role').innerText"), "viewer oidc:vic@example.com")
	c.value("document.querySelector('form[action=\"/logout\"] button').focus()")
	c.press("Enter", 13)
	c.await("location.pathname === '/login' && " + loaded)

	logInAs("ann")
	c.await("location.pathname === '/' && document.querySelector('.role') !== null && " + loaded)
	c.open(url + "/nodes/" + r.places["power-off"] + "/power-off")
	c.value("document.querySelector('.confirm button').focus()")
	c.press("Enter", 13)
	c.await("document.getElementById('notice') !== null && " + loaded)
	assert.Contains(t, c.value("document.getElementById('notice').innerText"), "is switched off.")
	assert.Len(t, r.api.takeDone(), 1)
}
