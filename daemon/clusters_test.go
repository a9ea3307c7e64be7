package daemon

import (
	"errors"
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

func TestProvenHostsAreMarked(t *testing.T) {
	host := func(name, mark string, state metal3api.ProvisioningState) metal3api.BareMetalHost {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if mark != "" {
			h.Labels = map[string]string{label.Verified: mark}
		}
		h.Status.Provisioning.State = state
		return h
	}
	const up, again = metal3api.StateProvisioned, metal3api.StateProvisioning
	nodes := []status.Node{
		{Name: "new", Verified: true}, {Name: "marked", Verified: true}, {Name: "working"}, {Name: "reinstalled"}, {Name: "forgotten"}, {Name: "absent", Verified: true},
	}
	hosts := []metal3api.BareMetalHost{
		host("new", "", up), host("marked", "true", up), host("working", "", again), host("reinstalled", "true", again),
		host("forgotten", "true", up), // the daemon was restarted and has not asked again
		host("by-hand", "true", up),   // no node of the site
	}
	assert.Equal(t, map[string]string{"new": "true", "reinstalled": ""}, verifiedLabelChanges(nodes, hosts))
}

// TestHostsWithoutASystemAreProvenByTheirHardware: a host that waits for an image may be chosen for a machine of Cluster
// API once its pre-flight and its inspection passed, and is not proven any more once it has an image.
func TestHostsWithoutASystemAreProvenByTheirHardware(t *testing.T) {
	inspected := func(change func(*metal3api.BareMetalHost)) metal3api.BareMetalHost {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{}, Annotations: map[string]string{}}}
		h.Status.Provisioning.State, h.Status.HardwareDetails = metal3api.StateAvailable, &metal3api.HardwareDetails{}
		change(&h)
		return h
	}
	const proven = label.VerifiedHardware
	for _, c := range []struct {
		name   string
		node   status.Node
		change func(*metal3api.BareMetalHost)
		want   map[string]string
	}{
		{"it waits for an image", status.Node{}, func(*metal3api.BareMetalHost) {}, map[string]string{"node-1": proven}},
		{"it is so already", status.Node{}, func(h *metal3api.BareMetalHost) { h.Labels[label.Verified] = proven }, map[string]string{}},
		{"its pre-flight failed", status.Node{Preflight: []status.Check{{State: status.CheckFailed}}}, func(*metal3api.BareMetalHost) {}, map[string]string{}},
		{"not inspected", status.Node{}, func(h *metal3api.BareMetalHost) { h.Status.HardwareDetails = nil }, map[string]string{}},
		{"it has an error now", status.Node{}, func(h *metal3api.BareMetalHost) {
			h.Labels[label.Verified], h.Status.ErrorMessage = proven, "no power"
		}, map[string]string{"node-1": ""}},
		{"it has an image", status.Node{}, func(h *metal3api.BareMetalHost) {
			h.Labels[label.Verified], h.Spec.Image = proven, &metal3api.Image{URL: "http://x"}
		}, map[string]string{"node-1": ""}},
		{"it is installed, and its system not proven", status.Node{}, func(h *metal3api.BareMetalHost) {
			h.Labels[label.Verified], h.Status.Provisioning.State = proven, metal3api.StateProvisioned
		}, map[string]string{"node-1": ""}},
		{"its system is proven", status.Node{Verified: true}, func(h *metal3api.BareMetalHost) {
			h.Labels[label.Verified], h.Status.Provisioning.State = proven, metal3api.StateProvisioned
		}, map[string]string{"node-1": "true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.node.Name = "node-1"
			assert.Equal(t, c.want, verifiedLabelChanges([]status.Node{c.node}, []metal3api.BareMetalHost{inspected(c.change)}))
		})
	}
}

// TestAClustersLoginIsOfItsOwnHosts: a default password goes to hosts that the cluster names, and to no other.
func TestAClustersLoginIsOfItsOwnHosts(t *testing.T) {
	p := &v1alpha1.Provisioning{}
	p.Spec.Masters = []map[string]*v1alpha1.Body{{"master-1": {MACAddress: "52:54:00:00:00:0A"}}}
	p.Spec.Workers = []map[string]*v1alpha1.Body{{"worker-1": {Host: "node-2"}}, {"worker-2": {CPU: 4}}, {"master-1": nil}}
	host := func(name, boot string, nics ...string) *metal3api.BareMetalHost {
		h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.Spec.BootMACAddress = boot
		for _, mac := range nics {
			h.Status.HardwareDetails = &metal3api.HardwareDetails{NIC: []metal3api.NIC{{MAC: mac}}}
		}
		return h
	}
	assert.True(t, namesHost(p, host("node-1", "52:54:00:00:00:0a")))
	assert.True(t, namesHost(p, host("node-1", "", "52:54:00:00:00:0a")))
	assert.True(t, namesHost(p, host("node-2", "")))
	assert.False(t, namesHost(p, host("node-3", "52:54:00:00:00:0c")))
	assert.False(t, namesHost(p, host("node-4", "")))

	// Of the clusters that the API has, the first that names the host and a Secret: in that cluster's namespace.
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	silent, edge := p.DeepCopy(), p.DeepCopy()
	silent.Namespace, silent.Name = "default", "a"
	edge.Namespace, edge.Name, edge.Spec.CredentialsSecret = "edge", "b", "image-login"
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(silent, edge).Build()
	namespace, secret, err := findLoginSecret(t.Context(), api, host("node-2", ""))
	require.NoError(t, err)
	assert.Equal(t, "edge/image-login", namespace+"/"+secret)
	namespace, secret, err = findLoginSecret(t.Context(), api, host("node-4", ""))
	require.NoError(t, err)
	assert.Equal(t, "/", namespace+"/"+secret, "a password for a host that no cluster names")

	assert.NotNil(t, New(slog.New(slog.DiscardHandler)).metal.ClusterLogin, "no one asks the clusters")
}

func TestAnErrorIsNotRemembered(t *testing.T) {
	asked := 0
	get := remember(func() (int, error) {
		asked++
		if asked == 1 {
			return 0, errors.New("input/output error")
		}
		return asked, nil
	})
	_, err := get()
	require.Error(t, err)
	for range 3 {
		answer, err := get()
		require.NoError(t, err)
		assert.Equal(t, 2, answer)
	}
}
