package page

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// TestOwnersReplaceWhatTheCommandReplaces: a link for each rotation, which operators have not.
func TestOwnersReplaceWhatTheCommandReplaces(t *testing.T) {
	var want []string
	for _, r := range vault.Rotations() {
		want = append(want, "Replace "+r.What)
	}
	r := newFixture(t)
	assert.Equal(t, want, texts(logInAs(t, r.Server, Owner).open("/secrets").id("actions").all("a")))
	assert.Nil(t, logInAs(t, r.Server, Operator).open("/secrets").id("actions"))

	r.of.site.Nodes, r.of.doc.Clusters = nil, []status.Cluster{{Name: "far", Kind: status.KindCluster, State: status.ClusterReady}}
	r.hub.forget()
	assert.Equal(t, want[:len(want)-2], texts(logInAs(t, r.Server, Owner).open("/secrets").id("actions").all("a")),
		"there is no BMC, and no cluster that the appliance's installer made")
}

// TestPasswordsOfChosenBMCsAreReplaced: of some nodes that have a BMC, or of all.
func TestPasswordsOfChosenBMCsAreReplaced(t *testing.T) {
	r := newFixture(t)
	bmc := findAction(t, "rotate-bmc")
	b := logInAs(t, r.Server, Owner)
	assert.Equal(t, []string{"all nodes", "node-001"}, texts(b.open(bmc.path("")).all("label")))
	for query, says := range map[string]string{
		"?choice=*&choice=node-001": "choose all nodes, or some of them",
		"?choice=node-002":          "something has changed meanwhile; choose again",
	} {
		w := b.ask("GET", bmc.path("")+query, "")
		assert.Equal(t, http.StatusUnprocessableEntity, w.Code, query)
		assert.Equal(t, says, parse(t, w.Body.Bytes()).id("error").text())
	}

	asked := b.open(bmc.path("") + "?choice=*").id("main")
	assert.Contains(t, asked.text(), "It is about BMCs of all nodes.")
	fields := url.Values{}
	for _, input := range asked.all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	fields.Set("name", r.of.doc.Name)
	w := r.post(b, bmc, fields)
	assert.Equal(t, "bmc is being replaced.", b.open(w.Header().Get("Location")).id("notice").text())
	assert.Equal(t, []string{"rotate bmc []"}, r.api.takeDone())

	r.deeds.Rotate = func(string, []string) (string, error) { return "", errors.New("it is being replaced already") }
	authority := findAction(t, "rotate-authority")
	w = r.post(b, authority, r.form(b, authority))
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, "Not done: it is being replaced already", b.open("/secrets").id("notice").text())
}
