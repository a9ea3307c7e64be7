package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// TestWhatAClusterAffects: objects that name the cluster, by a label or by their own name, in its namespace alone.
func TestWhatAClusterAffects(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	update := func(namespace, name, cluster string) *v1alpha1.NodeUpdate {
		o := &v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if cluster != "" {
			o.Labels = map[string]string{v1alpha1.LabelCluster: cluster}
		}
		return o
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		update("a", "edge", ""), update("a", "november", "edge"), update("a", "other", "north"), update("b", "november", "edge"),
	).Build()
	p := &v1alpha1.Provisioning{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "p", Labels: map[string]string{v1alpha1.LabelCluster: "edge"},
	}}

	affected := mapToCluster(c, &v1alpha1.NodeUpdateList{})
	for range 2 {
		var names []string
		for _, q := range affected(t.Context(), p) {
			names = append(names, q.String())
		}
		assert.Equal(t, []string{"a/edge", "a/november"}, names)
	}
}
