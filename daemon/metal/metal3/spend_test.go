package metal3

import (
	"context"
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestConsentIsSpentByTheImageItNames: a year later the site names a third image, and nobody has said anything of that.
func TestConsentIsSpentByTheImageItNames(t *testing.T) {
	const second, third = "http://172.22.0.1:6180/images/second.raw", "http://172.22.0.1:6180/images/third.raw"
	node := handoverOf("node-1")
	live := node.Host.DeepCopy()
	live.Status.Provisioning.State = metal3api.StateProvisioned
	live.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/vda", SerialNumber: "x"}}}
	live.Annotations = map[string]string{AllowWipe: second}
	scheme, err := Scheme()
	require.NoError(t, err)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(live).WithStatusSubresource(&metal3api.BareMetalHost{}).WithReturnManagedFields().Build()
	records := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, records.Save(live))
	s := Reconciler{Client: api, Backups: records, Log: slog.New(slog.DiscardHandler),
		Contents: func(context.Context, *metal3api.BareMetalHost) (Contents, error) { return nil, nil }}
	look := func(image string) (Step, metal3api.BareMetalHost) {
		node.Host.Spec.Image.URL = image
		all, err := s.Reconcile(t.Context(), []NodeObjects{node})
		require.NoError(t, err)
		require.NoError(t, all[0].Err)
		var h metal3api.BareMetalHost
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(node.Host), &h))
		return all[0].Step, h
	}

	step, h := look(third)
	assert.Equal(t, StepHold, step, "consent to the second image is none to the third")
	assert.Equal(t, second, h.Annotations[AllowWipe])
	step, h = look(second)
	assert.Equal(t, StepImage, step)
	assert.Equal(t, second, h.Spec.Image.URL)
	assert.NotContains(t, h.Annotations, AllowWipe, "it was not spent")
	step, h = look(third)
	assert.Equal(t, StepHold, step)
	assert.Equal(t, second, h.Spec.Image.URL)

	h.Annotations[AllowWipe] = second // a daemon that was killed before it took it away
	require.NoError(t, api.Update(t.Context(), &h))
	step, h = look(second)
	assert.Equal(t, StepApply, step)
	assert.NotContains(t, h.Annotations, AllowWipe)
}

// TestConsentToTheFirstInstallationIsSpentByIt: the record on DATA says so also when the host was emptied since.
func TestConsentToTheFirstInstallationIsSpentByIt(t *testing.T) {
	r := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		state metal3api.ProvisioningState
		want  bool
	}{
		{metal3api.StateInspecting, false}, {metal3api.StateProvisioning, false}, {metal3api.StateProvisioned, true}, {metal3api.StateDeprovisioning, true}, {metal3api.StateAvailable, true},
	} {
		h := host("node-1", "52:54:00:00:00:01", c.state)
		require.NoError(t, r.Save(&h))
		all, err := r.Read()
		require.NoError(t, err)
		assert.Equal(t, c.want, all["node-1"].Installed, c.state)
	}
}

// TestWhoseHostsAreKnown: a record says that the appliance has switched a host on, or cannot be read.
func TestWhoseHostsAreKnown(t *testing.T) {
	r := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	assert.False(t, r.Names("node-1"))
	for state, want := range map[metal3api.ProvisioningState]bool{
		metal3api.StateNone: false, metal3api.StateRegistering: false, metal3api.StateUnmanaged: false,
		metal3api.StateInspecting: true, metal3api.StateAvailable: true, metal3api.StateProvisioned: true,
	} {
		h := host("node-2", "52:54:00:00:00:02", state)
		require.NoError(t, r.Save(&h))
		assert.Equal(t, want, r.Names("node-2"), state)
		assert.False(t, r.IsTorn("node-2"))
	}
}
