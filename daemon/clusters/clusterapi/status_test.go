package clusterapi

import (
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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
		{"ready", testCluster(), both, claimed,
			status.Cluster{State: "ready", Nodes: "2/2", Percent: 100,
				Text: "cluster edge is there; kubeconfig: Secret edge-kubeconfig in namespace metal3"}},
		{"deleting", testCluster(func(c *clusterv1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), both, claimed,
			status.Cluster{State: "deleting", Nodes: "2/2", Percent: 100, Text: "its machines give their hosts back"}},
		{"refused", testCluster(func(c *clusterv1.Cluster) {
			c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterTopologyReconciledCondition, Status: metav1.ConditionFalse,
				Reason: clusterv1.ClusterTopologyReconciledFailedReason, Message: "error computing the desired state"}}
		}), nil, nil, status.Cluster{State: "failed", Nodes: "0/2", Error: "error computing the desired state"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := describe(c.cluster, c.machines, c.hosts)
			got.Members = nil
			c.want.Name = "edge"
			assert.Equal(t, c.want, got)
		})
	}

	members := describe(testCluster(), both, claimed).Members
	assert.Equal(t, []status.ClusterNode{
		{Name: "cp", Roles: []string{"control-plane"}, Host: "metal3/node-1", Address: "172.22.0.11", State: "ready"},
		{Name: "w", Roles: []string{"worker"}, Address: "172.22.0.11", State: "ready"},
	}, members)
}
