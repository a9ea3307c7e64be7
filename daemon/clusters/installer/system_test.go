package installer

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

func object(name string, ready corev1.ConditionStatus, labels map[string]string, taints ...corev1.Taint) corev1.Node {
	o := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, ResourceVersion: "7"}}
	o.Spec.Taints = taints
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodeReady, Status: ready, Message: "container network is not ready"}}
	return o
}

func TestRolePatch(t *testing.T) {
	control := corev1.Taint{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "user", Effect: corev1.TaintEffectNoExecute}
	worker := map[string]string{workerRole: ""}
	for _, c := range []struct {
		what                 string
		object               corev1.Node
		controlPlane, worker bool
		patch                string
	}{
		{"a worker as it joined", object("a", "True", nil), false, true,
			`{"metadata":{"labels":{"node-role.kubernetes.io/worker":""},"resourceVersion":"7"},"spec":{"taints":null}}`},
		{"a worker", object("a", "True", worker), false, true, ""},
		{"a control plane", object("a", "True", nil, control), true, false, ""},
		{"a control plane that works as well", object("a", "True", worker, other), true, true, ""},
		{"one that begins to work", object("a", "True", nil, control, other), true, true,
			`{"metadata":{"labels":{"node-role.kubernetes.io/worker":""},"resourceVersion":"7"},"spec":{"taints":[{"key":"user","effect":"NoExecute"}]}}`},
		{"one that stops", object("a", "True", worker, other), true, false,
			`{"metadata":{"labels":{"node-role.kubernetes.io/worker":null},"resourceVersion":"7"},"spec":{"taints":[{"key":"user","effect":"NoExecute"},{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}]}}`},
	} {
		patch := rolePatch(&c.object, c.controlPlane, c.worker)
		if c.patch == "" {
			assert.Nil(t, patch, c.what)
		} else {
			assert.JSONEq(t, c.patch, string(patch), c.what)
			assert.True(t, json.Valid(patch))
		}
	}
}

func TestNodesVerdict(t *testing.T) {
	nodes := []*node{{Node: made("a", "172.22.0.11", true, true)}, {Node: made("b", "172.22.0.12", false, true)}}
	worker := map[string]string{workerRole: ""}
	err := nodesVerdict(nodes, []corev1.Node{object("a", "False", worker)})
	assert.True(t, bringup.IsWait(err))
	assert.EqualError(t, err, "a is not Ready: container network is not ready; b has not joined")
	full := object("b", "Unknown", worker)
	full.Status.Conditions[0].Status, full.Status.Conditions[1].Message = corev1.ConditionTrue, ""
	assert.ErrorContains(t, nodesVerdict(nodes, []corev1.Node{object("a", "True", worker), full}), "b is not Ready: DiskPressure")
	err = nodesVerdict(nodes, []corev1.Node{object("a", "True", worker), object("b", "True", nil)})
	assert.EqualError(t, err, "b does not have its roles")
	assert.False(t, bringup.IsWait(err), "roles do not come by themselves")
	assert.NoError(t, nodesVerdict(nodes, []corev1.Node{object("a", "True", worker), object("b", "True", worker), object("stranger", "False", nil)}))
}

// TestADeadNodeHoldsUpNobodysRoles: nor does it keep the others from being named as Ready.
func TestADeadNodeHoldsUpNobodysRoles(t *testing.T) {
	nodes := []*node{{Node: made("a", "172.22.0.11", true, true)}, {Node: made("b", "172.22.0.12", false, true)}, {Node: made("c", "172.22.0.13", false, true)}}
	worker := map[string]string{workerRole: ""}
	dead := object("b", "Unknown", worker)
	assert.EqualError(t, nodesVerdict(nodes, []corev1.Node{object("a", "True", worker), dead, object("c", "True", nil)}), "c does not have its roles")
	assert.Equal(t, []string{"a"}, readyNodes(nodes, []corev1.Node{object("a", "True", worker), dead, object("c", "True", nil)}))
	assert.Equal(t, []string{"a", "c"}, readyNodes(nodes, []corev1.Node{object("a", "True", worker), object("c", "True", worker)}))
}

func TestWorkloadsVerdict(t *testing.T) {
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Generation: 2},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2}}
	two := int32(2)
	deployment := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}, Spec: appsv1.DeploymentSpec{Replicas: &two},
		Status: appsv1.DeploymentStatus{UpdatedReplicas: 2, ReadyReplicas: 2}}
	assert.NoError(t, workloadsVerdict([]appsv1.DaemonSet{set}, []appsv1.Deployment{deployment}))
	deployment.Status.ReadyReplicas = 1
	assert.EqualError(t, workloadsVerdict([]appsv1.DaemonSet{set}, []appsv1.Deployment{deployment}), "coredns: 1 of 2 pods are ready")
	set.Generation = 3
	assert.EqualError(t, workloadsVerdict([]appsv1.DaemonSet{set}, nil), "kube-proxy: 2 of 2 pods are ready")
	assert.Error(t, workloadsVerdict([]appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, nil), "nothing was scheduled yet")
}

func TestPodsThatStayOnANode(t *testing.T) {
	yes := true
	daemon := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "daemon", OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}}}
	static := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "static", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}}
	over := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	user := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &yes}}}}
	going := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "going", DeletionTimestamp: &metav1.Time{}}}
	all := []corev1.Pod{daemon, static, over, user, going}
	assert.Equal(t, []string{"shop/web", "shop/going"}, stayingPods(all, false))
	assert.Equal(t, []string{"shop/web"}, stayingPods(all, true), "nobody is left to end a pod of a dead node")
}

// A first control plane that is off must not cost the cluster the names of the world outside.
func TestNameServersAreNotGuessed(t *testing.T) {
	c := &cluster{Settings: edge, inv: inventory.Inventory{Nodes: []inventory.Node{made("m-1", "172.22.0.11", true, true)}}}
	n := &node{Node: c.inv.Nodes[0], cluster: c}
	c.nodes = []*node{n}
	_, err := c.systemObjects()
	require.ErrorContains(t, err, "m-1 to say which name servers it uses")
	assert.False(t, bringup.IsPermanent(err))
	n.known = plain
	_, err = c.systemObjects()
	require.NoError(t, err)
}

func TestAWorkerThatMovedIsSeen(t *testing.T) {
	n := &node{Node: made("w-1", "172.22.0.24", false, true)}
	at := func(address string) *corev1.Node {
		o := object("w-1", "True", nil)
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "w-1"}, {Type: corev1.NodeInternalIP, Address: address}}
		return &o
	}
	told := facts{NodeIP: n.Addr}
	assert.NoError(t, n.checkAddressed(told, at("172.22.0.24")))
	assert.NoError(t, n.checkAddressed(told, &corev1.Node{}), "it has not said yet")
	assert.NoError(t, n.checkAddressed(told, at("fd00::14")))
	assert.ErrorContains(t, n.checkAddressed(facts{NodeIP: netip.MustParseAddr("172.22.0.14")}, at("172.22.0.24")), "its kubelet is told the address 172.22.0.14")
	assert.ErrorContains(t, n.checkAddressed(told, at("172.22.0.14")), "the cluster knows it at 172.22.0.14, and it has 172.22.0.24 now")
}

func TestAKubeletIsToldItsNewAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeadm-flags.env")
	for was, is := range map[string]string{
		`KUBELET_KUBEADM_ARGS="--hostname-override=w-1 --node-ip=172.22.0.14 --pod-infra-container-image=a/pause:3"`: `KUBELET_KUBEADM_ARGS="--hostname-override=w-1 --node-ip=172.22.0.24 --pod-infra-container-image=a/pause:3"`,
		`KUBELET_KUBEADM_ARGS="--node-ip=172.22.0.14"`:                                                               `KUBELET_KUBEADM_ARGS="--node-ip=172.22.0.24"`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(was+"\n"), 0o644))
		out, err := exec.Command("sh", "-euc", readdress, "sh", "172.22.0.24", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, is+"\n", string(text))
	}
}
