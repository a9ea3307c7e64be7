package page

import (
	"context"
	"fmt"
	"strings"
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
	assert.Equal(t, true, c.value("document.querySelector('#here').hidden && document.querySelector('#find').parentElement.hidden"))
	c.value("document.querySelector('#keys summary').focus()")
	c.press("Enter", 13)
	assert.Equal(t, true, c.value("document.getElementById('key-name').checkVisibility()"), "keys are explained without scripts")
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

// TestABrowserExplainsKeys: the key at the cursor, in blocks and in braces, and those that have some words, by keyboard.
func TestABrowserExplainsKeys(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	r := newFixture(t)
	url, _ := serveAlone(t, r.Server)
	c.size(1200, 900, "light")
	c.logIn(r.Server, url, Owner, nil)
	c.open(url + editPath)
	c.await("document.getElementById('here') !== null && document.readyState === 'complete'")

	for _, at := range []struct{ document, key string }{ // | is the cursor
		{"|name: rack-7\n", "name"},
		{"name: rack|-7\n", "name"},
		{"# nothing|\nname: rack-7\n", ""},
		{"nmae: x|\n", ""},
		{"networks:\n  bmc:\n    cidr: 10.0.0.0/2|4\n", "networks.bmc.cidr"},
		{"networks:\n  provisioning:\n    mtu: 9000\n\n  bmc: {dhcp: {range: a, lease: 1|h}, vlan: 3}\n", "networks.bmc.dhcp.lease"},
		{"networks:\n  bmc: {dhcp: {range: a, lease: 1h}, vl|an: 3}\n", "networks.bmc.vlan"},
		{"networks:\n  bmc: {dhcp: {range: a, lease: 1h}, |vlan: 3}\n", "networks.bmc.vlan"},
		{"nodes:\n- name: a\n  bmc:\n    address: redfish://a\n- name: b\n  bmc:\n    # its\n    user|\n", "nodes[].bmc"},
		{"nodes:\n- name: a\n  bmc:\n    address: redf|ish://a\n", "nodes[].bmc.address"},
		{"nodes:\n  - name: a\n    macs:\n    - 52:54:00:00:00:01\n    - 52:54:00|:00:00:02\n", "nodes[].macs"},
		{"nodes:\n  - |name: a\n", "nodes[].name"},
		{"nodes:\n- {name: a, macs: [52:54:00:00:0|0:01], bootMode: uefi}\n", "nodes[].macs"},
		{"nodes:\n- name: a\n  labels: {rack: r|7}\n", "nodes[].labels"},
		{"nodes:\n- name: a\naccess:\n  console: |\n", "access.console"},
		{"nodes:\n- name: a\n  |\naccess: {}\n", "nodes"},
	} {
		document, place := strings.ReplaceAll(at.document, "|", ""), strings.Index(at.document, "|")
		c.value(fmt.Sprintf("text.value = %q; text.setSelectionRange(%d, %d); text.focus(); explain()", document, place, place))
		shown := c.value("here.hidden ? '' : here.querySelector('dt').textContent")
		assert.Equal(t, at.key, shown, "%q", at.document)
	}
	c.value("text.value = 'name: a\\naccess: {console: none}\\n'; text.setSelectionRange(0, 0); text.focus()")
	c.press("ArrowDown", 40)
	c.await("here.querySelector('dt').textContent === 'access'")
	c.press("End", 35)
	c.value("text.setSelectionRange(20, 20)")
	c.press("ArrowLeft", 37)
	c.await("here.querySelector('dt').textContent === 'access.console'")
	assert.Contains(t, c.value("here.innerText"), "one of status, shell, none, default status.")
	assert.Equal(t, true, c.value("here.getBoundingClientRect().left > text.getBoundingClientRect().right"), "it is beside the text")
	c.picture("site-edit-keys")

	c.press("Tab", 9)
	c.press("Tab", 9)
	c.press("Tab", 9)
	assert.Equal(t, "find", c.value("document.activeElement.id"), "after the button and the link")
	c.call("Input.insertText", map[string]any{"text": "ROUTER goes"})
	assert.Equal(t, "3 found.", c.value("document.getElementById('found').textContent"))
	visible := "[...document.querySelectorAll('#keys .key')].filter(k => k.checkVisibility()).map(k => k.id).join(' ')"
	assert.Equal(t, "key-networks.provisioning.gateway key-networks.bmc.gateway key-networks.baremetal.gateway", c.value(visible))
	c.picture("site-edit-found")
	c.value("find.value = ''; filter()")
	assert.Empty(t, c.value(visible), "they are folded as before")
}
