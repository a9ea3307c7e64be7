package metal3provider

import (
	"fmt"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

type watchInterface = watch.Interface

func addAdmission(s *runtime.Scheme) error { return admissionv1.AddToScheme(s) }

// cases run twice: against controller-runtime's fake of an API, and with FIRSTLIGHT_TEST=native against the appliance's
// own etcd and kube-apiserver with the real definitions.
func cases() []testCase {
	return []testCase{
		{"OrderOfEvents", testOrderOfEvents},
		{"NoEndpoint", testNoEndpoint},
		{"EndpointFromPool", testEndpointFromPool},
		{"Deleted", testDeleted},
		{"DeletedAtAnyTime", testDeletedAtAnyTime},
		{"HostBreaksWhileChosen", testHostBreaksWhileChosen},
		{"TwoClustersTooFewHosts", testTwoClustersTooFewHosts},
		{"HostsOfOthers", testHostsOfOthers},
		{"ProviderIDs", testProviderIDs},
		{"LabelSync", testLabelSync},
		{"Pause", testPause},
		{"NodeReuse", testNodeReuse},
		{"Blocks", testBlocks},
		{"Data", testData},
		{"Remediation", testRemediation},
		{"RemediationGivesUp", testRemediationGivesUp},
	}
}

type testCase struct {
	name string
	run  func(*testing.T, *fixture)
}

func TestOnTheFake(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newFixture(t, newFake(t), false)) })
	}
}

func TestOnARealAPIServer(t *testing.T) {
	api := newReal(t)
	t.Run("Validation", func(t *testing.T) { testValidation(t, api) })
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newFixture(t, api, true)) })
	}
	t.Run("Guard", func(t *testing.T) { testGuard(t, newFixture(t, api, true)) })
}

// testOrderOfEvents: what must be true before what, from the Metal3Cluster to the Node.
func testOrderOfEvents(t *testing.T, r *fixture) {
	r.addCluster("edge")
	r.addMachine("edge", "cp0", func(_ *clusterv1.Machine, m *machine) {
		m.Spec.HostSelector.MatchLabels = map[string]string{"rack": "1"}
	})
	r.round()

	// 2: the Metal3Cluster is ready.
	i := &v1beta2.Metal3Cluster{}
	r.get("edge", i)
	assert.Contains(t, i.Finalizers, v1beta2.ClusterFinalizer)
	assert.True(t, ptr.Deref(i.Status.Initialization.Provisioned, false))
	for _, c := range i.Status.Conditions {
		if c.Type != v1beta2.ConditionPaused {
			assert.Equal(t, metav1.ConditionTrue, c.Status, c.Type)
		}
	}
	assert.Equal(t, v1beta2.ReasonWaitingForInfrastructure, r.condition(r.machine("cp0"), v1beta2.ConditionAssociate).Reason)

	// 4: no host before there is bootstrap data.
	r.provisionCluster("edge")
	r.addHost("host-1", func(h *host) { h.Labels["rack"] = "2" })
	r.round()
	m := r.machine("cp0")
	assert.Equal(t, v1beta2.ReasonWaitingForBootstrap, r.condition(m, v1beta2.ConditionAssociate).Reason)
	assert.Contains(t, m.Finalizers, v1beta2.MachineFinalizer)
	assert.NotContains(t, m.Annotations, v1beta2.AnnotationHost)

	// 8n: no free host is a condition, and one that comes later is taken.
	r.bootstrap("cp0")
	r.round()
	c := r.condition(r.machine("cp0"), v1beta2.ConditionAssociate)
	assert.Equal(t, v1beta2.ReasonAssociateFailed, c.Reason)
	assert.Equal(t, "no host of this namespace fits hostSelector", c.Message)
	r.addHost("host-2", func(h *host) { h.Labels["rack"] = "1" })
	r.round()

	// 8 and 11: the host is claimed, and gets what it boots with.
	m, h := r.machine("cp0"), r.host("host-2")
	assert.Equal(t, "metal3/host-2", m.Annotations[v1beta2.AnnotationHost])
	assert.Equal(t, metav1.ConditionTrue, r.condition(m, v1beta2.ConditionAssociate).Status)
	assert.Equal(t, "cp0", m.Status.UserData.Name)
	assert.Equal(t, &corev1.ObjectReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: namespace, Name: "cp0",
	}, h.Spec.ConsumerRef)
	assert.Equal(t, "edge", h.Labels[labelCluster])
	assert.Equal(t, &metal3api.Image{URL: "http://10.0.0.1/images/debian-13.raw", Checksum: "abc", DiskFormat: ptr.To("raw")}, h.Spec.Image)
	assert.Equal(t, &corev1.SecretReference{Namespace: namespace, Name: "cp0"}, h.Spec.UserData)
	assert.True(t, h.Spec.Online)
	secret := &corev1.Secret{}
	_, err := labelSecrets(t.Context(), r.api, secretLabels([]host{*h}))
	require.NoError(t, err)
	r.get("host-2-bmc", secret)
	assert.Equal(t, "edge", secret.Labels[labelCluster])
	assert.Nil(t, r.host("host-1").Spec.ConsumerRef)

	// 12: nothing is said to be provisioned before it is.
	assert.Empty(t, m.Spec.ProviderID)
	assert.False(t, ptr.Deref(m.Status.Initialization.Provisioned, false))
	assert.Equal(t, v1beta2.ReasonHostProvisioning, r.condition(m, v1beta2.ConditionHostProvisioned).Reason)
	r.operate()
	r.round()
	assert.Equal(t, v1beta2.ReasonWaitingForNode, r.condition(r.machine("cp0"), v1beta2.ConditionHostProvisioned).Reason)
	assert.Empty(t, r.machine("cp0").Spec.ProviderID)

	// 13: the Node that says it is this host gets the providerID, and so does the machine.
	r.addNode("node-2", "host-2", "")
	r.round()
	m = r.machine("cp0")
	assert.Equal(t, "metal3://metal3/host-2/cp0", m.Spec.ProviderID)
	assert.True(t, ptr.Deref(m.Status.Initialization.Provisioned, false))
	assert.Equal(t, metav1.ConditionTrue, r.condition(m, v1beta2.ConditionReady).Status)
	assert.Equal(t, []v1beta2.MachineAddress{
		{Type: "InternalIP", Address: "10.0.0.2"}, {Type: "Hostname", Address: "host-2"}, {Type: "InternalDNS", Address: "host-2"},
	}, m.Status.Addresses)
	n := &corev1.Node{}
	require.NoError(t, r.nodes.Get(t.Context(), key(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}), n))
	assert.Equal(t, "metal3://metal3/host-2/cp0", n.Spec.ProviderID)

	// The providerID made a generation of its own, which the conditions say that they are of.
	r.round()
	m = r.machine("cp0")
	for _, c := range m.Status.Conditions {
		assert.Equal(t, m.Generation, c.ObservedGeneration, c.Type)
	}

	// Nothing is written when nothing changes.
	version := r.machine("cp0").ResourceVersion + r.host("host-2").ResourceVersion
	r.round()
	assert.Equal(t, version, r.machine("cp0").ResourceVersion+r.host("host-2").ResourceVersion)
}

// testNoEndpoint: a cluster without an endpoint never becomes ready. The API server refuses one without a host; one
// that got around that is told.
func testNoEndpoint(t *testing.T, _ *fixture) {
	for _, e := range []v1beta2.APIEndpoint{{}, {Host: "10.0.0.1"}, {Port: 6443}} {
		v := endpointVerdict(e, "")
		assert.False(t, v.Holds)
		assert.Equal(t, "ControlPlaneEndpointFailed", v.Reason)
	}
	assert.True(t, endpointVerdict(v1beta2.APIEndpoint{Host: "10.0.0.1", Port: 6443}, "").Holds)
}

// install brings a cluster with machines to Nodes.
func (r *fixture) install(cluster string, names ...string) {
	r.t.Helper()
	r.addCluster(cluster)
	r.provisionCluster(cluster)
	for _, name := range names {
		r.addMachine(cluster, name)
		r.bootstrap(name)
	}
	r.until("hosts of "+cluster, func() bool {
		for _, name := range names {
			if r.host(hostOrAny(r, name)).Status.Provisioning.State != metal3api.StateProvisioned {
				return false
			}
		}
		return true
	}, r.operate)
	for _, name := range names {
		r.addNode("node-"+name, hostName(r.machine(name)), "")
	}
	r.until("Nodes of "+cluster, func() bool {
		for _, name := range names {
			if r.machine(name).Spec.ProviderID == "" {
				return false
			}
		}
		return true
	})
}

func hostOrAny(r *fixture, name string) string {
	if h := hostName(r.machine(name)); h != "" {
		return h
	}
	return r.hosts()[0].Name
}

// deleteMachine is what Cluster API does when a Machine is deleted.
func (r *fixture) deleteMachine(name string) {
	r.t.Helper()
	require.NoError(r.t, r.api.Delete(r.t.Context(), r.machine(name)))
}

// testDeleted: the claim goes last, and the host is free for others.
func testDeleted(t *testing.T, r *fixture) {
	r.addHost("host-1")
	r.install("edge", "cp0")
	r.deleteMachine("cp0")
	require.NoError(t, r.api.Delete(t.Context(), func() *v1beta2.Metal3Cluster { i := &v1beta2.Metal3Cluster{}; r.get("edge", i); return i }()))

	r.until("the host is empty", func() bool { return isEmpty(r.host("host-1")) })
	h := r.host("host-1")
	assert.True(t, choice.IsConsumedBy(h, namespace, "cp0"), "it was let go of before it was empty")
	assert.Contains(t, r.machine("cp0").Finalizers, v1beta2.MachineFinalizer)
	assert.False(t, r.isGone("edge", &v1beta2.Metal3Cluster{}), "its Machine is still there")

	r.until("the machine is gone", func() bool {
		if h := r.host("host-1"); h.Spec.ConsumerRef == nil {
			assert.Equal(t, metal3api.StateAvailable, h.Status.Provisioning.State)
		}
		return r.isGone("cp0", &machine{})
	}, r.operate)
	h = r.host("host-1")
	assert.Nil(t, h.Spec.ConsumerRef)
	assert.NotContains(t, h.Labels, labelCluster)
	assert.NotContains(t, h.Annotations, label.AllowWipe)
	assert.NotContains(t, h.Annotations, label.Cleared, "the next image would not be checked")
	secret := &corev1.Secret{}
	_, err := labelSecrets(t.Context(), r.api, secretLabels([]host{*h}))
	require.NoError(t, err)
	r.get("host-1-bmc", secret)
	assert.NotContains(t, secret.Labels, labelCluster)

	require.NoError(t, r.api.Delete(t.Context(), func() *clusterv1.Machine { o := &clusterv1.Machine{}; r.get("cp0", o); return o }()))
	r.until("the cluster is gone", func() bool { return r.isGone("edge", &v1beta2.Metal3Cluster{}) })
	r.operate()
	assert.Nil(t, choice.Check(r.host("host-1")), "the host may be chosen again")
}

// testDeletedAtAnyTime: a machine goes whatever it had come to, and whatever is missing around it.
func testDeletedAtAnyTime(t *testing.T, r *fixture) {
	for i, c := range []struct {
		name string
		do   func(name, host string)
	}{
		{"before its bootstrap data", func(string, string) {}},
		{"its host being installed", func(name, _ string) { r.bootstrap(name); r.round() }},
		{"its host gone", func(name, h string) {
			r.bootstrap(name)
			r.round()
			change(r, h, &host{}, func(h *host) { h.Finalizers = nil })
			require.NoError(t, r.api.Delete(t.Context(), r.host(h)))
		}},
		{"its Machine and Cluster gone", func(name, _ string) {
			r.bootstrap(name)
			r.round()
			for _, o := range []interface {
				metav1.Object
				runtime.Object
			}{&clusterv1.Machine{}, &clusterv1.Cluster{}} {
				switch o := o.(type) {
				case *clusterv1.Machine:
					r.get(name, o)
					require.NoError(t, r.api.Delete(t.Context(), o))
				case *clusterv1.Cluster:
					r.get(name, o)
					require.NoError(t, r.api.Delete(t.Context(), o))
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, h := fmt.Sprintf("m-%d", i), fmt.Sprintf("host-%d", i)
			r.addCluster(name)
			r.provisionCluster(name)
			r.addHost(h, func(h *host) { h.Labels["for"] = name })
			r.addMachine(name, name, func(_ *clusterv1.Machine, m *machine) {
				m.Spec.HostSelector.MatchLabels = map[string]string{"for": name}
			})
			r.round()
			c.do(name, h)
			r.deleteMachine(name)
			r.until("it is gone", func() bool { return r.isGone(name, &machine{}) }, r.operate)
		})
	}
}
