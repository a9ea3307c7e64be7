package installer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// plansOf are all plans of an installer by what they do, with a node that another cluster has let go of.
func plansOf() map[string][]bringup.Stage {
	c := &cluster{Settings: edge}
	first := &node{Node: made("m-1", "172.22.0.11", true, true), cluster: c, leftBy: "core"}
	next := &node{Node: made("m-2", "172.22.0.12", true, true), cluster: c}
	c.nodes = []*node{first, next}

	plans := map[string][]bringup.Stage{
		"the first node": first.stages(), "the next node": next.stages(), "the cluster": c.stages(), "removes": next.leavingStages(),
	}
	for _, stage := range []string{contract.RotationTrust, contract.RotationSign, contract.RotationDrop} {
		r := &rotation{Rotation: contract.Rotation{Stage: stage}}
		plans["rotates a node: "+stage], plans["rotates: "+stage] = next.rotationStages(r), c.rotationStages(r)
	}
	return plans
}

func TestPeopleAreShownTitlesOfStages(t *testing.T) {
	for what, plan := range plansOf() {
		titled := map[string]bool{}
		for _, s := range plan {
			assert.Regexp(t, `^[A-Z][^:]*[a-z]$`, s.Title, "%s: %s: what stands before a colon", what, s.Name)
			assert.LessOrEqual(t, len(s.Title), 40, "%s: %s: the screen has 80 columns, and more to say", what, s.Name)
			assert.False(t, titled[s.Title], "%s: %s: another stage is shown so", what, s.Name)
			titled[s.Title] = true
		}
	}
}

func TestDocsHaveTheStagesInTheirOrder(t *testing.T) {
	text, err := os.ReadFile("../../../docs/clusters.md")
	require.NoError(t, err)
	_, part, _ := strings.Cut(string(text), "\n## The stages of an installation\n")
	part, _, found := strings.Cut(part, "\n## ")
	require.True(t, found)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([A-Z][^|]*) \| `).FindAllStringSubmatch(part, -1) {
		documented = append(documented, m[1]+": "+m[2])
	}

	plans := plansOf()
	next := plans["the next node"]
	var planned []string
	for _, s := range append(append(plans["the first node"], next[len(next)-1]), plans["the cluster"]...) {
		planned = append(planned, s.Name+": "+s.Title)
	}
	assert.Equal(t, planned, documented)
}
