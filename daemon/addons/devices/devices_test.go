package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVirtualFunctionsAreGrouped(t *testing.T) {
	s := newTree(t)
	s.Add("0000:01:00.0", "020000", "8086:10c9", "igb", "eno1")
	first := s.AddFunctions("0000:01:00.0", 4, "020000", "8086:10ca", "igbvf")
	s.Drive(first[3], "vfio-pci")
	s.Add("0000:02:00.0", "020000", "15b3:1017", "mlx5_core", "eno2")
	second := s.AddFunctions("0000:02:00.0", 2, "020000", "15b3:1018", "mlx5_core")
	s.Write(root+second[1]+"/net/eth9/type", "1\n")
	s.Add("0000:03:00.0", "120000", "8086:0d5c", "")
	fpga := s.AddFunctions("0000:03:00.0", 1, "120000", "8086:0d5d", "vfio-pci")
	functions, err := s.VirtualFunctions()
	require.NoError(t, err)

	for name, c := range map[string]struct {
		list string
		want map[string][]string
	}{
		"every one that is of the network": {`{"resourceName": "a"}`,
			map[string][]string{"intel.com/a": {first[0], first[1], first[2], first[3], second[0]}}},
		"accelerators": {`{"resourceName": "a", "deviceType": "accelerator"}`, map[string][]string{"intel.com/a": fpga}},
		"vendor and driver": {`{"resourceName": "a", "selectors": {"vendors": ["8086"], "drivers": ["igbvf"]}}`,
			map[string][]string{"intel.com/a": first[:3]}},
		"interfaces and numbers": {`{"resourceName": "a", "selectors": {"pfNames": ["eno1#1-2", "eno2#1"]}}`,
			map[string][]string{"intel.com/a": first[1:3]}},
		"addresses of physical functions": {`{"resourceName": "a", "selectors": {"rootDevices": ["0000:02:00.0"]}}`,
			map[string][]string{"intel.com/a": second[:1]}},
		"another kind of link": {`{"resourceName": "a", "selectors": {"linkTypes": ["infiniband"]}}`, map[string][]string{}},
		"the first one has it": {`{"resourceName": "a", "selectors": {"pfNames": ["eno1#0"]}}, {"resourceName": "b", "selectors": {"vendors": ["8086"]}}`,
			map[string][]string{"intel.com/a": first[:1], "intel.com/b": first[1:]}},
		"one of two selectors": {`{"resourceName": "a", "selectors": [{"pciAddresses": ["` + first[0] + `"]}, {"devices": ["1018"]}]}`,
			map[string][]string{"intel.com/a": {first[0], second[0]}}},
	} {
		t.Run(name, func(t *testing.T) {
			all, faults := ParseConfig([]byte(`{"resourceList": [` + c.list + `]}`))
			require.Empty(t, faults)
			got := map[string][]string{}
			for name, functions := range Assign(all, functions, map[string]bool{"eth9": true}) {
				for _, f := range functions {
					got[name] = append(got[name], f.Address)
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestWhatAContainerGets(t *testing.T) {
	kernel := VirtualFunction{Address: "0000:01:10.0", Driver: "igbvf", Group: "7"}
	one := VirtualFunction{Address: "0000:01:10.1", Driver: VFIODriver, Group: "8"}
	same := VirtualFunction{Address: "0000:01:10.2", Driver: VFIODriver, Group: "8"}

	got, err := Resource{Prefix: "intel.com", Name: "nic_a"}.allocate([]VirtualFunction{kernel})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"PCIDEVICE_INTEL_COM_NIC_A":      "0000:01:10.0",
		"PCIDEVICE_INTEL_COM_NIC_A_INFO": `{"0000:01:10.0":{"generic":{"deviceID":"0000:01:10.0"}}}`,
	}, got.Envs)
	assert.Empty(t, got.Devices, "the kernel drives it")

	got, err = Resource{
		Prefix: "qat.intel.com", Name: "cy", Selectors: []Selector{{NeedsVhostNet: true}}, Numbered: "QAT",
	}.allocate([]VirtualFunction{one, same})
	require.NoError(t, err)
	assert.Equal(t, "0000:01:10.1,0000:01:10.2", got.Envs["PCIDEVICE_QAT_INTEL_COM_CY"])
	assert.Equal(t, "0000:01:10.2", got.Envs["QAT1"])
	assert.Contains(t, got.Envs["PCIDEVICE_QAT_INTEL_COM_CY_INFO"], `"vfio":{"dev-mount":"/dev/vfio/8","mount":"/dev/vfio/vfio"},`+
		`"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}`)
	var files []string
	for _, d := range got.Devices {
		assert.Equal(t, d.HostPath, d.ContainerPath)
		assert.Equal(t, "rw", d.Permissions)
		files = append(files, d.HostPath)
	}
	assert.Equal(t, []string{"/dev/net/tun", "/dev/vfio/8", "/dev/vfio/vfio", "/dev/vhost-net"}, files)

	one.Group = ""
	_, err = Resource{Prefix: "intel.com", Name: "a"}.allocate([]VirtualFunction{one})
	assert.EqualError(t, err, "virtual function 0000:01:10.1 of intel.com/a has no IOMMU group; start the node with its IOMMU on")
}

func TestWhatAContainerGetsBesides(t *testing.T) {
	rdma := VirtualFunction{Address: "0000:01:10.0", Driver: "mlx5_core", RDMA: RDMA{
		Name: "mlx5_2", Files: []string{"issm2", "rdma_cm", "umad2", "uverbs2"},
	}}
	vhost := VirtualFunction{Address: "0000:01:10.1", Driver: "mlx5_core", VDPA: VDPA{Type: "vhost", File: "vhost-vdpa-4"}}
	virtio := VirtualFunction{Address: "0000:01:10.2", Driver: "mlx5_core", VDPA: VDPA{Type: "virtio"}}
	extra := Extra{"*": {"token": "t", "port": "any"}, "0000:01:10.0": {"port": "1"}}
	for name, c := range map[string]struct {
		resource Resource
		has      VirtualFunction
		info     string
		files    []string
	}{
		"RDMA": {
			Resource{Selectors: []Selector{{Drivers: []string{"other"}}, {IsRDMA: true}, {}}}, rdma,
			`{"generic": {"deviceID": "0000:01:10.0"}, "rdma": {"issm": "/dev/infiniband/issm2", "rdma_cm": "/dev/infiniband/rdma_cm",
				"rdma_dev": "mlx5_2", "umad": "/dev/infiniband/umad2", "uverbs": "/dev/infiniband/uverbs2"}}`,
			[]string{"/dev/infiniband/issm2", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad2", "/dev/infiniband/uverbs2"},
		},
		"RDMA that was not asked for": {Resource{}, rdma, `{"generic": {"deviceID": "0000:01:10.0"}}`, nil},
		"RDMA that a later selector asks for": {
			Resource{Selectors: []Selector{{}, {IsRDMA: true}}}, rdma, `{"generic": {"deviceID": "0000:01:10.0"}}`, nil,
		},
		"vhost": {
			Resource{Selectors: []Selector{{VDPAType: "vhost"}}}, vhost,
			`{"generic": {"deviceID": "0000:01:10.1"}, "vdpa": {"mount": "/dev/vhost-vdpa-4"}}`, []string{"/dev/vhost-vdpa-4"},
		},
		"virtio, which is an interface": {
			Resource{Selectors: []Selector{{VDPAType: "virtio"}}}, virtio, `{"generic": {"deviceID": "0000:01:10.2"}}`, nil,
		},
		"what is said of all": {
			Resource{Extra: extra}, virtio,
			`{"generic": {"deviceID": "0000:01:10.2"}, "extra": {"token": "t", "port": "any"}}`, nil,
		},
		"what is said of it": {
			Resource{Extra: extra}, rdma, `{"generic": {"deviceID": "0000:01:10.0"}, "extra": {"token": "t", "port": "1"}}`, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.resource.Prefix, c.resource.Name = "intel.com", "a"
			got, err := c.resource.allocate([]VirtualFunction{c.has})
			require.NoError(t, err)
			assert.JSONEq(t, `{"`+c.has.Address+`": `+c.info+`}`, got.Envs["PCIDEVICE_INTEL_COM_A_INFO"])
			var files []string
			for _, d := range got.Devices {
				files = append(files, d.HostPath)
			}
			assert.Equal(t, c.files, files)
		})
	}
	assert.Equal(t, "any", extra["*"]["port"], "the configuration was changed")
}

func TestVirtualFunctionsAreSpread(t *testing.T) {
	pfs := map[string]string{"a0": "a", "a1": "a", "a2": "a", "b0": "b", "b1": "b"}
	for _, c := range []struct {
		free, must []string
		size       int
		want       []string
	}{
		{[]string{"b0", "a2", "a1", "a0"}, nil, 1, []string{"a0"}},
		{[]string{"a0", "b1", "b0"}, nil, 1, []string{"b0"}},
		{[]string{"a0", "a1", "b0"}, nil, 2, []string{"a0", "b0"}},
		{[]string{"a0", "a1", "b0"}, []string{"a1"}, 2, []string{"a1", "b0"}},
		{[]string{"a0"}, nil, 3, []string{"a0"}},
	} {
		assert.Equal(t, c.want, spread(c.free, c.must, c.size, pfs), "%v", c)
	}
}
