package devices

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/addons/devices/kubelettest"
)

// newSubfunctions has an adapter with a virtual function, two subfunctions and what its driver has besides on the
// auxiliary bus, and a second adapter with a subfunction.
func newSubfunctions(t *testing.T) tree {
	s := newTree(t)
	for pf, name := range map[string]string{"0000:03:00.0": "p0", "0000:04:00.0": "p1"} {
		s.Add(pf, "020000", "15b3:a2d6", "mlx5_core", name)
	}
	s.AddFunctions("0000:03:00.0", 1, "020000", "15b3:101e", "mlx5_core")
	s.AddSubfunction("0000:03:00.0", "mlx5_core.sf.2", 88, "enp3s0s88")
	s.AddSubfunction("0000:03:00.0", "mlx5_core.sf.3", 89)
	s.AddSubfunction("0000:04:00.0", "mlx5_core.sf.4", 88, "enp4s0s88")
	for _, name := range []string{"mlx5_core.eth.0", "mlx5_core.rdma.0"} {
		s.Write(root+"0000:03:00.0/"+name+"/uevent", "")
		s.Symlink("../../pci/devices/0000:03:00.0/"+name, "bus/auxiliary/devices/"+name)
	}
	for _, file := range []string{"infiniband/mlx5_4/ports/1/pkeys/0", "infiniband_verbs/uverbs4/dev"} {
		s.Write(root+"0000:03:00.0/mlx5_core.sf.3/"+file, "0xffff\n")
	}
	return s
}

func TestSubfunctionsAreFound(t *testing.T) {
	s := newSubfunctions(t)
	s.Symlink("../../bond0", root+"0000:03:00.0/mlx5_core.sf.2/net/enp3s0s88/master")
	got, err := s.Subfunctions()
	require.NoError(t, err)

	sub := func(address, pf, name string, index int) VirtualFunction {
		return VirtualFunction{
			Address: address, AuxType: "sf", Class: "020000", Vendor: "15b3", Device: "a2d6", Driver: "mlx5_core",
			PF: pf, PFNames: []string{name}, LinkType: "ether", Index: index, NUMANode: 1,
		}
	}
	first := sub("mlx5_core.sf.2", "0000:03:00.0", "p0", 88)
	first.Interfaces, first.IsEnslaved = []string{"enp3s0s88"}, true
	second := sub("mlx5_core.sf.3", "0000:03:00.0", "p0", 89)
	second.PKey, second.RDMA = "0xffff", RDMA{Name: "mlx5_4", Files: []string{"uverbs4"}}
	third := sub("mlx5_core.sf.4", "0000:04:00.0", "p1", 88)
	third.Interfaces = []string{"enp4s0s88"}
	assert.Equal(t, []VirtualFunction{first, second, third}, got)

	for _, name := range []string{"mlx5_core.eth.0", "mlx5_core.sf.9", "0000:03:00.0", "../0000:03:00.0"} {
		_, ok := s.Subfunction(name)
		assert.False(t, ok, name)
	}
	functions, err := s.VirtualFunctions()
	require.NoError(t, err)
	assert.Len(t, functions, 1, "a subfunction is no virtual function")
	none, err := Sysfs(t.TempDir()).Subfunctions()
	require.NoError(t, err)
	assert.Empty(t, none, "a machine without the auxiliary bus")
}

func TestSubfunctionsAreSelected(t *testing.T) {
	s := newSubfunctions(t)
	functions, err := s.functions()
	require.NoError(t, err)
	const sub = `"deviceType": "auxNetDevice"`
	for name, c := range map[string]struct {
		fields string
		want   []string
	}{
		"all":              {sub, []string{"mlx5_core.sf.2", "mlx5_core.sf.3", "mlx5_core.sf.4"}},
		"another kind":     {`"selectors": {"vendors": ["15b3"]}`, []string{"0000:03:10.0"}},
		"type":             {sub + `, "selectors": {"auxTypes": ["eth"]}`, nil},
		"number":           {sub + `, "selectors": {"auxTypes": ["sf"], "pfNames": ["p0#80-88"]}`, []string{"mlx5_core.sf.2"}},
		"address of a PF":  {sub + `, "selectors": {"rootDevices": ["0000:04:00.0"]}`, []string{"mlx5_core.sf.4"}},
		"parent's driver":  {sub + `, "selectors": {"drivers": ["ice"]}`, nil},
		"parent's product": {sub + `, "selectors": {"devices": ["101e"]}`, nil},
		"RDMA":             {sub + `, "selectors": {"isRdma": true}`, []string{"mlx5_core.sf.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			all, faults := ParseConfig([]byte(`{"resourceList": [{"resourceName": "a", ` + c.fields + `}]}`))
			require.Empty(t, faults)
			var got []string
			for _, f := range Assign(all, functions, nil)["intel.com/a"] {
				got = append(got, f.Address)
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTheKubeletIsOfferedSubfunctions(t *testing.T) {
	s := newSubfunctions(t)
	k := kubelettest.New(t)
	k.Start()
	c := &settings{config: `{"resourceList": [{"resourceName": "sub", "deviceType": "auxNetDevice",
		"additionalInfo": {"mlx5_core.sf.3": {"port": "1"}}, "selectors": {"pfNames": ["p0"], "isRdma": true}}]}`}
	startPlugin(t, k, &Plugin{Sysfs: s.Sysfs, Resources: c.resources, Report: c.report})
	k.Await("intel.com/sub", "mlx5_core.sf.3=Healthy@1")
	got, err := k.Allocate("intel.com/sub", "mlx5_core.sf.3")
	require.NoError(t, err)
	assert.Equal(t, "mlx5_core.sf.3", got.Envs["PCIDEVICE_INTEL_COM_SUB"])
	assert.JSONEq(t, `{"mlx5_core.sf.3": {"generic": {"deviceID": "mlx5_core.sf.3"}, "extra": {"port": "1"},
		"rdma": {"rdma_dev": "mlx5_4", "uverbs": "/dev/infiniband/uverbs4"}}}`, got.Envs["PCIDEVICE_INTEL_COM_SUB_INFO"])
	require.Len(t, got.Devices, 1)
	assert.Equal(t, "/dev/infiniband/uverbs4", got.Devices[0].HostPath)

	s.Remove("bus/auxiliary/devices/mlx5_core.sf.3")
	k.Await("intel.com/sub", "mlx5_core.sf.3=Unhealthy@1")
	_, err = k.Allocate("intel.com/sub", "mlx5_core.sf.3")
	assert.ErrorContains(t, err, "device mlx5_core.sf.3 of intel.com/sub is gone")
}
