package metal3

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
)

func TestOneDisk(t *testing.T) {
	type hints = metal3api.RootDeviceHints
	sda := metal3api.Storage{Name: "/dev/disk/by-path/pci-1", AlternateNames: []string{"/dev/sda", "/dev/disk/by-path/pci-1"}, SizeBytes: 480 << 30, SerialNumber: "S1", Model: "ACME Fast", Vendor: "ACME", WWN: "0x1"}
	sdb := metal3api.Storage{Name: "/dev/sdb", SizeBytes: 480 << 30, SerialNumber: "S2", Model: "ACME Fast", Vendor: "ACME"}
	sdc := metal3api.Storage{Name: "/dev/sdc", SizeBytes: 4000 << 30, SerialNumber: "S3", Model: "Big", Vendor: "Other", Rotational: true, HCTL: "0:0:2:0"}
	all := []metal3api.Storage{sda, sdb, sdc}
	for _, c := range []struct {
		name      string
		hints     *hints
		disks     []metal3api.Storage
		want, err string
	}{
		{"the only disk", nil, all[:1], "/dev/disk/by-path/pci-1", ""},
		{"no hint, several disks", nil, all[:2], "", "rootDevice fits 2 disks (/dev/sda, /dev/sdb); name one of: /dev/sda 480 GiB serialNumber S1 wwn 0x1; /dev/sdb 480 GiB serialNumber S2"},
		{"no disk at all", nil, nil, "", "inspection found no disk"},
		{"serial number", &hints{SerialNumber: "S2"}, all, "/dev/sdb", ""},
		{"serial number is whole", &hints{SerialNumber: "S"}, all[:1], "", "rootDevice fits none of its disks: /dev/sda 480 GiB serialNumber S1 wwn 0x1"},
		{"model is a part, two have it", &hints{Model: "Fast"}, all, "", "rootDevice fits 2 disks (/dev/sda, /dev/sdb); name one of: /dev/sda 480 GiB serialNumber S1 wwn 0x1; /dev/sdb 480 GiB serialNumber S2; /dev/sdc 4000 GiB serialNumber S3"},
		{"vendor", &hints{Vendor: "Other"}, all, "/dev/sdc", ""},
		{"size", &hints{MinSizeGigabytes: 481}, all, "/dev/sdc", ""},
		{"size is at least", &hints{MinSizeGigabytes: 480, SerialNumber: "S1"}, all, "/dev/disk/by-path/pci-1", ""},
		{"turning", &hints{Rotational: ptr.To(true)}, all, "/dev/sdc", ""},
		{"not turning", &hints{Rotational: ptr.To(false)}, all[1:], "/dev/sdb", ""},
		{"SCSI address", &hints{HCTL: "0:0:2:0"}, all, "/dev/sdc", ""},
		{"path", &hints{DeviceName: "/dev/disk/by-path/pci-1"}, all, "/dev/disk/by-path/pci-1", ""},
		{"all must hold", &hints{SerialNumber: "S1", Vendor: "Other"}, all[:1], "", "rootDevice fits none of its disks: /dev/sda 480 GiB serialNumber S1 wwn 0x1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := OneDisk(c.hints, c.disks)
			assert.Equal(t, c.want, got.Name)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.err)
			}
		})
	}
}

func TestTheOnlyDiskIsNamedInTheHost(t *testing.T) {
	want, have := &metal3api.BareMetalHost{}, &metal3api.BareMetalHost{}
	have.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{{Name: "/dev/vda", SerialNumber: "S1"}}}
	given := ObjectForStep(StepImage, want, have)
	require.Equal(t, &metal3api.RootDeviceHints{SerialNumber: "S1"}, given.Spec.RootDeviceHints)
	require.Equal(t, given.Spec.RootDeviceHints, ObjectForStep(StepApply, want, given).Spec.RootDeviceHints, "it is kept afterwards")
	require.Nil(t, ObjectForStep(StepCreate, want, nil).Spec.RootDeviceHints)
}
