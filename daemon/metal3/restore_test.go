package metal3

import (
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestAHostInServiceIsRestoredWithItsStatusBeforeTheOperatorSeesIt: the operator passes over paused hosts,
// their annotations too, so the status is written by the daemon, whatever it was interrupted by.
func TestAHostInServiceIsRestoredWithItsStatusBeforeTheOperatorSeesIt(t *testing.T) {
	meta := func(kind, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
		version := "v1"
		if kind == "BareMetalHost" {
			version = "metal3.io/v1alpha1"
		}
		return metav1.TypeMeta{APIVersion: version, Kind: kind}, metav1.ObjectMeta{Name: name, Namespace: Namespace}
	}
	secret := func(name string) *corev1.Secret {
		s := &corev1.Secret{}
		s.TypeMeta, s.ObjectMeta = meta("Secret", name)
		return s
	}
	host := &metal3api.BareMetalHost{Spec: metal3api.BareMetalHostSpec{Image: &metal3api.Image{URL: "http://172.22.0.1:6180/images/debian-13.raw"}}}
	host.TypeMeta, host.ObjectMeta = meta("BareMetalHost", "node-1")
	node := Handover{BMC: secret("node-1-bmc-secret"), User: secret("node-1-user-data"), Network: secret("node-1-network-data"), Host: host}
	was := host.DeepCopy()
	was.UID = "before"
	was.Status.Provisioning.State = metal3api.StateProvisioned
	was.Status.Provisioning.ID = "ironic's"
	records := Records{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, records.Keep(was))

	scheme, err := Scheme()
	require.NoError(t, err)
	interrupted, err := Restore(Record{Host: *was})
	require.NoError(t, err)
	for name, there := range map[string][]client.Object{"lost": nil, "created, then interrupted": {interrupted}} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&metal3api.BareMetalHost{}).WithReturnManagedFields().Build()
			s := Site{Client: api, Records: records, Log: slog.New(slog.DiscardHandler)}
			step := func() Step {
				t.Helper()
				all, err := s.Reconcile(t.Context(), []Handover{node})
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
