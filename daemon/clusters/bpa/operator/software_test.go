package operator

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

func (r *fixture) software(name string) *v1alpha1.Software { return r.softwareIn("default", name) }

func (r *fixture) softwareIn(namespace, name string) *v1alpha1.Software {
	s := &Softwares{Config: r.Config, Client: r.Client, Reader: r.Reader, Recorder: r.Recorder, Now: r.Now}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	_, err := s.Reconcile(r.t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(r.t, err)
	sw := &v1alpha1.Software{}
	require.NoError(r.t, r.api.Get(r.t.Context(), key, sw))
	return sw
}

func softwareText(spec string) string {
	return "apiVersion: bpa.akraino.org/v1alpha1\nkind: Software\nmetadata:\n  name: tools\n  labels: {cluster: edge}\nspec:\n  " + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
}

// testSoftware: waits for the cluster, installs by role, says what is there, tries again.
func testSoftware(t *testing.T, r *fixture) {
	key, machines := r.access(), r.machines(2)
	r.apply(softwareText("masterSoftware: [htop, jq: {version: '1.6'}]\nworkerSoftware:\n- jq"))
	sw := r.software("tools")
	assert.Equal(t, v1alpha1.PhaseWaiting, sw.Status.Phase)
	assert.Contains(t, sw.Status.Message, "cluster edge is not installed yet: no Provisioning in namespace default has installed it")
	r.installed("edge", "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 2}")
	known := map[netip.Addr]string{}
	for _, m := range machines {
		m.AuthorizeKey(key)
		known[netip.MustParseAddr(m.Addr)] = m.HostKey()
	}
	machines[1].Put("broken", "")
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseFailed, sw.Status.Phase)
	assert.Contains(t, sw.Status.Message, "its host key is not known")
	require.NoError(t, r.clusterDir("edge").write(contract.FileKnownHosts, remote.KnownHosts(known), 0o644))
	r.now = r.now.Add(kud.RetryDelay(1))
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseFailed, sw.Status.Phase)
	assert.Equal(t, "1/2", sw.Status.NodesReady)
	assert.Equal(t, int32(2), sw.Status.Attempt)
	assert.Equal(t, []v1alpha1.PackageStatus{{Name: "htop", Installed: "3.4"}, {Name: "jq", Installed: "1.6"}}, sw.Status.Nodes[0].Packages)
	assert.Contains(t, sw.Status.Message, "node w: jq: not installed: Unable to correct problems, you have held broken packages.; tried again at")
	r.said("Warning NotInstalled node w: jq")
	machines[1].Put("has/jq", "1.7\n") // somebody mends it
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseFailed, sw.Status.Phase, "tried again before its time")
	r.now = r.now.Add(kud.RetryDelay(2))
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseReady, sw.Status.Phase, sw.Status.Message)
	assert.Equal(t, "2/2", sw.Status.NodesReady)
	assert.Equal(t, 1, machines[0].InstallCount(), "it was installed again")
	r.icnSamples(machines)
	r.apply(softwareText("masterSoftware: []\nworkerSoftware: [jq: {version: '2.0'}]"))
	sw = r.software("tools")
	assert.Contains(t, sw.Status.Message, "node w: jq: version 2.0 is unavailable; there are: 1.6, 1.7")
}

// testSoftwareOfAnotherNamespace: who may write in one namespace installs nothing on the nodes of a cluster of another,
// whatever the labels and ConfigMaps there say.
func testSoftwareOfAnotherNamespace(t *testing.T, r *fixture) {
	key, machines := r.access(), r.machines(1)
	r.installed("edge", "masters:\n- m: {cpu: 1}")
	machines[0].AuthorizeKey(key)
	known := map[netip.Addr]string{netip.MustParseAddr(machines[0].Addr): machines[0].HostKey()}
	require.NoError(t, r.clusterDir("edge").write(contract.FileKnownHosts, remote.KnownHosts(known), 0o644))

	forged := r.configMap("edge")
	require.NotEmpty(t, forged)
	r.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "edge-configmap", Labels: map[string]string{kud.LabelCluster: "edge"}}, Data: forged})
	// A Provisioning of that name does not make its cluster theirs.
	r.apply(strings.Replace(provisioning("edge", "masters:\n- m: {cpu: 1}"), "metadata:\n", "metadata:\n  namespace: other\n", 1))
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "other", Name: "edge"}})
	require.NoError(t, err)
	r.apply(strings.Replace(softwareText("masterSoftware: [htop]"), "metadata:\n", "metadata:\n  namespace: other\n", 1))
	sw := r.softwareIn("other", "tools")
	assert.Equal(t, v1alpha1.PhaseWaiting, sw.Status.Phase, sw.Status.Message)
	assert.Contains(t, sw.Status.Message, "no Provisioning in namespace other has installed it")
	assert.Zero(t, machines[0].Logins.Load(), "it logged in")
}

func testSoftwareRefusals(t *testing.T, r *fixture) {
	r.host(1)
	r.installed("edge", "masters:\n- m: {cpu: 1}")
	for spec, says := range map[string]string{
		"masterSoftware: ['htop; reboot']":                                               `masterSoftware[0]: "htop; reboot" is not the name of a package`,
		"workerSoftware: [jq: {version: '$(reboot)'}]":                                   `workerSoftware[0]: "$(reboot)" is not a version of package jq`,
		"masterSoftware: [jq: {version: '1.6'}]\nworkerSoftware: [jq: {version: '1.7'}]": "node m: package jq is asked for as 1.6 and as 1.7 for one node",
	} {
		r.apply(softwareText(spec))
		sw := r.software("tools")
		assert.Equal(t, v1alpha1.PhaseRefused, sw.Status.Phase)
		assert.Contains(t, sw.Status.Message, says)
	}
}
