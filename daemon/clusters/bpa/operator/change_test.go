package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// testWorkerReinstalled: a worker whose server was installed again, or is another one under its name, is joined again. A
// run that fails leaves that to the next one.
func testWorkerReinstalled(t *testing.T, r *fixture) {
	provisionedAt := func(hour int) func(*host) {
		return func(b *host) {
			b.Status.OperationHistory.Provision.End = metav1.NewTime(time.Date(2026, 11, 29, hour, 0, 0, 0, time.UTC))
		}
	}
	r.host(1, provisionedAt(8))
	r.host(2, provisionedAt(8))
	before := r.installed("edge", edge)
	require.Equal(t, "2/2", before.Status.NodesReady)
	worker := before.Status.Nodes[1]
	n, err := strconv.Atoi(strings.TrimPrefix(worker.Host, "metal3/h"))
	require.NoError(t, err)

	r.changeHost(n, func(b *host) { b.Status.OperationHistory.Provision.End = metav1.Time{} })
	require.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase, "its installation has not ended")
	// As firstlightd replace leaves it: an object of the same name, of which no cluster has heard.
	r.changeHost(n, func(b *host) {
		provisionedAt(10)(b)
		delete(b.Annotations, label.Installed)
		b.Spec.ConsumerRef = nil
	})
	for attempt := 1; attempt <= 2; attempt++ {
		p := r.settle("edge")
		require.Equal(t, v1alpha1.PhaseChanging, p.Status.Phase, p.Status.Message)
		assert.Equal(t, "1/2", p.Status.NodesReady)
		assert.Equal(t, v1alpha1.NodeInstalling, p.Status.Nodes[1].State)
		run := r.run("edge")
		assert.Equal(t, contract.Add, run.Action)
		assert.Equal(t, []string{worker.Name}, run.Nodes)
		assert.Equal(t, int32(attempt), run.Attempt)
		if attempt == 1 {
			r.end("edge", 1, "it does not answer")
			p = r.settle("edge")
			require.Equal(t, v1alpha1.PhaseFailed, p.Status.Phase)
			assert.Contains(t, p.Status.Nodes[1].Reason, "fix it and it is joined")
			r.now = r.now.Add(time.Hour)
		}
	}
	r.end("edge", 0, "")
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "2/2", p.Status.NodesReady)
	assert.Contains(t, r.configMap("edge"), "WORKER_"+worker.Name)

	master, err := strconv.Atoi(strings.TrimPrefix(before.Status.Nodes[0].Host, "metal3/h"))
	require.NoError(t, err)
	r.changeHost(master, provisionedAt(11))
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, "no run is begun for a control plane")
	emptied := "the host of control plane " + before.Status.Nodes[0].Name + " has another system than the one that " +
		"was part of the cluster, and the cluster counts on its etcd still; see docs/clusters.md, \"Later\""
	assert.Contains(t, p.Status.Warnings, emptied)

	r.changeHost(n, provisionedAt(12))
	require.Equal(t, v1alpha1.PhaseChanging, r.settle("edge").Status.Phase)
	r.end("edge", 1, "the control plane was on this node and is gone")
	assert.Contains(t, r.settle("edge").Status.Warnings, emptied, "a run of others takes the warning away")
	r.now = r.now.Add(time.Hour)
	r.settle("edge")
	r.end("edge", 0, "")
	assert.NotContains(t, r.settle("edge").Status.Warnings, emptied, "its installer made it part of the cluster again")
}

func testWorkerAddedAndRemoved(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.host(3)
	r.installed("edge", edge)
	r.apply(provisioning("edge", edge+"\n- x: {cpu: 3}"))
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseChanging, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "2/3", p.Status.NodesReady)
	run := r.run("edge")
	assert.Equal(t, contract.Add, run.Action)
	assert.Equal(t, []string{"x"}, run.Nodes)
	assert.Contains(t, r.file("edge", contract.FileInventory), "x  ansible_ssh_host=10.0.0.3")
	assert.Equal(t, "kubeconfig of edge", r.file("edge", contract.FileKubeconfig), "the cluster's kubeconfig went before the run")
	r.end("edge", 0, "")
	assert.Equal(t, "3/3", r.settle("edge").Status.NodesReady)

	r.apply(provisioning("edge", edge))
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseChanging, p.Status.Phase)
	run = r.run("edge")
	assert.Equal(t, contract.Remove, run.Action)
	assert.Contains(t, r.job("edge").Spec.Template.Spec.Containers[0].Args[0], "./installer --cluster edge --remove x")
	assert.Contains(t, r.file("edge", contract.FileInventory), "x  ansible_ssh_host=10.0.0.3", "the installer must still find what it takes out")
	assert.Equal(t, v1alpha1.NodeRemoving, p.Status.Nodes[2].State)
	assert.Equal(t, "Provisioning default/edge x", r.holder(3), "released before it was taken out")
	r.end("edge", 0, "")
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Empty(t, r.holder(3))
	assert.NotContains(t, r.bmh(3).Annotations, label.Installed, "it was taken out and still counts as installed")
	assert.NotContains(t, r.file("edge", contract.FileInventory), "10.0.0.3")
	assert.NotContains(t, r.configMap("edge"), "WORKER_x")
}

// testWorkerLeftUncleared: a server that did not answer when it was taken out goes to no cluster by chance,
// is seen, and is cleared by the first one that names it.
func testWorkerLeftUncleared(t *testing.T, r *fixture) {
	for n := 1; n <= 4; n++ {
		r.host(n)
	}
	r.installed("edge", edge+"\n- x: {mac-address: '52:54:00:00:03:00'}")
	r.apply(provisioning("edge", edge))
	r.settle("edge")
	require.Equal(t, contract.Remove, r.run("edge").Action)
	require.NoError(t, r.clusterDir("edge").write(contract.FileRemoved, []byte(`{"uncleared":{"x":"it did not answer: no route to host"}}`), 0o644))
	r.end("edge", 0, "")
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Empty(t, r.holder(3))
	assert.Equal(t, "edge: x: it did not answer: no route to host", r.bmh(3).Annotations[label.Dirty])
	p = r.settle("edge")
	require.Len(t, p.Status.Warnings, 1)
	assert.Contains(t, p.Status.Warnings[0], "host metal3/h3 was taken out of cluster edge without being cleared: x: it did not answer: no route to host")
	left := Leftover{Host: "metal3/h3", Cluster: "edge", Why: "x: it did not answer: no route to host"}
	assert.Equal(t, []Leftover{left}, FindLeftovers("edge", slices.Values([]*host{r.bmh(1), r.bmh(3), r.bmh(4)})))

	r.apply(provisioning("edge", edge+"\n- z: {cpu: 3}"))
	r.settle("edge")
	assert.Equal(t, "Provisioning default/edge z", r.holder(4), "the same cluster got it by chance")
	r.end("edge", 0, "")
	r.settle("edge")
	r.apply(provisioning("far", "masters:\n- m: {cpu: 3}"))
	p = r.settle("far")
	assert.Equal(t, v1alpha1.PhaseRefused, p.Status.Phase, "%s", p.Status.Message)
	assert.Contains(t, fmt.Sprint(p.Status.Rejected), "metal3/h3 for m: was taken out of its cluster without being cleared (edge, x: it did not answer: no route to host)")

	r.apply(provisioning("far", "masters:\n- m: {mac-address: '52:54:00:00:03:00'}"))
	for attempt := range 2 {
		r.settle("far")
		assert.Equal(t, map[string]string{"m": "edge"}, r.run("far").Clear)
		assert.Contains(t, r.job("far").Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "KUD_CLEAR", Value: "m=edge"})
		assert.Contains(t, r.bmh(3).Annotations, label.Dirty, "it was not cleared yet")
		r.end("far", int32(1-attempt), "")
		r.settle("far")
		r.now = r.now.Add(time.Minute)
	}
	assert.Equal(t, v1alpha1.PhaseReady, r.get("far").Status.Phase)
	assert.NotContains(t, r.bmh(3).Annotations, label.Dirty)
	assert.Equal(t, "far@", r.bmh(3).Annotations[label.Installed])
	assert.Empty(t, r.settle("edge").Status.Warnings)
}

// testWorkerMoves: the same label on another host is one out, then one in.
func testWorkerMoves(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.host(3)
	r.installed("edge", edge)
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- w: {mac-address: '52:54:00:00:03:00'}"))
	r.settle("edge")
	assert.Equal(t, contract.Remove, r.run("edge").Action)
	r.end("edge", 0, "")
	r.settle("edge")
	assert.Equal(t, contract.Add, r.run("edge").Action)
	assert.Empty(t, r.holder(2))
	r.end("edge", 0, "")
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	assert.Equal(t, addr(3), r.configMap("edge")["WORKER_w"])
	assert.Equal(t, "Provisioning default/edge w", r.holder(3))
}

// testEditWhileTheJobRuns: the run ends, what it did is recorded, then the edit is done.
func testEditWhileTheJobRuns(t *testing.T, r *fixture) {
	for n := 1; n <= 4; n++ {
		r.host(n)
	}
	r.apply(provisioning("edge", edge))
	r.settle("edge")
	r.changeRunning("edge")
	uid := r.job("edge").UID
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- x: {cpu: 4}"))
	p := r.settle("edge")
	assert.Equal(t, uid, r.job("edge").UID, "a run was cut off")
	assert.Contains(t, p.Status.Message, "the edit is taken up when it has ended")
	assert.Equal(t, "Provisioning default/edge w", r.holder(2), "released while the installer works on it")
	r.end("edge", 0, "")
	r.settle("edge")
	run := r.run("edge")
	assert.Equal(t, contract.Remove, run.Action, "what the cut-off edit left behind was forgotten")
	assert.Equal(t, []string{"w"}, run.Nodes)
	r.end("edge", 0, "")
	r.settle("edge")
	assert.Equal(t, contract.Add, r.run("edge").Action)
	r.end("edge", 0, "")
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	assert.Equal(t, map[string]string{"MASTER_m": addr(1), "WORKER_x": addr(4)}, r.configMap("edge"))
	assert.Empty(t, r.holder(2))
}

// changeRunning makes the Job's pod run.
func (r *fixture) changeRunning(cluster string) {
	r.podState(cluster, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func (r *fixture) podState(cluster string, s corev1.ContainerState) {
	name := kud.JobName(cluster)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bpa", Name: name + "-running", Labels: map[string]string{batchv1.JobNameLabel: name}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kud", Image: "x"}}}}
	r.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "kud", State: s}}}
	require.NoError(r.t, r.api.Status().Update(r.t.Context(), pod))
}

// testImageThatIsNotThere: a Job that never starts is no run that must be waited for.
func testImageThatIsNotThere(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}\ninstallerImage: example/kud:1"))
	r.settle("edge")
	r.podState("edge", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such host"}})
	p := r.settle("edge")
	assert.Contains(t, p.Status.Message, "the installer's image example/kud:1 does not start: ErrImagePull no such host")
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	r.settle("edge")
	r.settle("edge") // its pods are gone now
	assert.Equal(t, r.Installer, r.job("edge").Spec.Template.Spec.Containers[0].Image)
}

func testNoInstaller(t *testing.T, r *fixture) {
	r.host(1)
	r.Installer = ""
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	p := r.settle("edge")
	assert.Equal(t, NoInstaller, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "this appliance has no installer of clusters; name one: installerImage")
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}\ninstallerImage: example/kud:1"))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("edge").Status.Phase)
}

func testFixedOnceInstalled(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.host(3)
	r.installed("edge", edge)
	uid := r.job("edge").UID
	for spec, reason := range map[string]string{
		edge + "\nPodSubnet: 10.9.0.0/16":                                                kud.SubnetFixed,
		"masters:\n- m: {cpu: 1}\n- m2: {cpu: 3}\nworkers:\n- w: {cpu: 2}":               kud.ControlPlaneFixed,
		"masters:\n- m: {mac-address: '52:54:00:00:03:00'}\nworkers:\n- w: {cpu: 2}":     kud.ControlPlaneFixed,
		"masters:\n- other: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- w: {cpu: 2}": kud.ControlPlaneFixed,
	} {
		r.apply(provisioning("edge", spec))
		p := r.settle("edge")
		assert.Equal(t, reason, ready(p).Reason, "%s: %s", spec, p.Status.Message)
		assert.Equal(t, v1alpha1.PhaseRefused, p.Status.Phase)
		assert.True(t, meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.ConditionAccepted))
		assert.Equal(t, NotAsAsked, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionInstalled).Reason)
		assert.Equal(t, uid, r.job("edge").UID)
		assert.Equal(t, "Provisioning default/edge m", r.holder(1))
	}
	r.apply(provisioning("edge", edge))
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase)
	assert.Empty(t, r.holder(3))
}

// testHostsInServiceMayFail: what happens to the hosts of an installed cluster starts no run.
func testHostsInServiceMayFail(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	lease := func(ip, state string) {
		text := "lease " + ip + " {\n  binding state " + state + ";\n  hardware ethernet " + mac(2, 0) + ";\n}\n"
		require.NoError(t, os.WriteFile(r.LeaseFile, []byte(text), 0o644))
	}
	lease("10.0.0.77", "active")
	r.installed("edge", edge)
	assert.Equal(t, "10.0.0.77", r.configMap("edge")["WORKER_w"])
	uid := r.job("edge").UID
	lease("10.0.0.77", "free")
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase, "its lease is over")
	require.NoError(t, os.Remove(r.LeaseFile))
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase, "the leases are gone")
	assert.Equal(t, "10.0.0.77", r.configMap("edge")["WORKER_w"], "an address that inspection saw long ago came back")
	r.changeHost(2, func(b *host) { b.Labels, b.Status.ErrorMessage = nil, "power lost" })
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase)
	assert.Equal(t, uid, r.job("edge").UID)
	lease("10.0.0.78", "active")
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseChanging, p.Status.Phase, "it has another address now")
	assert.Equal(t, contract.Install, r.run("edge").Action)
	assert.Contains(t, r.file("edge", contract.FileInventory), "10.0.0.78")
}

func gone(t *testing.T, r *fixture, name string) {
	err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Provisioning{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	err = r.api.Get(t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.JobName(name)}, &batchv1.Job{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Nil(t, r.configMap(name))
	err = r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: kubeconfigName(name)}, &corev1.Secret{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	for _, f := range []string{contract.FileInventory, contract.FileInstalled, contract.FileKubeconfig, contract.FileKnownHosts} {
		assert.NoFileExists(t, r.clusterDir(name).path(f))
	}
}

func testDeleted(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	p := r.installed("edge", edge)
	require.NoError(t, r.api.Delete(t.Context(), p))
	for range 3 {
		r.settle("edge")
	}
	gone(t, r, "edge")
	assert.FileExists(t, p.Status.Job.Log, "its logs went too")
	assert.Empty(t, r.holder(1)+r.holder(2))
	b := r.bmh(1)
	assert.Equal(t, metal3api.StateProvisioned, b.Status.Provisioning.State)
	assert.True(t, b.Spec.Online, "it was switched off")
	r.apply(provisioning("next", "masters:\n- m: {cpu: 1}"))
	p = r.settle("next")
	assert.Equal(t, match.NoHostFits, ready(p).Reason, "it took a host that still holds another cluster")
	assert.Contains(t, p.Status.Rejected[0].Reason, "still holds the cluster edge")
	r.apply(provisioning("next", "masters:\n- m: {mac-address: '52:54:00:00:02:00'}"))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("next").Status.Phase)
	r.changeHost(1, func(b *host) { b.Status.OperationHistory.Provision.End = metav1.NewTime(time.Unix(1_800_000_000, 0)) })
	r.apply(provisioning("third", "masters:\n- m: {cpu: 1}"))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("third").Status.Phase, "it was installed again since")
}

func testDeletedWhileTheJobRuns(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	r.settle("edge")
	r.changeRunning("edge")
	require.NoError(t, r.api.Delete(t.Context(), r.get("edge")))
	for range 3 {
		r.settle("edge")
	}
	gone(t, r, "edge")
	var pods corev1.PodList
	require.NoError(t, r.api.List(t.Context(), &pods, client.InNamespace("default")))
	assert.Empty(t, pods.Items, "the installer is still at work")
	assert.Empty(t, r.holder(1))
}

func testRecreated(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.installed("edge", edge)
	require.NoError(t, r.clusterDir("edge").write("cluster.json", []byte(`{"id":"A","born":true}`), 0o644)) // the installer's
	require.NoError(t, r.api.Delete(t.Context(), r.get("edge")))
	for range 3 {
		r.settle("edge")
	}
	left, err := os.ReadDir(r.clusterDir("edge").path("."))
	require.NoError(t, err)
	require.Len(t, left, 1, "something speaks of its former life")
	assert.Equal(t, contract.LogDir, left[0].Name())
	p := r.installed("edge", edge)
	assert.Equal(t, "2/2", p.Status.NodesReady)
	assert.Equal(t, p.UID, r.bmh(1).Spec.ConsumerRef.UID)
}

func testRenamed(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.installed("edge", edge)
	text := provisioning("edge", edge)
	r.apply(replace(text, "{cluster: edge}", "{cluster: rim}"))
	p := r.settle("edge")
	assert.Equal(t, ClusterRenamed, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "cluster edge was begun under this name and cannot become rim; set the label cluster back")
	assert.NoDirExists(t, filepath.Join(r.Dir, "rim"))
	r.apply(text)
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase)
	r.apply(replace(text, "{cluster: edge}", "{cluster: rim}"))
	r.settle("edge")
	require.NoError(t, r.api.Delete(t.Context(), r.get("edge")))
	for range 3 {
		r.settle("edge")
	}
	gone(t, r, "edge")
	assert.Empty(t, r.holder(1)+r.holder(2))
}

// testEtcdLost: everything of the API is gone but the hosts, which were restored without
// their annotations; a Provisioning that is created again finds its cluster in service.
// testEtcdLost: hosts are restored with spec and status and no annotation. What they were installed with is there still.
func testEtcdLost(t *testing.T, r *fixture) {
	at := metav1.NewTime(time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC))
	provisioned := func(b *host) { b.Status.OperationHistory.Provision.End = at }
	r.host(1, provisioned)
	r.host(2, provisioned)
	r.host(3)
	r.installed("edge", edge)
	ref1, ref2 := r.bmh(1).Spec.ConsumerRef, r.bmh(2).Spec.ConsumerRef
	r.sweep()
	r.host(1, provisioned, func(b *host) { b.Spec.ConsumerRef = ref1 })
	r.host(2, provisioned, func(b *host) { b.Spec.ConsumerRef = ref2 })
	r.host(3)
	r.apply(provisioning("edge", edge))
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	var jobs batchv1.JobList
	require.NoError(t, r.api.List(t.Context(), &jobs))
	assert.Empty(t, jobs.Items, "the installer ran over a cluster in service")
	assert.Equal(t, map[string]string{"MASTER_m": addr(1), "WORKER_w": addr(2)}, r.configMap("edge"))
	assert.Equal(t, "edge-kubeconfig", p.Status.Kubeconfig)
	assert.Empty(t, p.Status.Warnings)

	at = metav1.NewTime(at.Add(time.Hour))
	r.changeHost(2, provisioned)
	assert.Equal(t, v1alpha1.PhaseChanging, r.settle("edge").Status.Phase, "it has another system than the one that was restored")
}

func testObjectsDeletedByHand(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.installed("edge", edge)
	require.NoError(t, r.api.Delete(t.Context(), r.job("edge"), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	require.NoError(t, r.api.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: configMapName("edge")}}))
	require.NoError(t, os.Remove(r.clusterDir("edge").path(contract.FileInventory)))
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	assert.Equal(t, addr(1), r.configMap("edge")["MASTER_m"])
	assert.NotEmpty(t, r.file("edge", contract.FileInventory))
	err := r.api.Get(t.Context(), client.ObjectKey{Namespace: "bpa", Name: kud.JobName("edge")}, &batchv1.Job{})
	assert.True(t, apierrors.IsNotFound(err), "the installer ran again for nothing")
	require.NoError(t, r.clusterDir("edge").write(contract.FileInstalled, []byte("{"), 0o644))
	_, err = r.step("edge")
	assert.ErrorContains(t, err, "if the cluster is gone, remove the file")
	assert.Contains(t, r.get("edge").Status.Message, "trying again: ")
}
