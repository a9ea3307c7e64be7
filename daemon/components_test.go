package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

func TestPluginsAreAskedForAsComponents(t *testing.T) {
	now := metav1.Now()
	p := v1alpha1.Provisioning{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default",
		Name:      "p1",
		UID:       "u1",
		Labels:    map[string]string{v1alpha1.LabelCluster: "edge"},
	}}
	p.Spec.KUDPlugins = []string{"nfd", "metrics-server", "emco"}
	other, gone := p, p
	other.Spec.InstallerImage = "example.org/kud:1"
	gone.DeletionTimestamp = &now

	all := addOns([]v1alpha1.Provisioning{p, other, gone})
	require.Len(t, all, 1)
	assert.Equal(t, []string{"nfd", "metrics-server", "emco"}, all[0].Names)
	assert.Equal(t, "default edge Provisioning p1 u1", all[0].Namespace+" "+all[0].Cluster+" "+
		all[0].Owner.Kind+" "+all[0].Owner.Name+" "+string(all[0].Owner.UID))
}
