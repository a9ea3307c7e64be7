package clusterapi

import (
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
)

// testCluster asks for two machines.
func testCluster(change ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	one := int32(1)
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "edge"}}
	c.Spec.Topology.ControlPlane.Replicas = &one
	c.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Replicas: &one}}
	for _, f := range change {
		f(c)
	}
	return c
}

func testMachine(name string, change ...func(*clusterv1.Machine)) clusterv1.Machine {
	m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name, Labels: map[string]string{}}}
	m.Spec.ClusterName, m.Spec.InfrastructureRef.Name = "edge", name
	for _, f := range change {
		f(&m)
	}
	return m
}

func controls(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }

func runs(m *clusterv1.Machine) {
	m.Status.Phase, m.Status.NodeRef.Name = string(clusterv1.MachinePhaseRunning), m.Name
	m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "172.22.0.11"}}
	m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionTrue}}
}

func waits(why string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineReadyCondition, Status: metav1.ConditionFalse, Message: why}}
	}
}

func verifiedWith(text string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) { c.Annotations = map[string]string{label.Verification: text} }
}

const (
	passed   = `{"time":"2026-11-20T12:00:00Z","nodes":["cp","w"],"passed":true,"checks":[{"name":"DNS","passed":true}]}`
	failed   = `{"time":"2026-11-20T12:00:00Z","nodes":["cp","w"],"checks":[{"name":"DNS","message":"timeout"},{"name":"Service","passed":true}]}`
	ofOthers = `{"time":"2026-11-20T12:00:00Z","nodes":["cp"],"passed":true,"checks":[{"name":"DNS","passed":true}]}`
)

func TestHowAClusterStands(t *testing.T) {
	claimed := []metal3api.BareMetalHost{{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "node-1"}}}
	claimed[0].Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "cp"}
	const why = "* InfrastructureReady: HeldByChecks: its disk holds data\n* NodeHealthy: waits"
	both := []clusterv1.Machine{testMachine("w", runs), testMachine("cp", controls, runs)}
	for _, c := range []struct {
		name     string
		cluster  *clusterv1.Cluster
		machines []clusterv1.Machine
		hosts    []metal3api.BareMetalHost
		want     status.Cluster // without nodes
	}{
		{"new", testCluster(), nil, nil, status.Cluster{State: "waiting", Nodes: "0/2", Text: "Cluster API has made no machine of it yet"}},
		{"no host", testCluster(), []clusterv1.Machine{testMachine("cp", controls, waits("* InfrastructureReady: no host is available"))}, nil,
			status.Cluster{State: "waiting", Nodes: "0/2", Text: "cp: InfrastructureReady: no host is available"}},
		{"installing", testCluster(), []clusterv1.Machine{testMachine("cp", controls, waits(why)), testMachine("w")}, claimed,
			status.Cluster{State: "installing", Nodes: "0/2", Text: "cp: InfrastructureReady: HeldByChecks: its disk holds data"}},
		{"one of two", testCluster(), []clusterv1.Machine{testMachine("cp", controls, runs)}, claimed,
			status.Cluster{State: "installing", Nodes: "1/2", Percent: 50, Text: "its machines become nodes, one of the control plane at a time"}},
		{"not verified", testCluster(), both, claimed,
			status.Cluster{State: "installing", Nodes: "2/2", Percent: 100, Text: "all nodes are there; its pods, Services and DNS are being verified"}},
		{"verified with other nodes", testCluster(verifiedWith(ofOthers)), both, claimed,
			status.Cluster{State: "installing", Nodes: "2/2", Percent: 100, Text: "all nodes are there; its pods, Services and DNS are being verified"}},
		{"verification failed", testCluster(verifiedWith(failed)), both, claimed,
			status.Cluster{State: "failed", Nodes: "2/2", Percent: 100,
				Error: "its verification did not pass, and is repeated: at 2026-11-20T12:00:00Z 1 of 2 checks failed: DNS: timeout"}},
		{"ready", testCluster(verifiedWith(passed)), both, claimed,
			status.Cluster{State: "ready", Nodes: "2/2", Percent: 100,
				Text: "cluster edge is there and verified; kubeconfig: Secret edge-kubeconfig in namespace metal3"}},
		{"deleting", testCluster(func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), both, claimed,
			status.Cluster{State: "deleting", Nodes: "2/2", Percent: 100, Text: "its machines give their hosts back"}},
		{"refused", testCluster(func(c *clusterv1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterTopologyReconciledCondition, Status: metav1.ConditionFalse,
				Reason: clusterv1.ClusterTopologyReconciledFailedReason, Message: "error computing the desired state"}}
		}), nil, nil, status.Cluster{State: "failed", Nodes: "0/2", Error: "error computing the desired state"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := describe(c.cluster, c.machines, c.hosts)
			got.Members, got.Checks, got.Checked = nil, nil, time.Time{}
			c.want.Name, c.want.Namespace, c.want.Kind = "edge", "metal3", "Cluster"
			assert.Equal(t, c.want, got)
		})
	}

	checked := describe(testCluster(verifiedWith(failed)), both, claimed)
	assert.Equal(t, []status.Check{
		{Name: "DNS", State: status.CheckFailed, Text: "timeout"}, {Name: "Service", State: status.CheckOK},
	}, checked.Checks)
	assert.Equal(t, time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), checked.Checked.UTC())

	both[0].Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.34.2"}
	members := describe(testCluster(), both, claimed).Members
	assert.Equal(t, []status.ClusterNode{
		{Name: "cp", Roles: []string{"control-plane"}, Host: "metal3/node-1", Address: "172.22.0.11", State: "ready"},
		{Name: "w", Roles: []string{"worker"}, Address: "172.22.0.11", State: "ready", Version: "v1.34.2"},
	}, members)
}

func TestWhenAClusterIsVerified(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	nodes := []string{"cp", "w"}
	deleted := func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: at} }
	for _, c := range []struct {
		name    string
		cluster *clusterv1.Cluster
		nodes   []string
		at      time.Time
		due     bool
	}{
		{"never verified", testCluster(), nodes, at, true},
		{"nodes are missing", testCluster(), nil, at, false},
		{"passed", testCluster(verifiedWith(passed)), nodes, at.Add(time.Hour), false},
		{"passed with other nodes", testCluster(verifiedWith(ofOthers)), nodes, at, true},
		{"failed just now", testCluster(verifiedWith(failed)), nodes, at.Add(time.Minute), false},
		{"failed a while ago", testCluster(verifiedWith(failed)), nodes, at.Add(5 * time.Minute), true},
		{"being deleted", testCluster(deleted), nodes, at, false},
		{"paused", testCluster(func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }), nodes, at, false},
		{"not to be read", testCluster(verifiedWith("{")), nodes, at, true},
	} {
		assert.Equal(t, c.due, isDue(c.cluster, c.nodes, c.at), c.name)
	}

	both := []clusterv1.Machine{testMachine("w", runs), testMachine("cp", controls, runs)}
	assert.Equal(t, nodes, nodesOf(testCluster(), both))
	assert.Nil(t, nodesOf(testCluster(), both[:1]), "one is missing")
	assert.Nil(t, nodesOf(testCluster(), append(both, testMachine("more"))), "one more comes")
}

func TestNodesThatAreNotReadyAreNamed(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	assert.NoError(t, checkReady([]string{"a"}, []corev1.Node{node("a", "True")}))
	assert.EqualError(t, checkReady([]string{"a", "b"}, []corev1.Node{node("a", "False")}), "a is not Ready; b is not there")
}

func TestASummarysFirstItemHasAllItsReasons(t *testing.T) {
	for _, c := range []struct{ name, summary, want string }{
		{"none", "", ""},
		{"a sentence", "no host is available", "no host is available"},
		{
			"one reason each", "* InfrastructureReady: HeldByChecks: its disk holds data\n* NodeHealthy: waits",
			"InfrastructureReady: HeldByChecks: its disk holds data",
		},
		{
			"reasons in lines below",
			"* NodeHealthy:\n  * Node.Ready: kubelet is starting\n  * Node.MemoryPressure: unknown\n* BootstrapReady: waits",
			"NodeHealthy: Node.Ready: kubelet is starting; Node.MemoryPressure: unknown",
		},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, firstItem(c.summary)) })
	}
}
