package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

const edge = "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- w: {cpu: 2}"

// testOneCluster follows one cluster from its hosts to its kubeconfig.
func testOneCluster(t *testing.T, r *fixture) {
	r.host(1, func(b *host) { b.Status.Provisioning.State = metal3api.StateInspecting })
	r.host(2)
	r.host(3)
	r.apply(provisioning("edge", edge))
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseWaiting, p.Status.Phase)
	assert.Equal(t, "0/2", p.Status.NodesReady)
	assert.Empty(t, r.holder(2), "a host is held while others are waited for")

	r.changeHost(1, func(b *host) { b.Status.Provisioning.State = metal3api.StateProvisioned })
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "Provisioning default/edge m", r.holder(1))
	assert.Equal(t, "Provisioning default/edge w", r.holder(2), "not the smallest that fits")
	assert.Contains(t, p.Status.Message, "Job kud-edge: installing, attempt 1")
	assert.Equal(t, []v1alpha1.Rejected{{Host: "metal3/h3", Reason: "fits, but a smaller one was taken"}}, p.Status.Rejected)
	job := r.job("edge")
	assert.Equal(t, "edge", job.Labels["cluster"])
	assert.Equal(t, "bpa", job.Namespace, "what the installer holds is for others to read")
	assert.Equal(t, string(p.UID), r.run("edge").UID)
	var env corev1.ConfigMap
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: kud.Environment}, &env))
	assert.Equal(t, "docker", env.Data["CONTAINER_RUNTIME"])
	ini := string(kud.Inventory(r.run("edge").Members))
	assert.Equal(t, ini, r.file("edge", contract.FileInventory))
	assert.Contains(t, ini, "m  ansible_ssh_host=10.0.0.1 ansible_ssh_port=22\n")

	require.NoError(t, r.clusterDir("edge").write(contract.FileProgress, []byte(`{"percent":40,"doing":"joining w","nodes":{"w":"joining"}}`), 0o644))
	p = r.settle("edge")
	assert.Equal(t, int32(44), p.Status.Percent)
	assert.Contains(t, p.Status.Message, "attempt 1: joining w")
	assert.Equal(t, v1alpha1.NodeStatus{Name: "w", Roles: []string{"worker"}, Host: "metal3/h2", MAC: mac(2, 0), Address: addr(2), AddressFrom: "inspection", State: v1alpha1.NodeInstalling, Reason: "joining"}, p.Status.Nodes[1])

	require.NoError(t, r.clusterDir("edge").write(contract.FileVerification, []byte(`{"time":"2026-11-20T12:00:00Z","nodes":["m","w"],"checks":[{"name":"DNS","passed":true}]}`), 0o644))
	r.end("edge", 0, "")
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	for _, c := range p.Status.Conditions {
		assert.Equal(t, metav1.ConditionTrue, c.Status, c.Type)
	}
	assert.Equal(t, "2/2", p.Status.NodesReady)
	assert.Equal(t, int32(100), p.Status.Percent)
	assert.Equal(t, v1alpha1.JobSucceeded, p.Status.Job.State)
	assert.Equal(t, map[string]string{"MASTER_m": addr(1), "WORKER_w": addr(2)}, r.configMap("edge"))
	var secret corev1.Secret
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: p.Status.Kubeconfig}, &secret))
	assert.Equal(t, "kubeconfig of edge", string(secret.Data["value"]))
	log, err := os.ReadFile(p.Status.Job.Log)
	require.NoError(t, err)
	assert.Equal(t, "what the installer printed\n", string(log))
	r.said("Normal Ready cluster edge is installed; kubeconfig: firstlightd kubeconfig edge")
	before := p.ResourceVersion
	assert.Equal(t, before, r.settle("edge").ResourceVersion, "looking again wrote something")
}

// testTwoForOneHost: whoever claims first has it; the other is told who.
func testTwoForOneHost(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.apply(provisioning("first", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}"))
	r.apply(provisioning("second", "masters:\n- k: {mac-address: '52:54:00:00:01:01'}"))
	r.apply(provisioning("third", "masters:\n- k: {cpu: 1}"))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("third").Status.Phase)
	assert.Equal(t, "Provisioning default/third k", r.holder(2), "it took a host that others name, though it names none itself")
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("first").Status.Phase)
	p := r.settle("second")
	assert.Equal(t, v1alpha1.PhaseRefused, p.Status.Phase)
	assert.Equal(t, match.HostClaimed, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "MAC address 52:54:00:00:01:01 has already been used, check and update provisioning CR: node k: host metal3/h1 belongs to Provisioning default/first, as its node m")
	require.NoError(t, r.api.Delete(t.Context(), r.get("first")))
	r.settle("first")
	p = r.settle("second")
	assert.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, "the host is free again: %s", p.Status.Message)
}

// testNoHalfClaims: two clusters of two nodes and three hosts; neither holds what keeps the
// other from being installed.
func testNoHalfClaims(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.host(3, func(b *host) { b.Labels = nil })
	for _, name := range []string{"a", "b"} {
		r.apply(provisioning(name, "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 1}\n- x: {cpu: 1}"))
		r.settle(name)
	}
	assert.Empty(t, r.holder(1)+r.holder(2)+r.holder(3))
	r.apply(provisioning("b", "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 1}"))
	assert.Equal(t, v1alpha1.PhaseInstalling, r.settle("b").Status.Phase)
	p := r.settle("a")
	assert.Equal(t, match.NoHostFits, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "2 belong to other clusters")
	// Claimed, then edited before anything was begun: let go again.
	r.changeHost(3, func(b *host) { b.Labels = map[string]string{label.Verified: "true"} })
	r.apply(provisioning("c", "masters:\n- m: {cpu: 1}"))
	for range 2 {
		_, err := r.step("c")
		require.NoError(t, err)
		if r.holder(3) != "" {
			break
		}
	}
	require.Equal(t, "Provisioning default/c m", r.holder(3))
	r.apply(provisioning("c", "masters:\n- m: {cpu: 99}"))
	r.settle("c")
	assert.Empty(t, r.holder(3))
}

func testSameName(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	r.installed("edge", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}")
	text := provisioning("second", "masters:\n- m: {mac-address: '52:54:00:00:02:00'}")
	r.apply(replace(text, "{cluster: second}", "{cluster: edge}"))
	p := r.settle("second")
	assert.Equal(t, ClusterNameTaken, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "cluster edge is that of Provisioning default/edge already")
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase)
	require.NoError(t, r.api.Delete(t.Context(), r.get("second")))
	r.settle("second")
	assert.Equal(t, addr(1), r.configMap("edge")["MASTER_m"], "the second took the cluster's objects with it")
	assert.NotEmpty(t, r.file("edge", contract.FileInstalled))
}

// testFailsTwiceThenSucceeds: attempts, pauses, logs.
func testFailsTwiceThenSucceeds(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	r.settle("edge")
	for attempt := int32(1); attempt <= 2; attempt++ {
		assert.Equal(t, attempt, r.run("edge").Attempt)
		r.end("edge", 1, "TASK [etcd]\nfatal: no route to host\n")
		p := r.settle("edge")
		assert.Equal(t, v1alpha1.PhaseFailed, p.Status.Phase)
		assert.Equal(t, InstallFailed, ready(p).Reason)
		assert.Contains(t, p.Status.Message, "exit code 1: TASK [etcd] / fatal: no route to host")
		assert.Equal(t, v1alpha1.NodeFailed, p.Status.Nodes[0].State)
		assert.Equal(t, r.now.Add(kud.RetryDelay(attempt)).UTC(), p.Status.Job.Next.UTC())
		assert.FileExists(t, p.Status.Job.Log)
		uid := r.job("edge").UID
		r.now = r.now.Add(kud.RetryDelay(attempt) - time.Second)
		r.settle("edge")
		assert.Equal(t, uid, r.job("edge").UID, "tried again too early")
		r.now = r.now.Add(2 * time.Second)
		r.settle("edge")
		assert.NotEqual(t, uid, r.job("edge").UID)
	}
	assert.Equal(t, int32(3), r.run("edge").Attempt)
	r.end("edge", 0, "")
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	logs, _ := filepath.Glob(r.clusterDir("edge").path(contract.LogDir) + "/kud-*.log")
	assert.Len(t, logs, 3)
	r.said("Warning InstallFailed Job kud-edge: installing, attempt 2 failed")
}

func testInstallerRefuses(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	r.settle("edge")
	r.end("edge", contract.ExitRefused, "usage: installer --cluster NAME\n")
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseRefused, p.Status.Phase)
	assert.Equal(t, InstallerRefused, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "usage: installer --cluster NAME")
	r.now = r.now.Add(time.Hour)
	uid := r.job("edge").UID
	r.settle("edge")
	assert.Equal(t, uid, r.job("edge").UID, "tried again what cannot work")
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}\nPodSubnet: 10.9.0.0/16"))
	r.settle("edge")
	assert.NotEqual(t, uid, r.job("edge").UID, "the edit was not tried")
	assert.Equal(t, int32(1), r.run("edge").Attempt)
}

func testNoKubeconfig(t *testing.T, r *fixture) {
	r.host(1)
	require.NoError(t, r.clusterDir("edge").write(contract.FileKubeconfig, []byte("of an older attempt"), 0o600))
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	r.settle("edge")
	r.end("edge", 0, "")
	require.NoError(t, r.clusterDir("edge").remove(contract.FileKubeconfig))
	p := r.settle("edge")
	assert.Equal(t, NoKubeconfig, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "left no "+r.clusterDir("edge").path(contract.FileKubeconfig))
	r.now = r.now.Add(time.Hour)
	r.settle("edge")
	assert.Equal(t, int32(2), r.run("edge").Attempt)
	assert.Empty(t, r.file("edge", contract.FileKubeconfig))
}

// testDeadWorker: one dead worker of a first installation keeps nobody else from being installed; taken out,
// it goes by a run of its own, and the rest is done.
func testDeadWorker(t *testing.T, r *fixture) {
	for n := 1; n <= 3; n++ {
		r.host(n)
	}
	r.apply(provisioning("edge", edge+"\n- x: {mac-address: '52:54:00:00:03:00'}"))
	r.settle("edge")
	dir := r.clusterDir("edge")
	require.NoError(t, dir.write(contract.FileKubeconfig, []byte("kubeconfig of edge"), 0o600))
	require.NoError(t, dir.write(contract.FileProgress, []byte(`{"percent":70,"nodes":{"x":"reached: no route to host"},"ready":["m","w"]}`), 0o644))
	r.end("edge", 1, "nodes-ready: x has not joined")
	p := r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseFailed, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "2/3", p.Status.NodesReady)
	assert.Contains(t, p.Status.Message, "2 of 3 nodes are installed, not x: fix it, or take it out of this Provisioning")
	for i, want := range []string{v1alpha1.NodeInstalled, v1alpha1.NodeInstalled, v1alpha1.NodeFailed} {
		assert.Equal(t, want, p.Status.Nodes[i].State, p.Status.Nodes[i].Name)
	}
	assert.Equal(t, "reached: no route to host; the other nodes are installed: fix it and it is joined, or take x out of this Provisioning", p.Status.Nodes[2].Reason)
	assert.Equal(t, "edge-kubeconfig", p.Status.Kubeconfig)
	assert.Contains(t, r.configMap("edge"), "WORKER_w")
	assert.NotContains(t, r.configMap("edge"), "WORKER_x")
	assert.Equal(t, "Provisioning default/edge x", r.holder(3))

	r.now = r.now.Add(time.Minute)
	r.settle("edge")
	assert.Equal(t, "add [x]", fmt.Sprint(r.run("edge").Action, " ", r.run("edge").Nodes), "it is tried again")
	r.end("edge", 1, "nodes-ready: x has not joined")
	r.settle("edge")
	r.apply(provisioning("edge", edge))
	r.settle("edge")
	assert.Equal(t, "remove [x]", fmt.Sprint(r.run("edge").Action, " ", r.run("edge").Nodes))
	r.end("edge", 0, "")
	p = r.settle("edge")
	assert.Equal(t, contract.Install, r.run("edge").Action, "what comes after the nodes was never done")
	assert.Empty(t, r.holder(3))
	r.end("edge", 0, "")
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "2/2", p.Status.NodesReady)
}
