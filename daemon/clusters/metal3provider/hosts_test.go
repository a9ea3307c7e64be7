package metal3provider

import (
	"fmt"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/choice"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// testHostBreaksWhileChosen: before anything was written to it, another one is taken; afterwards it is told.
func testHostBreaksWhileChosen(t *testing.T, r *fixture) {
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
func (r *fixture) invariants() {
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
func testTwoClustersTooFewHosts(t *testing.T, r *fixture) {
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
func testHostsOfOthers(t *testing.T, r *fixture) {
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
func testProviderIDs(t *testing.T, r *fixture) {
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
func testPause(t *testing.T, r *fixture) {
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
func testNodeReuse(t *testing.T, r *fixture) {
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
func testBlocks(t *testing.T, r *fixture) {
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
