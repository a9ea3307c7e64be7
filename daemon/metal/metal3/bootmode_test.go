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

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/site"
)

// TestAnAppliedHostBootsAsItsInspectionDid: the document's host says nothing of its firmware, which Metal3 takes for
// UEFI; a server with a BIOS would not be installed. What its owner says stays.
func TestAnAppliedHostBootsAsItsInspectionDid(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   metal3api.BootMode
		booted inspection.Boot
		want   metal3api.BootMode
	}{
		{"a BIOS", "", inspection.BIOS, metal3api.Legacy},
		{"UEFI", "", inspection.UEFI, ""},
		{"an agent that does not say", "", "", ""},
		{"its owner says UEFI", metal3api.UEFI, inspection.BIOS, metal3api.UEFI},
	} {
		t.Run(c.name, func(t *testing.T) {
			have := applied(true, inspectedWith(oneDisk))
			have.Spec.BootMode, have.Status.Provisioning.ID = c.says, "ironic's"
			scheme, err := Scheme()
			require.NoError(t, err)
			found := Inspections{Ask: func(context.Context, string) (inspection.Report, error) {
				return inspection.Report{Disks: Contents{"/dev/sda": {}}, Booted: c.booted}, nil
			}}
			s := Reconciler{
				Client:   fake.NewClientBuilder().WithScheme(scheme).WithObjects(have).WithReturnManagedFields().Build(),
				Backups:  Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
				Log:      slog.New(slog.DiscardHandler),
				Contents: found.Contents,
				BootMode: found.BootMode,
			}
			require.NoError(t, s.Backups.Save(have))
			n, err := NewAppliedObjects(&site.Site{Name: "rack-7"}, AppliedHost{Host: have}, keysOnly())
			require.NoError(t, err)

			all, err := s.Reconcile(t.Context(), []NodeObjects{n})
			require.NoError(t, err)
			require.NoError(t, JoinErrors(all))
			require.Equal(t, StepImage, all[0].Step, all[0].Sentence)
			var got metal3api.BareMetalHost
			require.NoError(t, s.Client.Get(t.Context(), client.ObjectKeyFromObject(have), &got))
			require.NotNil(t, got.Spec.Image)
			assert.Equal(t, c.want, got.Spec.BootMode)
		})
	}
}
