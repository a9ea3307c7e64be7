package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// components are those of a chain of which the middle one failed, and one that waits for nothing.
func components() []status.Component {
	on := func(cluster, state, reason, text string) []status.ComponentOn {
		return []status.ComponentOn{{Cluster: cluster, State: state, Reason: reason, Text: text, Revision: "1f2e3d4c", Objects: "1/3"}}
	}
	return []status.Component{
		{Name: "default/nfd", State: "ready", Clusters: "1/1", On: on("edge", "ready", "", "")},
		{Name: "default/sriov-operator", State: "failed", Text: "is refused by the cluster", After: []string{"nfd"},
			On: on("edge", "failed", "ApplyFailed", "admission webhook denied it")},
		{Name: "default/sriov-network", State: "waiting", After: []string{"sriov-operator"},
			On: on("edge", "waiting", "DependencyNotReady", "sriov-operator is not ready")},
		{Name: "default/qat", State: "skipped", On: on("edge", "skipped", "", "")},
		{Name: "alpha/shop", State: "ready", Clusters: "1/1", On: on(status.ComponentTarget, "ready", "", "")},
	}
}

func TestAddOnsAreShownByClusterAndInTheirOrder(t *testing.T) {
	d := logIn(t, newServer(t, rack(10))).open("/addons")
	var targets []string
	for _, s := range d.with("card") {
		targets = append(targets, s.all("h2")[0].text())
	}
	assert.Equal(t, []string{"edge", "The appliance, for alpha"}, targets, "what needs a person comes first")
	edge := d.id("target-default/edge")
	assert.Equal(t, "card bad", edge.attr("class"))
	assert.Equal(t, []string{"/clusters/edge"}, hrefs(edge.all("h2")))
	assert.Equal(t, []string{"default/sriov-operator", "default/sriov-network", "default/nfd", "default/qat"}, texts(rowHeads(edge)))
	assert.Equal(t, "default/sriov-operator failed 1f2e3d4c 1/3 ApplyFailed: admission webhook denied it",
		strings.Join(texts(edge.with("failed")[0].all("th", "td")), " "))

	order := d.id("order-default-list")
	assert.Equal(t, []string{
		"nfd, ready", "qat, skipped", "sriov-operator, failed, after nfdis refused by the cluster", "sriov-network, waiting, after sriov-operator",
	}, texts(order.all("li")))
	svg := d.id("order-default").all("svg")[0]
	assert.Equal(t, "img", svg.attr("role"))
	assert.Equal(t, "order-default-list", svg.attr("aria-describedby"), "the list says the same")
	assert.Contains(t, d.id(svg.attr("aria-labelledby")).text(), "Which component of default waits for which")
	assert.Len(t, svg.with("box"), 3, "what waits for nothing and is waited for by nothing is in the list alone")
	assert.Len(t, svg.with("arrow"), 2)
	assert.Empty(t, d.id("order-alpha").all("svg"))
	assert.Contains(t, d.id("order-alpha").text(), "no component waits for another one")
}

func TestAddOnsThatAreNotThereSaySo(t *testing.T) {
	assert.Contains(t, logIn(t, newServer(t, begun())).open("/addons").id("empty").text(), "not known yet")
	of := ready()
	of.doc.Components = []status.Component{}
	assert.Contains(t, logIn(t, newServer(t, of)).open("/addons").id("empty").text(), "No Component asks for anything")
}

// TestACircleOfAddOnsIsDrawn: it is what has to be seen.
func TestACircleOfAddOnsIsDrawn(t *testing.T) {
	of := rack(1)
	of.doc.Components = []status.Component{
		{Name: "default/a", State: "waiting", After: []string{"b", "gone"}}, {Name: "default/b", State: "waiting", After: []string{"a"}},
	}
	d := logIn(t, newServer(t, of)).open("/addons")
	assert.Len(t, d.with("arrow"), 3)
	bent := 0
	for _, a := range d.with("arrow") {
		if strings.Contains(a.attr("class"), "bad") {
			bent++
		}
	}
	assert.Equal(t, 1, bent)
	require.Len(t, d.with("missing"), 1)
	assert.Contains(t, d.with("missing")[0].text(), "gone: not there")
}
