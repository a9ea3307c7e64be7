package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// TestTheEditorExplainsEveryKey: in sections by the keys at the left margin, all of them folded.
func TestTheEditorExplainsEveryKey(t *testing.T) {
	d := logInAs(t, newFixture(t).Server, Owner).open(editPath)
	sections := 0
	for _, f := range site.Fields() {
		entry := d.id(siteKeyID(f.Path))
		require.NotNil(t, entry, f.Path)
		assert.True(t, strings.HasPrefix(entry.text(), f.Path), f.Path)
		for _, says := range []string{f.Type, f.Default, strings.Join(strings.Fields(f.Meaning), " ")} {
			assert.Contains(t, entry.text(), says, f.Path)
		}
		if !strings.Contains(f.Path, ".") {
			sections++
		}
	}
	assert.Len(t, d.id("keys").with("key"), len(site.Fields()), "two keys have one place")
	assert.Len(t, d.id("keys").all("details"), sections)
	assert.Empty(t, openSections(d))
	assert.Equal(t, "access.consoleone of status, shell, none, default status. What screen and serial line show: the status, "+
		"the status and a root shell on the second screen, or nothing.", d.id("key-access.console").text())
}

// openSections are the summaries of the sections that are not folded.
func openSections(d document) (names []string) {
	for _, section := range d.id("keys").all("details") {
		if _, isOpen := section.lookup("open"); isOpen {
			names = append(names, section.all("summary")[0].all("code")[0].text())
		}
	}
	return names
}

// TestAMistakeNamesItsKey: the one that it is about, or the nearest above it, and leads to it in the list.
func TestAMistakeNamesItsKey(t *testing.T) {
	b := logInAs(t, newFixture(t).Server, Owner)
	w := b.ask("POST", editPath, documentForm(t, b, editPath, func(string) string {
		return "clusterz: 3\naccess: {console: maybe}\nnetworks: {bmc: {colour: red}}\nnodes:\n- {name: a, macs: [x]}\n"
	}).Encode())
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	d := parse(t, w.Body.Bytes())
	lines := d.id("problems").all("li")
	require.Len(t, lines, 4, d.id("problems").text())
	for i, want := range []struct{ mistake, key, says string }{
		{"clusterz: unknown key", "", ""},
		{"access.console: ", "access.console", "one of status, shell, none, default status."},
		{"networks.bmc.colour: unknown key", "networks.bmc", "Where the BMCs are."},
		{"nodes[0].macs[0]: ", "nodes[].macs", "list of MAC"},
	} {
		assert.Contains(t, lines[i].text(), want.mistake)
		links := lines[i].all("a")
		if want.key == "" {
			assert.Empty(t, links, want.mistake)
			continue
		}
		require.Len(t, links, 1, want.mistake)
		assert.Equal(t, want.key, links[0].text())
		assert.Equal(t, "#"+siteKeyID(want.key), links[0].attr("href"))
		assert.Contains(t, lines[i].text(), want.says)
	}
	assert.Equal(t, []string{"networks", "access", "nodes"}, openSections(d))
}
