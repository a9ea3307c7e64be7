package sriovnodes

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/addons/devices"
	"firstlight.dev/firstlight/daemon/addons/devices/sysfstest"
)

const pf = "0000:01:00.0"

func newMachine(t *testing.T) (Machine, sysfstest.Tree) {
	s := sysfstest.New(t)
	s.Add(pf, "020000", "8086:10c9", "igb", "eno1")
	s.AddFunctions(pf, 0, "", "", "")
	s.Add("0000:3d:00.0", "0b4000", "8086:37c8", "c6xx") // no network
	s.AddFunctions("0000:3d:00.0", 1, "0b4000", "8086:37c9", "c6xxvf")
	return Machine{Sysfs: devices.Sysfs(s.Root), Configured: filepath.Join(t.TempDir(), "state", "configured.json")}, s
}

func plan(kinds ...string) Plan {
	p := Plan{Address: pf, Name: "eno1", NumVfs: len(kinds)}
	for _, k := range kinds {
		p.VFs = append(p.VFs, VFPlan{k, "a", false})
	}
	return p
}

func TestANodeGetsWhatPlansSay(t *testing.T) {
	m, s := newMachine(t)
	p := plan(netDevice, vfio)
	p.MTU = 9000
	s.Write(sysfstest.Devices+pf+"/net/eno1/flags", "0x1002\n")
	require.Empty(t, m.Apply([]Plan{p}, Users{}))
	assert.Equal(t, "2", s.Read(sysfstest.Devices+pf+"/sriov_numvfs"))
	assert.Equal(t, "9000", s.Read(sysfstest.Devices+pf+"/net/eno1/mtu"))
	assert.Equal(t, "0x1003", s.Read(sysfstest.Devices+pf+"/net/eno1/flags"))

	// The kernel has made them, and drives them.
	made := s.AddFunctions(pf, 2, "020000", "8086:10ca", "igbvf")
	s.Write(sysfstest.Devices+made[0]+"/net/eth3/mtu", "1500\n")
	assert.EqualError(t, errors.Join(m.Apply([]Plan{p}, Users{})...), "eno1: virtual function 1: the kernel has no driver vfio-pci "+
		"loaded; load it on the node: modprobe vfio-pci, and at each start: echo vfio-pci >/etc/modules-load.d/vfio-pci.conf")
	s.AddDriver(vfio)
	require.Empty(t, m.Apply([]Plan{p}, Users{}))
	assert.Equal(t, "9000", s.Read(sysfstest.Devices+made[0]+"/net/eth3/mtu"))
	assert.Equal(t, "(null)", s.Read(sysfstest.Devices+made[0]+"/driver_override"))
	assert.Equal(t, vfio, s.Read(sysfstest.Devices+made[1]+"/driver_override"))

	all, err := m.Interfaces()
	require.NoError(t, err)
	assert.Equal(t, []Interface{{
		PCIAddress: pf, Name: "eno1", Vendor: "8086", DeviceID: "10c9", Driver: "igb", MTU: 9000, TotalVfs: 8, NumVfs: 2,
		VFs: []VirtualFunction{
			{ID: 0, PCIAddress: made[0], Name: "eth3", Vendor: "8086", DeviceID: "10ca", Driver: "igbvf"},
			{ID: 1, PCIAddress: made[1], Vendor: "8086", DeviceID: "10ca", Driver: "igbvf"},
		},
	}}, all)

	// The kernel's again.
	s.Drive(made[1], vfio)
	require.Empty(t, m.Apply([]Plan{plan(netDevice, netDevice)}, Users{}))
	assert.Empty(t, s.Read(sysfstest.Devices+made[1]+"/driver_override"))
	s.Drive(made[1], "")
	assert.EqualError(t, errors.Join(m.Apply([]Plan{plan(netDevice, netDevice)}, Users{})...),
		"eno1: no driver takes virtual function 1 (8086:10ca); load its module on the node")
}

func TestWhatIsInUseStays(t *testing.T) {
	m, s := newMachine(t)
	made := s.AddFunctions(pf, 2, "020000", "8086:10ca", "igbvf")
	s.AddDriver(vfio)
	users := Users{Pods: map[string]string{made[0]: "default/web"}, Others: map[string]string{made[1]: "the container x"}}

	for name, c := range map[string]struct {
		plans   []Plan
		blocked bool
		pods    []string
	}{
		"another number":          {[]Plan{plan(netDevice, netDevice, netDevice)}, true, []string{"default/web"}},
		"another driver":          {[]Plan{plan(netDevice, vfio)}, true, nil},
		"nothing changes for it":  {[]Plan{plan(netDevice, netDevice)}, false, nil},
		"no policy is about it":   {nil, true, []string{"default/web"}},
		"and once more, the same": {nil, true, []string{"default/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, m.saveConfigured([]string{pf}))
			failed := m.Apply(c.plans, users)
			assert.Equal(t, "2", s.Read(sysfstest.Devices+pf+"/sriov_numvfs"))
			if !c.blocked {
				assert.Empty(t, failed)
				return
			}
			require.Len(t, failed, 1)
			var b *Blocked
			require.ErrorAs(t, failed[0], &b)
			assert.Equal(t, c.pods, b.Pods)
			assert.Contains(t, b.Error(), "eno1: virtual functions that must change are in use: ")
			state := newState(nil, append(failed, errors.New("more")))
			assert.Equal(t, SyncFailed, state.SyncStatus)
			assert.Equal(t, SyncInProgress, newState(nil, failed).SyncStatus)
			assert.Len(t, state.BlockedBy, len(c.pods))
		})
	}
	assert.Equal(t, State{Interfaces: []Interface{}, BlockedBy: []string{}, SyncStatus: SyncSucceeded}, newState(nil, nil))
}

func TestOnlyWhatPoliciesMadeIsTakenAway(t *testing.T) {
	m, s := newMachine(t)
	s.AddFunctions(pf, 2, "020000", "8086:10ca", "igbvf")
	require.Empty(t, m.Apply(nil, Users{}))
	assert.Equal(t, "2", s.Read(sysfstest.Devices+pf+"/sriov_numvfs"), "somebody else made them")

	require.Empty(t, m.Apply([]Plan{plan(netDevice, netDevice)}, Users{}))
	require.Empty(t, m.Apply(nil, Users{}))
	assert.Equal(t, "0", s.Read(sysfstest.Devices+pf+"/sriov_numvfs"))
	configured, err := m.readConfigured()
	require.NoError(t, err)
	assert.Empty(t, configured)
	assert.Equal(t, "1", s.Read(sysfstest.Devices+"0000:3d:00.0/sriov_numvfs"), "another kind of device")
}
