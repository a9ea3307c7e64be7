package metal3provider

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

func TestLabelChanges(t *testing.T) {
	type labels = map[string]string
	for name, c := range map[string]struct {
		host, node labels
		want       map[string]any
	}{
		"nothing":                {labels{"rack": "1"}, labels{"a.example/x": "1"}, map[string]any{"a.example/x": nil}},
		"added":                  {labels{"a.example/x": "1", "b.example/x": "1"}, nil, map[string]any{"a.example/x": "1"}},
		"changed":                {labels{"a.example/x": "2"}, labels{"a.example/x": "1"}, map[string]any{"a.example/x": "2"}},
		"equal":                  {labels{"a.example/x": ""}, labels{"a.example/x": ""}, map[string]any{}},
		"the empty value counts": {labels{"a.example/x": ""}, nil, map[string]any{"a.example/x": ""}},
		"others of the Node":     {nil, labels{"x": "1", "sub.a.example/x": "1", "b.example/x": "1"}, map[string]any{}},
	} {
		assert.Equal(t, c.want, labelChanges(c.host, c.node, labelPrefixes(" a.example, ,c.example")), name)
	}
	assert.Empty(t, labelPrefixes(""))
}

// testLabelSync: labels of a host get onto the Node, and off it again; those that the Node has from elsewhere stay.
func testLabelSync(t *testing.T, r *fixture) {
	r.addHost("host-1", func(h *host) { h.Labels["rack.example/row"] = "7" })
	r.install("edge", "cp0")
	change(r, "edge", &v1beta2.Metal3Cluster{}, func(c *v1beta2.Metal3Cluster) {
		c.Annotations[v1beta2.AnnotationLabelSync] = "rack.example"
	})
	changeStatus(r, "cp0", &clusterv1.Machine{}, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "node-cp0" })
	labels := func() map[string]string {
		n := &corev1.Node{}
		require.NoError(t, r.nodes.Get(t.Context(), key(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-cp0"}}), n))
		return n.Labels
	}
	own := len(labels())
	r.round()
	assert.Equal(t, "7", labels()["rack.example/row"])
	assert.Len(t, labels(), own+1)

	change(r, "host-1", &host{}, func(h *host) { delete(h.Labels, "rack.example/row") })
	r.round()
	assert.Len(t, labels(), own)
}
