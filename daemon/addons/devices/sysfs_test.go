package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/addons/devices/sysfstest"
)

const root = sysfstest.Devices

// tree is a fake of sysfs.
type tree struct {
	sysfstest.Tree
	Sysfs
}

func newTree(t *testing.T) tree {
	s := sysfstest.New(t)
	return tree{s, Sysfs(s.Root)}
}

func TestVirtualFunctionsAreFound(t *testing.T) {
	s := newTree(t)
	s.Add("0000:00:1f.0", "060100", "8086:a1c1", "")
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	all := s.AddFunctions("0000:01:00.0", 2, "020000", "8086:10CA", "igbvf")
	s.Write(root+all[1]+"/net/eth7/type", "1\n")
	s.Symlink("../../bond0", root+all[1]+"/net/eth7/master")
	s.Drive(all[0], "vfio-pci")

	got, err := s.VirtualFunctions()
	require.NoError(t, err)
	assert.Equal(t, []VirtualFunction{
		{
			Address: "0000:01:10.0", Class: "020000", Vendor: "8086", Device: "10ca", Driver: "vfio-pci",
			PF: "0000:01:00.0", PFNames: []string{"eno1"}, LinkType: "ether", Index: 0, NUMANode: 1, Group: "7",
		},
		{
			Address: "0000:01:10.1", Class: "020000", Vendor: "8086", Device: "10ca", Driver: "igbvf",
			Interfaces: []string{"eth7"}, IsEnslaved: true,
			PF: "0000:01:00.0", PFNames: []string{"eno1"}, LinkType: "ether", Index: 1, NUMANode: 1, Group: "8",
		},
	}, got)

	// A group without an IOMMU, and a machine that says nothing of nodes.
	s.Write("kernel/iommu_groups/7/name", "vfio-noiommu\n")
	s.Remove(root + all[0] + "/numa_node")
	f, ok := s.VirtualFunction(all[0])
	require.True(t, ok)
	assert.Equal(t, "noiommu-7", f.Group)
	assert.Equal(t, -1, f.NUMANode)

	for _, address := range []string{"0000:01:00.0", "0000:09:00.0"} {
		_, ok = s.VirtualFunction(address)
		assert.False(t, ok, address)
	}
	none, err := Sysfs(t.TempDir()).VirtualFunctions()
	require.NoError(t, err)
	assert.Empty(t, none, "a machine without PCI")
}

// What an adapter for InfiniBand has, and what its driver makes for virtio.
func TestFurtherDevicesOfAVirtualFunction(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020700", "15b3:1017", "mlx5_core", "ib0")
	all := s.AddFunctions("0000:01:00.0", 3, "020700", "15b3:1018", "mlx5_core")
	s.Write("class/misc/rdma_cm/dev", "10:58\n")
	for name, text := range map[string]string{
		"infiniband/mlx5_2/ports/1/pkeys/0":   "0x7fff\n",
		"infiniband_verbs/uverbs2/dev":        "231:194\n",
		"infiniband_mad/umad2/dev":            "231:2\n",
		"infiniband_mad/issm2/dev":            "231:66\n",
		"acpi_index":                          "101\n",
		"net1/vhost-vdpa-4/dev":               "240:0\n",
		"infiniband/mlx5_2/ports/1/pkeys/127": "0x0000\n",
	} {
		s.Write(root+all[0]+"/"+name, text)
	}
	s.Symlink("../../../vdpa/drivers/vhost_vdpa", root+all[0]+"/net1/driver")
	s.Symlink("../../pci/devices/"+all[0]+"/net1", "bus/vdpa/devices/net1")
	s.Symlink("../../../vdpa/drivers/virtio_vdpa", root+all[1]+"/vdpa7/driver")
	s.Symlink("../../pci/devices/"+all[1]+"/vdpa7", "bus/vdpa/devices/vdpa7")

	f, ok := s.VirtualFunction(all[0])
	require.True(t, ok)
	assert.Equal(t, "101", f.ACPIIndex)
	assert.Equal(t, "0x7fff", f.PKey)
	assert.Equal(t, RDMA{Name: "mlx5_2", Files: []string{"issm2", "rdma_cm", "umad2", "uverbs2"}}, f.RDMA)
	assert.Equal(t, VDPA{Type: "vhost", File: "vhost-vdpa-4"}, f.VDPA)

	f, _ = s.VirtualFunction(all[1])
	assert.Empty(t, f.RDMA, "the connection manager is nothing alone")
	assert.Equal(t, VDPA{Type: "virtio"}, f.VDPA)
	f, _ = s.VirtualFunction(all[2])
	assert.Zero(t, f.VDPA)

	functions, err := s.VirtualFunctions()
	require.NoError(t, err)
	for selector, want := range map[string][]string{
		`{"isRdma": true}`:                           {all[0]},
		`{"isRdma": false}`:                          all,
		`{"vdpaType": "virtio"}`:                     {all[1]},
		`{"vdpaType": "vhost"}`:                      {all[0]},
		`{"pKeys": ["0x0001", "0x7FFF"]}`:            {all[0]},
		`{"pKeys": ["0x0001"]}`:                      nil,
		`{"acpiIndexes": ["101"]}`:                   {all[0]},
		`{"acpiIndexes": ["102"]}`:                   nil,
		`[{"vdpaType": "virtio"}, {"isRdma": true}]`: {all[0], all[1]},
	} {
		resources, faults := ParseConfig([]byte(`{"resourceList": [{"resourceName": "a", "selectors": ` + selector + `}]}`))
		require.Empty(t, faults)
		var got []string
		for _, f := range Assign(resources, functions, nil)["intel.com/a"] {
			got = append(got, f.Address)
		}
		assert.Equal(t, want, got, selector)
	}
}

func TestDevicesGetADriver(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	address := s.AddFunctions("0000:01:00.0", 1, "020000", "8086:10ca", "igbvf")[0]

	assert.EqualError(t, s.SetDriver(address, VFIODriver), "the kernel has no driver vfio-pci loaded; load it on the node: "+
		"modprobe vfio-pci, and at each start: echo vfio-pci >/etc/modules-load.d/vfio-pci.conf")
	s.AddDriver("vfio-pci")
	require.NoError(t, s.SetDriver(address, VFIODriver))
	assert.Equal(t, "vfio-pci", s.Read(root+address+"/driver_override"))
	assert.Equal(t, address, s.Read("bus/pci/drivers/igbvf/unbind"))
	assert.Equal(t, address, s.Read("bus/pci/drivers_probe"))

	s.Drive(address, "vfio-pci")
	s.Write("bus/pci/drivers_probe", "")
	require.NoError(t, s.SetDriver(address, VFIODriver))
	assert.Empty(t, s.Read("bus/pci/drivers_probe"), "what is so already is left alone")

	require.NoError(t, s.SetDriver(address, ""))
	assert.Empty(t, s.Read(root+address+"/driver_override"))
	assert.Equal(t, address, s.Read("bus/pci/drivers/vfio-pci/unbind"))

	s.Drive(address, "")
	require.NoError(t, s.SetDriver(address, ""), "one without a driver")

	s.Remove(root + address + "/iommu_group")
	assert.EqualError(t, s.SetDriver(address, VFIODriver),
		"device 0000:01:10.0 has no IOMMU group; start the node with its IOMMU on")
	s.Write("module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
	require.NoError(t, s.SetDriver(address, VFIODriver))
}

func TestTheNumberOfVirtualFunctions(t *testing.T) {
	for _, c := range []struct {
		have   string
		number int
		want   string
	}{
		{"0", 4, "4"}, {"4", 4, "4"}, {"4", 2, "2"}, {"4", 0, "0"},
	} {
		s := newTree(t)
		s.Write(root+"0000:01:00.0/sriov_numvfs", c.have+"\n")
		require.NoError(t, s.SetVirtualFunctions("0000:01:00.0", c.number))
		assert.Equal(t, c.want, s.Read(root+"0000:01:00.0/sriov_numvfs"), "%s to %d", c.have, c.number)
	}
	assert.ErrorContains(t, newTree(t).SetVirtualFunctions("0000:01:00.0", 1), "change a device: ")
}
