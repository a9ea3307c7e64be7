package metal3

import (
	"context"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
)

// TestHostsSayWhatTheirInspectionFoundOfDevices: once, again after another inspection, and nothing of what was not asked.
func TestHostsSayWhatTheirInspectionFoundOfDevices(t *testing.T) {
	raid := inspection.Device{Address: "0000:5e:00.0", Class: "010400", Vendor: "8086", Device: "2826"}
	report := inspection.Report{Disks: map[string]inspection.Disk{}, Devices: []inspection.Device{
		{Address: "0000:3b:00.0", Class: "020000", Vendor: "8086", Device: "1592", Driver: "ice", VFs: 256}, raid,
	}}
	scheme, err := Scheme()
	require.NoError(t, err)
	h := &metal3api.BareMetalHost{}
	h.Namespace, h.Name, h.Status.Provisioning.ID = Namespace, "node-1", "ironic's"
	h.Labels, h.Annotations = map[string]string{label.QAT: "true"}, map[string]string{"other": "stays"}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(h).Build()
	write := func(inspected bool) *metal3api.BareMetalHost {
		t.Helper()
		all := Inspections{Ask: func(context.Context, string) (inspection.Report, error) { return report, nil }}
		have := &metal3api.BareMetalHost{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), have))
		have.Status = h.Status
		if inspected {
			have.Status.HardwareDetails = &metal3api.HardwareDetails{}
		}
		require.NoError(t, all.LabelDevices(t.Context(), api, []metal3api.BareMetalHost{*have}))
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(h), have))
		return have
	}

	assert.NotContains(t, write(false).Labels, label.FoundSRIOV, "it was not inspected")

	have := write(true)
	assert.Equal(t, map[string]string{
		label.QAT:        "true",
		label.FoundSRIOV: "true",
		label.FoundQAT:   "false",
		label.FoundGPU:   "false",
		label.FoundFPGA:  "false",
	}, have.Labels)
	assert.Equal(t, []inspection.Device{raid}, inspection.ParseBroken(have.Annotations[label.BrokenDevices]))
	assert.Equal(t, have.ResourceVersion, write(true).ResourceVersion, "nothing is written twice")

	report.Devices[1].Driver = "megaraid_sas"
	have = write(true)
	assert.Equal(t, map[string]string{"other": "stays"}, have.Annotations, "it was put right and inspected again")

	report.Devices = nil
	assert.Equal(t, have.ResourceVersion, write(true).ResourceVersion, "an earlier ramdisk reports none")
}
