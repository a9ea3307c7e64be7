package operator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// testPluginsThatAreMissing: names of KUD's plugins that the stick does not carry, as ICN's files have them, are left
// out. The cluster is installed with the others, and says for each that it is missing.
func testPluginsThatAreMissing(t *testing.T, r *fixture) {
	r.host(1)
	spec := "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nKUDPlugins: [emco, metrics-server, onap4k8s, emco]"
	p := r.installed("edge", spec)
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Empty(t, r.run("edge").Plugins, "of the stick's installer nothing is asked: they are Components")
	assert.Equal(t, metav1.ConditionTrue, ready(p).Status)

	const says = "KUDPlugins: emco, onap4k8s: not on this stick, so the cluster is installed without them; " +
		"it has metrics-server, nfd; take them out, or name an installer that has them: installerImage"
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPlugins)
	require.NotNil(t, c)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, PluginsMissing, c.Reason)
	assert.Equal(t, says, c.Message)
	assert.Equal(t, []string{says}, p.Status.Warnings, "what status and why print")
	r.said("Warning " + PluginsMissing + " KUDPlugins: emco, onap4k8s: not on this stick")
	assert.Contains(t, p.Status.Message, "cluster edge is installed, without plugins emco, onap4k8s", "kubectl get -o wide")

	// The name is taken out: the same cluster, nothing runs, nobody is warned any more.
	job := r.job("edge").UID
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nKUDPlugins: [metrics-server]"))
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Equal(t, job, r.job("edge").UID, "a run for a plugin that was never there")
	assert.Empty(t, p.Status.Warnings)
	assert.True(t, meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionPlugins))

	// And all of them.
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}"))
	p = r.settle("edge")
	assert.Nil(t, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPlugins), "no plugin is asked for")
}

// testPluginsOfAnotherInstaller: what its plugins are called, only that installer knows.
func testPluginsOfAnotherInstaller(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", fmt.Sprintf(
		"masters:\n- m: {mac-address: '%s'}\ninstallerImage: example/kud:1\nKUDPlugins: [emco, our-own]", mac(1, 0),
	)))
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Equal(t, []string{"emco", "our-own"}, r.run("edge").Plugins)
	assert.Empty(t, p.Status.Warnings)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPlugins)
	require.NotNil(t, c)
	assert.Equal(t, metav1.ConditionUnknown, c.Status)
	assert.Equal(t, PluginsNotKnown, c.Reason)
}
