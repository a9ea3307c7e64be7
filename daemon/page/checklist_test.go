package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

func TestTheChecklistSaysWhatIsNext(t *testing.T) {
	withNodes := func(change func(*state)) *state {
		of := rack(10)
		of.doc.Clusters = nil
		change(of)
		return of
	}
	verified := func(of *state) {
		for i := range of.doc.Nodes {
			of.doc.Nodes[i].Verified, of.doc.Nodes[i].Next = true, ""
		}
	}
	for _, c := range []struct {
		name  string
		of    *state
		want  string // states, in order
		shows string // in the step whose turn it is
	}{
		{"just switched on", begun(), "now then then then then then", "comes up automatically"},
		{"stopped", stopped(), "needs you then then then then then", "Correct site.yaml on the stick's SITE partition"},
		{"no site", ready(), "done now then then then then", "firstlight site init"},
		{"no BMC answers", withNodes(func(of *state) { of.hosts = nil }), "done done needs you then then then", "what to do"},
		{"on their way", withNodes(func(of *state) { of.doc.Nodes[0].Next = "" }), "done done done now then then", "6 of 10 nodes"},
		{"one node needs a person", withNodes(func(*state) {}), "done done done needs you then then", "what to do"},
		{"no cluster is asked for", withNodes(verified), "done done done done now then", "under clusters in site.yaml"},
		{"the site names one, of which nothing is known yet", withNodes(func(of *state) {
			verified(of)
			named := *of.site
			named.Clusters = []site.Cluster{{Name: "edge"}}
			of.site = &named
		}), "done done done done done now", "A cluster is in service"},
		{"it is installed", withNodes(func(of *state) {
			verified(of)
			of.doc.Clusters = []status.Cluster{{Name: "edge", State: "installing", Percent: 40}}
		}), "done done done done done now", "edge is installing, 40 %"},
		{"it failed", withNodes(func(of *state) {
			verified(of)
			of.doc.Clusters = []status.Cluster{{Name: "edge", State: "failed", Error: "no host fits"}}
		}), "done done done done done needs you", "edge: no host fits"},
		{"it is asked for before its nodes are there", withNodes(func(of *state) {
			of.doc.Clusters = []status.Cluster{{Name: "edge", State: "waiting"}}
		}), "done done done needs you done then", "what to do"},
	} {
		d := logIn(t, newServer(t, c.of)).open("/")
		list := d.id("checklist")
		require.NotNil(t, list, c.name)
		var states []string
		for _, step := range list.all("li") {
			states = append(states, step.all("strong")[0].text())
			assert.Equal(t, step.attr("aria-current") == "step", strings.Contains(step.text(), c.shows), "%s: %s", c.name, step.text())
		}
		assert.Equal(t, c.want, strings.Join(states, " "), c.name)
	}
}

func TestTheChecklistEndsWithACluster(t *testing.T) {
	assert.Nil(t, logIn(t, newServer(t, rack(10))).open("/").id("checklist"), "one is in service")
	of := ready()
	of.site.Clusters = []site.Cluster{}
	assert.Nil(t, logIn(t, newServer(t, of)).open("/").id("checklist"), "the site wants none")
}
