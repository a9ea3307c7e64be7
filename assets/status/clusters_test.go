package status

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAClusterIsFoundByWhatPeopleCallIt(t *testing.T) {
	all := []Cluster{{Namespace: "default", Name: "edge"}, {Namespace: "metal3", Name: "edge"}, {Namespace: "metal3", Name: "far"}}
	for ref, want := range map[string]int{"default/edge": 0, "metal3/edge": 1, "far": 2, "metal3/far": 2, "edge": -1, "default/far": -1, "": -1} {
		c, ok := FindCluster(all, ref)
		assert.Equal(t, want >= 0, ok, ref)
		if ok {
			assert.Equal(t, all[want], c, ref)
		}
	}
	assert.Equal(t, []string{"default/edge", "far"}, []string{ClusterRef(all, all[0]), ClusterRef(all, all[2])})
}
