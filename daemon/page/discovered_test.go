package page

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDiscoveredMachinesShowEachGuess: those that wait for a person first, with what they said and why they wait.
func TestDiscoveredMachinesShowEachGuess(t *testing.T) {
	r := newFixture(t)
	for _, role := range Roles() {
		d := logInAs(t, r.Server, role).open("/discovered")
		assert.Equal(t, []string{"node-s10", "node-abc", "52:54:00:99:00:03"}, texts(d.all("h3")))
		booted := d.id("machine-52:54:00:99:00:01")
		assert.Contains(t, booted.text(), "its BMC 10.30.0.101 takes the login of \"admin\"; it awaits approval")
		assert.Contains(t, booted.text(), "Maker Box 9, serial S9")
		assert.Contains(t, booted.text(), "/dev/sda 480 GB")
		assert.Contains(t, booted.text(), "- name: ", "an entry for site.yaml")
		assert.Equal(t, "/nodes/52:54:00:99:00:01", booted.all("a")[0].attr("href"))
		off := d.id("machine-10.30.0.102")
		assert.Contains(t, off.text(), "50:9a:4c:00:00:01 leased 10.30.0.102")
		assert.Contains(t, d.id("machine-52:54:00:99:00:03").text(), "it names no BMC enable its BMC")
		assert.Equal(t, role != Viewer, strings.Contains(off.text(), "Make it a node"))
		assert.NotContains(t, d.id("machine-52:54:00:99:00:03").text(), "Make it a node", "it does not await it")
		assert.Equal(t, role != Viewer, d.id("actions") != nil)
	}

	assert.Contains(t, logIn(t, newServer(t, begun())).open("/discovered").id("empty").text(), "is not known yet")
	d := logIn(t, newServer(t, ready())).open("/discovered")
	assert.Contains(t, d.id("empty").text(), "No machine that the site does not name")
	assert.Contains(t, d.id("main").text(), "has no discover")
}

// TestAMachineThatIsOffIsApproved: one of which only the BMC is known. The list says what became of it.
func TestAMachineThatIsOffIsApproved(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Operator)
	approve := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == "approve" })]
	r.places["approve"] = "10.30.0.102"
	w := r.post(b, approve, r.form(b, approve))
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "/discovered", w.Header().Get("Location"))
	assert.Equal(t, "node-s10 is a node now.", b.open("/discovered").id("notice").text())
	assert.Equal(t, []string{"approve [node-s10/10.30.0.102]"}, r.api.takeDone())
}

// TestAllThatWereShownAreApproved: a machine that comes meanwhile is not among them before somebody has read its name.
func TestAllThatWereShownAreApproved(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Operator)
	all := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == "approve-all" })]
	form := r.form(b, all)
	r.of.details[2].Awaits, r.of.details[2].Node = true, "node-s11"
	r.hub.forget()
	w := r.post(b, all, form)
	require.Equal(t, http.StatusConflict, w.Code)
	assert.Contains(t, parse(t, w.Body.Bytes()).id("main").text(), "node-abc/52:54:00:99:00:01 node-s10/10.30.0.102 node-s11/52:54:00:99:00:03")
	assert.Empty(t, r.api.takeDone())

	w = r.post(b, all, r.form(b, all))
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "node-abc, node-s10, node-s11 are nodes now.", b.open("/discovered").id("notice").text())

	r.deeds.Approve = func(names []string) ([]string, error) {
		return []string{"node-abc"}, errors.New("node-s10 is not approved: it is gone")
	}
	w = r.post(b, all, r.form(b, all))
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "node-abc is a node now. node-s10 is not approved: it is gone", b.open("/discovered").id("notice").text())
}
