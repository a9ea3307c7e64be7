package guest_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestAGuestOnAnEarlierControlPlane: API server, controllers and scheduler of the oldest version that a guest may be on
// take all that the appliance applies, and hold a host that somebody applies. The node's kubelet is newer.
func TestAGuestOnAnEarlierControlPlane(t *testing.T) {
	if !sandbox.HasKind(sandbox.KindEarlier) {
		t.Skip("compiles an earlier Kubernetes; set FIRSTLIGHT_TEST=" + sandbox.Kind + "," + sandbox.KindEarlier)
	}
	o := newOwner(t)
	o.replaceControlPlane()
	before := o.run(everything)
	o.loadImages()
	o.applyManifests()
	o.until("kubectl get bmh -A --show-labels", "firstlight.dev/verified=true")
	o.awaitStages(
		"hosts-guarded", "artifacts-ready", "bpa-ready", "kpa-ready", "cluster-api-ready", "cluster-class-ready",
	)
	o.applyHost()
	o.upload()
	o.run("kubectl delete namespace alpha")
	o.run("sh rack/remove.sh")
	assert.Equal(t, withoutRevisions(before), withoutRevisions(o.run(everything)))
}

// withoutRevisions leaves out the revisions of DaemonSets: controllers of another version name those that were there
// otherwise, when they begin.
func withoutRevisions(all string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(all, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "ControllerRevision ")
	}), "\n")
}

// replaceControlPlane has an earlier control plane take the place of the one that is there, on what that has kept.
func (o *owner) replaceControlPlane() {
	o.t.Helper()
	const at = "/usr/local/bin/earlier"
	file, err := sandbox.BuildEarlier(o.ctx)
	require.NoError(o.t, err)
	program, err := os.ReadFile(file)
	require.NoError(o.t, err)
	require.NoError(o.t, o.node.WriteFile(at, program, 0o755))
	for _, name := range []string{"kube-scheduler", "kube-controller-manager", "kube-apiserver"} {
		manifest := "/etc/kubernetes/manifests/" + name + ".yaml"
		var pod corev1.Pod
		require.NoError(o.t, yaml.Unmarshal([]byte(o.run("cat "+manifest)), &pod))
		c := &pod.Spec.Containers[0]
		require.Equal(o.t, name, c.Command[0])
		c.Command = slices.Insert(c.Command, 0, at)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "earlier", MountPath: at, ReadOnly: true})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "earlier", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: at, Type: ptr.To(corev1.HostPathFile)},
		}})
		text, err := yaml.Marshal(pod)
		require.NoError(o.t, err)
		require.NoError(o.t, o.node.WriteFile("/root/manifest.yaml", text, 0o600))
		o.run("mv manifest.yaml " + manifest)
	}
	o.until("kubectl version", "Server Version: "+sandbox.EarlierVersion)
	o.until("kubectl get --raw /readyz", "ok")
}

// applyHost has kubectl apply a host of a person's, and looks what becomes of it.
func (o *owner) applyHost() {
	o.t.Helper()
	const host = `{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: other, namespace: metal3}, spec: {online: true}}`
	require.NoError(o.t, o.node.WriteFile("/root/host.yaml", []byte(host), 0o644))
	out := o.run("kubectl apply --dry-run=server -o yaml -f host.yaml")
	assert.Contains(o.t, out, "baremetalhost.metal3.io/paused: "+label.Hold)
	assert.Contains(o.t, out, "automatedCleaningMode: disabled")
}
