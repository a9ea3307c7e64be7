package page

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestABrowserErasesADisk: on a phone in the dark, by keyboard, with scripts switched off.
func TestABrowserErasesADisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	r := newFixture(t)
	url, _ := serveAlone(t, r.Server)
	c.size(390, 844, "dark")
	c.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	const loaded = "document.readyState === 'complete'"
	shown := func(name string) {
		t.Helper()
		assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "%s: a phone shows its whole width", name)
		c.picture(name)
	}

	c.logIn(r.Server, url, Owner, nil)
	c.open(url + "/nodes/node-001/erase")
	shown("erase-choose")
	c.value("document.getElementById('option-1').focus()")
	c.press(" ", 32)
	c.await("document.getElementById('option-1').checked")
	c.value("document.querySelector('.confirm button').focus()")
	c.press("Enter", 13)
	c.await("document.getElementById('name') !== null && " + loaded)
	assert.Contains(t, c.value("document.getElementById('main').innerText"), "Erased: /dev/sdb 480 GB wwn 0x5b")
	assert.Contains(t, c.value("document.getElementById('main').innerText"), "Left alone: /dev/nvme0n1 960 GB")
	shown("erase-confirm")

	c.value("document.getElementById('name').focus()")
	c.call("Input.insertText", map[string]any{"text": "node-001"})
	c.press("Enter", 13)
	c.await("location.pathname === '/nodes/node-001' && " + loaded)
	assert.Contains(t, c.value("document.getElementById('notice').textContent"), "node-001 is erased: /dev/sdb 480 GB")
	shown("erase-begun")
	assert.Equal(t, []string{"erase [0x5b] of node-001"}, r.api.takeDone())
}
