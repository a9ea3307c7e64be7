package metal3

import (
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAHostInServiceIsRestoredWithItsStatusBeforeTheOperatorSeesIt: the operator passes over paused hosts,
// their annotations too, so the status is written by the daemon, whatever it was interrupted by.
func TestAHostInServiceIsRestoredWithItsStatusBeforeTheOperatorSeesIt(t *testing.T) {
	node := handoverOf("node-1")
	host := node.Host
	was := host.DeepCopy()
	was.UID = "before"
	was.Status.Provisioning.State = metal3api.StateProvisioned
	was.Status.Provisioning.ID = "ironic's"
	records := Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, records.Save(was))

	scheme, err := Scheme()
	require.NoError(t, err)
	interrupted, err := RestoredHost(HostBackup{Host: *was})
	require.NoError(t, err)
	for name, there := range map[string][]client.Object{"lost": nil, "created, then interrupted": {interrupted}} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&metal3api.BareMetalHost{}).WithReturnManagedFields().Build()
			s := Reconciler{Client: api, Backups: records, Log: slog.New(slog.DiscardHandler)}
			step := func() Step {
				t.Helper()
				all, err := s.Reconcile(t.Context(), []NodeObjects{node})
				require.NoError(t, err)
				require.NoError(t, all[0].Err)
				return all[0].Step
			}
			assert.Equal(t, StepRestore, step())
			var now metal3api.BareMetalHost
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(host), &now))
			assert.Equal(t, was.Status.Provisioning, now.Status.Provisioning)
			assert.Equal(t, pausedBy, now.Annotations[annotationPaused], "the operator may see it before it was looked at")

			assert.Equal(t, StepResume, step())
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(host), &now))
			assert.NotContains(t, now.Annotations, annotationPaused)
			assert.Equal(t, metal3api.StateProvisioned, now.Status.Provisioning.State)
			assert.Equal(t, host.Spec.Image.URL, now.Spec.Image.URL)
			assert.Equal(t, StepApply, step())
		})
	}
}
