package page

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestABrowserSeesPacketsPass: the page of a chain goes from one reading to rates, and from rates to the next ones, without
// a load.
func TestABrowserSeesPacketsPass(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	s := newServer(t, rack(10))
	c := startChromium(ctx, t)
	url, _ := serveAlone(t, s)
	c.size(1200, 900, "light")
	c.logIn(s, url, Viewer, nil)
	c.open(url + chainPath("edge"))
	c.value("window.marked = true")

	const row = "document.getElementById('hop-service-chain-generator').innerText"
	c.await(row + ".includes('500/s sent')")
	first := c.value("document.querySelector('#hop-service-chain-generator time').dateTime")
	c.picture("chain")
	for range 2 {
		before := c.value("document.querySelector('#hop-service-chain-generator time').dateTime")
		c.await("document.querySelector('#hop-service-chain-generator time').dateTime !== '" + before.(string) + "'")
	}
	assert.Contains(t, c.value(row), "500/s sent")
	assert.Less(t, first, c.value("document.querySelector('#hop-service-chain-generator time').dateTime"))
	assert.Equal(t, true, c.value("window.marked"), "the page was not loaded again")
}
