package metal3

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAnAdoptedServerComesIntoServiceAsItIs: without a host, with one that was inspected and is held, and with a torn
// record; nobody says that it is to be installed.
func TestAnAdoptedServerComesIntoServiceAsItIs(t *testing.T) {
	node := handoverOf("node-1")
	inspected := node.Host.DeepCopy()
	inspected.Spec.Image, inspected.UID = nil, "inspected"
	inspected.Status.Provisioning.State = metal3api.StateAvailable
	inspected.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/vda"}}, NIC: []metal3api.NIC{{MAC: "52:54:00:00:00:01"}}}
	for name, c := range map[string]struct {
		have  *metal3api.BareMetalHost
		torn  bool
		steps []Step
	}{
		"unknown":     {nil, false, []Step{StepRestore, StepResume, StepApply}},
		"torn record": {nil, true, []Step{StepRestore, StepResume, StepApply}},
		"inspected":   {inspected, false, []Step{StepForget, StepRestore, StepResume, StepApply}},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := Scheme()
			require.NoError(t, err)
			building := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&metal3api.BareMetalHost{}).WithReturnManagedFields()
			if c.have != nil {
				building = building.WithObjects(c.have.DeepCopy())
			}
			api := building.Build()
			records := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
			if c.have != nil {
				require.NoError(t, records.Save(c.have))
			}
			if c.torn {
				require.NoError(t, os.WriteFile(filepath.Join(records.Dir, "node-1.json"), []byte(`{"host": {"met`), 0o600))
			}
			rec, err := AdoptedBackup(node, c.have)
			require.NoError(t, err)
			require.NoError(t, records.Adopt(rec))
			if c.have != nil { // the watch still sees it
				require.NoError(t, records.Save(c.have))
				gone := c.have.DeepCopy()
				gone.DeletionTimestamp = &metav1.Time{}
				require.NoError(t, records.Save(gone))
			}

			s := Reconciler{Client: api, Backups: records, Log: slog.New(slog.DiscardHandler),
				Contents: func(context.Context, *metal3api.BareMetalHost) (Contents, error) { return nil, nil }}
			for _, want := range c.steps {
				all, err := s.Reconcile(t.Context(), []NodeObjects{node})
				require.NoError(t, err)
				require.NoError(t, all[0].Err)
				require.Equal(t, want, all[0].Step)
				if want == StepForget {
					continue
				}
				var h metal3api.BareMetalHost
				require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(node.Host), &h))
				assert.Equal(t, metal3api.StateProvisioned, h.Status.Provisioning.State)
				assert.Equal(t, node.Host.Spec.Image.URL, h.Spec.Image.URL)
				assert.Equal(t, h.Spec.Image.URL, h.Status.Provisioning.Image.URL, "the operator would install it")
				assert.Equal(t, c.have != nil, h.Status.HardwareDetails != nil)
				assert.True(t, h.Status.PoweredOn)
				assert.Equal(t, want == StepRestore, h.Annotations[annotationPaused] == pausedBy)
			}
			assert.EqualError(t, records.Adopt(rec), "its record on DATA says that it is in service: it is being taken over again")
		})
	}
}

func TestWhatIsNotAdopted(t *testing.T) {
	node := handoverOf("node-1")
	have := func(state metal3api.ProvisioningState, change func(*metal3api.BareMetalHost)) *metal3api.BareMetalHost {
		h := node.Host.DeepCopy()
		h.Status.Provisioning.State = state
		change(h)
		return h
	}
	own, bare := node, node
	own.Own, bare.BMC = "52:54:00:00:00:01", nil
	for says, c := range map[string]struct {
		node NodeObjects
		have *metal3api.BareMetalHost
	}{
		"its MAC 52:54:00:00:00:01 is one of this appliance's own":      {own, nil},
		"it has no BMC in site.yaml":                                    {bare, nil},
		"it is in service already":                                      {node, have(metal3api.StateProvisioned, func(*metal3api.BareMetalHost) {})},
		"it is being installed with image":                              {node, have(metal3api.StateProvisioning, func(*metal3api.BareMetalHost) {})},
		"its BareMetalHost is being removed; try again when it is gone": {node, have(metal3api.StateAvailable, func(h *metal3api.BareMetalHost) { h.DeletionTimestamp = &metav1.Time{} })},
	} {
		_, err := AdoptedBackup(c.node, c.have)
		assert.ErrorContains(t, err, says)
	}
}
