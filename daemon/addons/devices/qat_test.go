package devices

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQATDevicesAreOfferedByTheirServices(t *testing.T) {
	s := newTree(t)
	s.AddDriver("vfio-pci")
	s.Add("0000:3d:00.0", "0b4000", "8086:37c8", "c6xx")
	old := s.AddFunctions("0000:3d:00.0", 2, "0b4000", "8086:37c9", "vfio-pci")
	s.Add("0000:6b:00.0", "0b4000", "8086:4940", "4xxx")
	crypto := s.AddFunctions("0000:6b:00.0", 1, "0b4000", "8086:4941", "vfio-pci")
	s.Write(root+"0000:6b:00.0/qat/state", "up\n")
	s.Write(root+"0000:6b:00.0/qat/cfg_services", "asym;sym\n")
	s.Add("0000:70:00.0", "0b4000", "8086:4940", "4xxx")
	compression := s.AddFunctions("0000:70:00.0", 1, "0b4000", "8086:4941", "vfio-pci")
	s.Write(root+"0000:70:00.0/qat/state", "up\n")
	s.Write(root+"0000:70:00.0/qat/cfg_services", "dc\n")
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	s.AddFunctions("0000:01:00.0", 1, "020000", "8086:10ca", "vfio-pci")

	functions, err := s.VirtualFunctions()
	require.NoError(t, err)
	offered := func(q QAT) map[string][]string {
		all, faults := q.Resources()
		require.Empty(t, faults)
		got := map[string][]string{}
		for name, functions := range Assign(all, functions, nil) {
			for _, f := range functions {
				got[name] = append(got[name], f.Address)
			}
		}
		return got
	}
	assert.Equal(t, map[string][]string{
		"qat.intel.com/generic": old, "qat.intel.com/cy": crypto, "qat.intel.com/dc": compression,
	}, offered(QAT{s.Sysfs, QATDrivers()}))
	assert.Equal(t, map[string][]string{"qat.intel.com/generic": old}, offered(QAT{s.Sysfs, []string{"c6xx"}}))

	for services, name := range map[string]string{
		"sym;asym": "cy", "sym": "sym", "asym": "asym", "dc;asym": "asym-dc", "sym;dc": "sym-dc", "dcc": "generic", "": "generic",
	} {
		s.Write(root+"0000:70:00.0/qat/cfg_services", services+"\n")
		assert.Equal(t, name, QAT{Sysfs: s.Sysfs}.service("0000:70:00.0"), services)
	}
	s.Write(root+"0000:70:00.0/qat/state", "down\n")
	assert.Equal(t, "generic", QAT{Sysfs: s.Sysfs}.service("0000:70:00.0"), "one that is down")
}

func TestQATDevicesArePrepared(t *testing.T) {
	s := newTree(t)
	s.Add("0000:3d:00.0", "0b4000", "8086:37c8", "c6xx")
	s.Write(root+"0000:3d:00.0/sriov_totalvfs", "16\n")
	s.Write(root+"0000:3d:00.0/sriov_numvfs", "0\n")
	s.Add("0000:3f:00.0", "0b4000", "8086:37c8", "")
	s.Write(root+"0000:3f:00.0/sriov_totalvfs", "16\n")
	q := QAT{s.Sysfs, QATDrivers()}

	all, faults := q.Resources()
	require.Len(t, all, 1)
	text := errors.Join(faults...).Error()
	assert.Contains(t, text, "QAT device 0000:3d:00.0: the kernel has no driver vfio-pci loaded; load it on the node: ")
	assert.Contains(t, text, "QAT device 0000:3f:00.0: the kernel's driver c6xx does not drive it; see the kernel's messages")
	assert.Equal(t, "0", s.Read(root+"0000:3d:00.0/sriov_numvfs"), "virtual functions were made that nothing can use")

	s.AddDriver("vfio-pci")
	q.Resources()
	assert.Equal(t, "16", s.Read(root+"0000:3d:00.0/sriov_numvfs"))

	// Virtual functions of the kernel's driver, or of none, are given to vfio-pci; those of others are left alone.
	made := s.AddFunctions("0000:3d:00.0", 3, "0b4000", "8086:37c9", "c6xxvf")
	s.Drive(made[1], "")
	s.Drive(made[2], "uio_pci_generic")
	q.Resources()
	assert.Equal(t, "vfio-pci", s.Read(root+made[0]+"/driver_override"))
	assert.Equal(t, made[0], s.Read("bus/pci/drivers/c6xxvf/unbind"))
	assert.Equal(t, "vfio-pci", s.Read(root+made[1]+"/driver_override"))
	assert.Equal(t, "(null)", s.Read(root+made[2]+"/driver_override"))
}
