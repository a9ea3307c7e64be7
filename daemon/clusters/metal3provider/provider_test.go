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
		{"Deleted", testDeleted},
		{"DeletedAtAnyTime", testDeletedAtAnyTime},
		{"HostBreaksWhileChosen", testHostBreaksWhileChosen},
		{"TwoClustersTooFewHosts", testTwoClustersTooFewHosts},
		{"HostsOfOthers", testHostsOfOthers},
		{"ProviderIDs", testProviderIDs},
		{"Pause", testPause},
		{"NodeReuse", testNodeReuse},
		{"Blocks", testBlocks},
		{"Data", testData},
	}
}

type testCase struct {
	name string
	run  func(*testing.T, *rig)
}

func TestOnTheFake(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newRig(t, newFake(t), false)) })
	}
}

func TestOnARealAPIServer(t *testing.T) {
	api := newReal(t)
	t.Run("Validation", func(t *testing.T) { testValidation(t, api) })
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newRig(t, api, true)) })
	}
	t.Run("Guard", func(t *testing.T) { testGuard(t, newRig(t, api, true)) })
}

// testOrderOfEvents: what must be true before what, from the Metal3Cluster to the Node.
func testOrderOfEvents(t *testing.T, r *rig) {
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
	require.NoError(t, labelSecret(t.Context(), r.api, h))
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
func testNoEndpoint(t *testing.T, _ *rig) {
	for _, e := range []v1beta2.APIEndpoint{{}, {Host: "10.0.0.1"}, {Port: 6443}} {
		v := endpointVerdict(e)
		assert.False(t, v.Holds)
		assert.Equal(t, "ControlPlaneEndpointFailed", v.Reason)
	}
	assert.True(t, endpointVerdict(v1beta2.APIEndpoint{Host: "10.0.0.1", Port: 6443}).Holds)
}

// install brings a cluster with machines to Nodes.
func (r *rig) install(cluster string, names ...string) {
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

func hostOrAny(r *rig, name string) string {
	if h := hostName(r.machine(name)); h != "" {
		return h
	}
	return r.hosts()[0].Name
}

// deleteMachine is what Cluster API does when a Machine is deleted.
func (r *rig) deleteMachine(name string) {
	r.t.Helper()
	require.NoError(r.t, r.api.Delete(r.t.Context(), r.machine(name)))
}

// testDeleted: the claim goes last, and the host is free for others.
func testDeleted(t *testing.T, r *rig) {
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
	require.NoError(t, labelSecret(t.Context(), r.api, h))
	r.get("host-1-bmc", secret)
	assert.NotContains(t, secret.Labels, labelCluster)

	require.NoError(t, r.api.Delete(t.Context(), func() *clusterv1.Machine { o := &clusterv1.Machine{}; r.get("cp0", o); return o }()))
	r.until("the cluster is gone", func() bool { return r.isGone("edge", &v1beta2.Metal3Cluster{}) })
	r.operate()
	assert.Nil(t, choice.Check(r.host("host-1")), "the host may be chosen again")
}

// testDeletedAtAnyTime: a machine goes whatever it had come to, and whatever is missing around it.
func testDeletedAtAnyTime(t *testing.T, r *rig) {
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

// testHostBreaksWhileChosen: before anything was written to it, another one is taken; afterwards it is told.
func testHostBreaksWhileChosen(t *testing.T, r *rig) {
	r.addCluster("edge")
	r.provisionCluster("edge")
	r.addHost("host-1")
	r.addMachine("edge", "cp0", func(_ *clusterv1.Machine, m *machine) {
		m.Spec.DataTemplate = &v1beta2.ObjectReference{Name: "none"} // it waits for its data
	})
	r.bootstrap("cp0")
	r.round()
	require.True(t, choice.IsConsumedBy(r.host("host-1"), namespace, "cp0"), r.describe())

	changeStatus(r, "host-1", &host{}, func(h *host) {
		h.Status.ErrorMessage, h.Status.OperationalStatus = "no power", metal3api.OperationalStatusError
	})
	r.addHost("host-2")
	r.until("another host", func() bool { return choice.IsConsumedBy(r.host("host-2"), namespace, "cp0") })
	assert.Nil(t, r.host("host-1").Spec.ConsumerRef)
	assert.NotContains(t, r.host("host-1").Labels, labelCluster)

	change(r, "cp0", &machine{}, func(m *machine) { m.Spec.DataTemplate = nil })
	r.round()
	changeStatus(r, "host-2", &host{}, func(h *host) { h.Status.ErrorMessage = "no disk" })
	r.round()
	c := r.condition(r.machine("cp0"), v1beta2.ConditionHostProvisioned)
	assert.Equal(t, v1beta2.ReasonHostFailed, c.Reason)
	assert.Contains(t, c.Message, "see firstlightd why host-2")
	assert.True(t, choice.IsConsumedBy(r.host("host-2"), namespace, "cp0"))
}

// invariants hold at all times.
func (r *rig) invariants() {
	r.t.Helper()
	named := map[string]string{}
	for _, m := range r.machines() {
		if h := hostName(&m); h != "" {
			require.Empty(r.t, named[h], "machines %s and %s name host %s", named[h], m.Name, h)
			named[h] = m.Name
		}
	}
	claims := map[string]string{}
	for _, h := range r.hosts() {
		if h.Spec.Image != nil {
			require.NotNil(r.t, h.Spec.ConsumerRef, "host %s has an image and no owner", h.Name)
		}
		if h.Spec.ConsumerRef != nil && h.Spec.ConsumerRef.Kind == "Metal3Machine" {
			name := h.Spec.ConsumerRef.Name
			require.Empty(r.t, claims[name], "machine %s claims hosts %s and %s", name, claims[name], h.Name)
			claims[name] = h.Name
		}
	}
}

// testTwoClustersTooFewHosts: whenever the provider is killed, no host has two machines and no machine two hosts, and
// in the end all hosts are used.
func testTwoClustersTooFewHosts(t *testing.T, r *rig) {
	const hosts = 5
	for i := range hosts {
		r.addHost(fmt.Sprintf("host-%d", i))
	}
	for _, cluster := range []string{"edge", "rim"} {
		r.addCluster(cluster)
		r.provisionCluster(cluster)
		for i := range 4 {
			name := fmt.Sprintf("%s-%d", cluster, i)
			r.addMachine(cluster, name)
			r.bootstrap(name)
		}
	}

	used := func() (n int) {
		for _, h := range r.hosts() {
			if h.Status.Provisioning.State == metal3api.StateProvisioned {
				n++
			}
		}
		return n
	}
	r.killRandomly(4, 7)
	r.until("all hosts are used", func() bool { r.invariants(); return used() == hosts }, r.operate)
	assert.Greater(t, r.restarts, 5, "it was hardly killed")

	// One is given up: its host goes to a machine that waited.
	var victim string
	waiting := map[string]bool{}
	for _, m := range r.machines() {
		if hostName(&m) == "" {
			waiting[m.Name] = true
		} else {
			victim = m.Name
		}
	}
	assert.Len(t, waiting, 3)
	r.deleteMachine(victim)
	r.until("a waiting machine has it", func() bool {
		r.invariants()
		n := 0
		for _, m := range r.machines() {
			if waiting[m.Name] && hostName(&m) != "" {
				n++
			}
		}
		return n == 1 && used() == hosts
	}, r.operate)
}

// testHostsOfOthers: what belongs to a Provisioning, to the site, or to nobody that says so, is left as it is.
func testHostsOfOthers(t *testing.T, r *rig) {
	r.addHost("host-1", func(h *host) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Provisioning", Namespace: "default", Name: "edge", APIVersion: "bpa.akraino.org/v1alpha1"}
	})
	r.addHost("host-2", func(h *host) { h.Labels[label.Site] = "fleet" })
	r.addHost("host-3", func(h *host) { delete(h.Labels, label.Verified) })
	r.addHost("host-4", func(h *host) { h.Annotations[choice.AnnotationUnhealthy] = "" })
	r.addCluster("edge")
	r.provisionCluster("edge")
	r.addMachine("edge", "cp0")
	r.bootstrap("cp0")
	before := r.hosts()
	for range 3 {
		r.round()
	}
	assert.Equal(t, before, r.hosts())
	c := r.condition(r.machine("cp0"), v1beta2.ConditionAssociate)
	for _, text := range []string{
		"host host-1 belongs to Provisioning default/edge", "host host-2 is to be installed with the image that its owner names",
		"host host-3 is not proven yet", "host host-4 was given up as unhealthy",
	} {
		assert.Contains(t, c.Message, text)
	}
	assert.Contains(t, r.condition(r.machine("cp0"), v1beta2.ConditionReady).Message, "host host-1 belongs to")

	// A host that somebody else claims between the choice and the claim.
	r.addHost("host-5")
	change(r, "cp0", &machine{}, func(m *machine) { m.Annotations = map[string]string{v1beta2.AnnotationHost: namespace + "/host-5"} })
	change(r, "host-5", &host{}, func(h *host) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Provisioning", Namespace: "default", Name: "rim"}
	})
	r.round()
	assert.NotContains(t, r.machine("cp0").Annotations, v1beta2.AnnotationHost)
	assert.Equal(t, "rim", r.host("host-5").Spec.ConsumerRef.Name)
}

// testProviderIDs: the UID's format by annotation, and a Node that its kubelet or a cloud provider gave an ID.
func testProviderIDs(t *testing.T, r *rig) {
	for i, c := range []struct {
		name   string
		node   string // its providerID; UID and NAME are replaced
		change func(*v1beta2.Metal3Cluster)
		want   string
	}{
		{"by-label", "", func(*v1beta2.Metal3Cluster) {}, "NAME"},
		{"by-label-uid", "", func(i *v1beta2.Metal3Cluster) {
			i.Annotations = map[string]string{label.ProviderIDFormat: "uid"}
		}, "UID"},
		{"kubelet-uid", "UID", func(*v1beta2.Metal3Cluster) {}, "UID"},
		{"kubelet-name", "NAME", func(*v1beta2.Metal3Cluster) {}, "NAME"},
		{"cloud", "UID", func(i *v1beta2.Metal3Cluster) { i.Spec.CloudProviderEnabled = ptr.To(true) }, "UID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, hostName := "m-"+c.name, fmt.Sprintf("host-%d", i)
			r.addHost(hostName, func(h *host) { h.Labels["for"] = name })
			r.addCluster(name)
			change(r, name, &v1beta2.Metal3Cluster{}, c.change)
			r.provisionCluster(name)
			r.addMachine(name, name, func(_ *clusterv1.Machine, m *machine) {
				m.Spec.HostSelector.MatchLabels = map[string]string{"for": name}
			})
			r.bootstrap(name)
			r.round()
			r.operate()
			ids := map[string]string{
				"": "", "UID": "metal3://" + string(r.host(hostName).UID), "NAME": "metal3://metal3/" + hostName + "/" + name,
			}
			r.addNode("node-"+name, hostName, ids[c.node])
			r.until("it has its providerID", func() bool { return r.machine(name).Spec.ProviderID != "" })
			assert.Equal(t, ids[c.want], r.machine(name).Spec.ProviderID)
			n := &corev1.Node{}
			require.NoError(t, r.nodes.Get(t.Context(), key(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name}}), n))
			assert.Equal(t, ids[c.want], n.Spec.ProviderID)
		})
	}
}

// testPause: a paused Cluster's machines do nothing, and their hosts are ready to be moved.
func testPause(t *testing.T, r *rig) {
	r.addHost("host-1")
	r.install("edge", "cp0")
	assert.Contains(t, r.host("host-1").Annotations, annotationBlockMove)
	change(r, "edge", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	r.round()
	h := r.host("host-1")
	assert.Equal(t, pausedByProvider, h.Annotations[metal3api.PausedAnnotation])
	assert.Contains(t, h.Annotations[metal3api.StatusAnnotation], `"state":"provisioned"`)
	assert.NotContains(t, h.Annotations[metal3api.StatusAnnotation], "hardware\":")
	assert.NotContains(t, h.Annotations, annotationBlockMove)
	assert.Equal(t, metav1.ConditionTrue, r.condition(r.machine("cp0"), v1beta2.ConditionPaused).Status)

	r.deleteMachine("cp0")
	r.round()
	assert.NotNil(t, r.host("host-1").Spec.Image, "it is paused")
	change(r, "edge", &clusterv1.Cluster{}, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	r.until("it goes on", func() bool { return r.isGone("cp0", &machine{}) }, r.operate)
	assert.NotContains(t, r.host("host-1").Annotations, metal3api.PausedAnnotation)

	// One that its owner paused is left paused.
	h = &host{}
	setPause(h, true, "{}", "edge")
	h.Annotations[metal3api.PausedAnnotation] = "mine"
	setPause(h, false, "", "edge")
	assert.Equal(t, "mine", h.Annotations[metal3api.PausedAnnotation])
}

// testNodeReuse: the host of a deleted machine goes to the next of the same control plane, and to no other.
func testNodeReuse(t *testing.T, r *rig) {
	template := &v1beta2.Metal3MachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "control"}}
	template.Spec.NodeReuse = ptr.To(true)
	template.Spec.Template.Spec.Image = &v1beta2.Image{URL: "http://x", Checksum: "y"}
	require.NoError(t, r.api.Create(t.Context(), template))
	t.Cleanup(func() { require.NoError(t, r.api.Delete(r.ctx(), template)) })
	ofControlPlane := func(o *clusterv1.Machine, m *machine) {
		o.Labels[clusterv1.MachineControlPlaneNameLabel] = "edge"
		m.Annotations = map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "control"}
	}
	r.addHost("host-1")
	r.addCluster("edge")
	r.provisionCluster("edge")
	r.addMachine("edge", "cp0", ofControlPlane)
	r.bootstrap("cp0")
	r.until("it is installed", func() bool {
		return r.host("host-1").Status.Provisioning.State == metal3api.StateProvisioned
	}, r.operate)

	r.deleteMachine("cp0")
	r.until("it is gone", func() bool { return r.isGone("cp0", &machine{}) }, r.operate)
	h := r.host("host-1")
	assert.Equal(t, "cp-edge", h.Labels[choice.LabelNodeReuse])
	assert.Equal(t, "Cluster", h.Spec.ConsumerRef.Kind)

	r.addMachine("edge", "worker")
	r.addMachine("edge", "cp1", ofControlPlane)
	r.addHost("host-2", func(h *host) { h.Annotations[metal3api.PausedAnnotation] = "" })
	r.bootstrap("worker")
	r.bootstrap("cp1")
	r.until("the next one has it", func() bool { return choice.IsConsumedBy(r.host("host-1"), namespace, "cp1") }, r.operate)
	assert.NotContains(t, r.host("host-1").Labels, choice.LabelNodeReuse)
	assert.Equal(t, v1beta2.ReasonAssociatedByReuse, r.condition(r.machine("cp1"), v1beta2.ConditionAssociate).Reason)
	assert.Empty(t, hostName(r.machine("worker")))
}

// testBlocks: what keeps a machine's host is a sentence in the machine's condition, and goes once the host is installed.
func testBlocks(t *testing.T, r *rig) {
	r.addHost("host-1")
	r.addHost("host-2")
	r.addCluster("edge")
	r.provisionCluster("edge")
	r.addMachine("edge", "cp0")
	r.bootstrap("cp0")
	r.round()
	name := hostName(r.machine("cp0"))
	change(r, name, &host{}, func(h *host) { h.Annotations[metal3api.PausedAnnotation] = label.Hold })
	for _, h := range r.hosts() {
		require.NoError(t, markHost(t.Context(), r.api, &h, `its disk is "full"; set overwrite`))
	}
	r.round()
	c := r.condition(r.machine("cp0"), v1beta2.ConditionHostProvisioned)
	assert.Equal(t, v1beta2.ReasonHostHeld, c.Reason)
	assert.Contains(t, c.Message, `until the appliance's checks have passed: its disk is "full"; set overwrite; see firstlightd why `+name)

	change(r, name, &host{}, func(h *host) { delete(h.Annotations, metal3api.PausedAnnotation) })
	r.operate()
	for _, h := range r.hosts() {
		require.NoError(t, markHost(t.Context(), r.api, &h, "it is verified"))
	}
	for _, h := range r.hosts() {
		assert.NotContains(t, h.Annotations, label.Why)
	}
}
