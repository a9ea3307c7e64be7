package metal3

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestGateComesBeforeThePower: a node whose pre-flight did not pass has no host, and one that
// is inspected gets no image; a host in service is never asked for.
func TestGateComesBeforeThePower(t *testing.T) {
	nodes := []NodeObjects{handoverOf("new"), handoverOf("inspected"), handoverOf("live")}
	inspected, live := nodes[1].Host.DeepCopy(), nodes[2].Host.DeepCopy()
	inspected.Spec.Image = nil
	inspected.Status.Provisioning.State = metal3api.StateAvailable
	inspected.Status.Provisioning.ID = "ironic's"
	inspected.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/vda", SizeBytes: 1 << 34, SerialNumber: "x"}}}
	live.Status.Provisioning.State = metal3api.StateProvisioned
	scheme, err := Scheme()
	require.NoError(t, err)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(inspected, live).WithReturnManagedFields().Build()

	var asked sync.Map
	open, due := false, false
	s := Reconciler{Client: api, Backups: Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, Log: slog.New(slog.DiscardHandler),
		PreflightGate: func(node string) (bool, string) { asked.Store(node, true); return open, "its BMC does not answer" },
		Contents: func(context.Context, *metal3api.BareMetalHost) (Contents, error) {
			return Contents{"/dev/vda": {}}, nil
		},
		AgentsDue: func(context.Context) (map[string]bool, error) { return map[string]bool{"ironic's": due}, nil }}
	look := func() map[string]Progress {
		all := map[string]Progress{}
		list, err := s.Reconcile(t.Context(), nodes)
		require.NoError(t, err)
		for _, p := range list {
			require.NoError(t, p.Err, p.Node)
			all[p.Node] = p
		}
		return all
	}
	exists := func(o client.Object, name string) bool {
		return api.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: name}, o) == nil
	}
	all := look()
	for _, name := range []string{"new", "inspected"} {
		assert.Equal(t, Progress{Node: name, Decision: Decision{Step: StepPreflight, Sentence: "its BMC does not answer"}}, all[name])
	}
	assert.Equal(t, StepApply, all["live"].Step)
	_, ok := asked.Load("live")
	assert.False(t, ok, "a host in service was asked for")
	assert.False(t, exists(&metal3api.BareMetalHost{}, "new"), "a host was made before its pre-flight passed")
	assert.False(t, exists(&corev1.Secret{}, "new-bmc-secret"))
	var h metal3api.BareMetalHost
	require.True(t, exists(&h, "inspected"))
	assert.Nil(t, h.Spec.Image, "an image was given before the pre-flight passed")

	open, due = true, true // what was mended is seen in the next round
	all = look()
	assert.Equal(t, Progress{Node: "inspected", Decision: Decision{Step: StepAgent, Sentence: "the agent that inspected it has not called Ironic yet"}}, all["inspected"])
	require.True(t, exists(&h, "inspected"))
	assert.Nil(t, h.Spec.Image, "an image was given that Ironic would fail to deploy")
	assert.Equal(t, StepCreate, all["new"].Step)
	due = false
	all = look()
	assert.Equal(t, StepImage, all["inspected"].Step)
	assert.True(t, exists(&h, "new"))
	assert.Nil(t, h.Spec.Image)
	require.True(t, exists(&h, "inspected"))
	assert.Equal(t, "http://172.22.0.1:6180/images/debian-13.raw", h.Spec.Image.URL)
}
