package sriovnodes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

func policy(t *testing.T, name, spec string) Policy {
	t.Helper()
	p := Policy{Name: name}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &p.Spec))
	return p
}

// nics are two physical functions.
var nics = []Interface{
	{PCIAddress: "0000:01:00.0", Name: "eno1", Vendor: "8086", DeviceID: "10c9", TotalVfs: 7},
	{PCIAddress: "0000:02:00.0", Name: "eno2", Vendor: "15b3", DeviceID: "1017", TotalVfs: 4},
}

func TestPoliciesBecomePlans(t *testing.T) {
	kernel, program, none := VFPlan{"netdevice", "a", false}, VFPlan{"vfio-pci", "b", false}, VFPlan{DeviceType: "netdevice"}
	for name, c := range map[string]struct {
		policies []Policy
		want     []Plan
		faults   string
	}{
		"none": {},
		"one device": {policies: []Policy{policy(t, "p", `{nicSelector: {vendor: "8086"}, numVfs: 2, resourceName: a, mtu: 9000}`)},
			want: []Plan{{Address: "0000:01:00.0", Name: "eno1", NumVfs: 2, MTU: 9000, VFs: []VFPlan{kernel, kernel}}}},
		"another node": {policies: []Policy{
			policy(t, "p", `{nodeSelector: {rack: "2"}, nicSelector: {vendor: "8086"}, numVfs: 2, resourceName: a}`)}},
		"this node": {policies: []Policy{
			policy(t, "p", `{nodeSelector: {rack: "1"}, nicSelector: {rootDevices: ["0000:02:00.0"], deviceID: "1017"}, numVfs: 1, resourceName: a}`)},
			want: []Plan{{Address: "0000:02:00.0", Name: "eno2", NumVfs: 1, VFs: []VFPlan{kernel}}}},
		"two policies share a device": {policies: []Policy{
			policy(t, "p", `{nicSelector: {pfNames: ["eno1#0"]}, numVfs: 3, resourceName: a}`),
			policy(t, "q", `{nicSelector: {pfNames: ["eno1#1"]}, numVfs: 3, resourceName: b, deviceType: vfio-pci}`)},
			want: []Plan{{Address: "0000:01:00.0", Name: "eno1", NumVfs: 3, VFs: []VFPlan{kernel, program, none}}}},
		"the lowest number comes first": {policies: []Policy{
			policy(t, "p", `{nicSelector: {pfNames: [eno1]}, numVfs: 2, resourceName: a, priority: 10}`),
			policy(t, "q", `{nicSelector: {pfNames: ["eno1#0"]}, numVfs: 2, resourceName: b, deviceType: vfio-pci, priority: 5}`)},
			want: []Plan{{Address: "0000:01:00.0", Name: "eno1", NumVfs: 2, VFs: []VFPlan{program, kernel}}}},
		"they do not agree": {policies: []Policy{
			policy(t, "p", `{nicSelector: {pfNames: [eno1]}, numVfs: 1, resourceName: a}`),
			policy(t, "q", `{nicSelector: {pfNames: [eno1]}, numVfs: 2, resourceName: b}`)},
			want:   []Plan{{Address: "0000:01:00.0", Name: "eno1", NumVfs: 1, VFs: []VFPlan{kernel}}},
			faults: "policy q: eno1 has 1 virtual functions by policy p, which comes first; give both the same numVfs"},
		"too many": {policies: []Policy{policy(t, "p", `{nicSelector: {pfNames: [eno2]}, numVfs: 5, resourceName: a}`)},
			faults: "policy p: eno2 can have 4 virtual functions, not 5; lower numVfs"},
		"a fault, and a sound one": {policies: []Policy{
			policy(t, "p", `{nicSelector: {}, numVfs: 1, resourceName: a}`),
			policy(t, "q", `{nicSelector: {pfNames: [eno2]}, numVfs: 1, resourceName: a}`)},
			want:   []Plan{{Address: "0000:02:00.0", Name: "eno2", NumVfs: 1, VFs: []VFPlan{kernel}}},
			faults: "policy p: nicSelector selects nothing; give it vendor, deviceID, pfNames or rootDevices"},
		"no resource": {policies: []Policy{policy(t, "p", `{nicSelector: {vendor: "8086"}, numVfs: 1}`)},
			faults: `policy p: resourceName "" is no name of a resource; use letters, digits and '_'`},
		"another type": {policies: []Policy{policy(t, "p", `{nicSelector: {vendor: "8086"}, numVfs: 1, resourceName: a, deviceType: uio}`)},
			faults: `policy p: deviceType "uio" is neither netdevice nor vfio-pci`},
		"a number beyond": {policies: []Policy{policy(t, "p", `{nicSelector: {pfNames: ["eno1#0-2"]}, numVfs: 2, resourceName: a}`)},
			faults: "policy p: eno1 has virtual functions 0 to 1 by numVfs, and nicSelector names 2"},
		"no range": {policies: []Policy{policy(t, "p", `{nicSelector: {pfNames: ["eno1#x"]}, numVfs: 2, resourceName: a}`)},
			faults: `policy p: pfNames: "eno1#x" cannot be; write NAME, or NAME#0,2-7 for some of its virtual functions`},
	} {
		t.Run(name, func(t *testing.T) {
			got, faults := MakePlans(c.policies, map[string]string{"rack": "1"}, nics)
			assert.Equal(t, c.want, got)
			if c.faults == "" {
				assert.Empty(t, faults)
				return
			}
			assert.EqualError(t, errors.Join(faults...), c.faults)
		})
	}
}

func TestTheDevicePluginReadsWhatPlansOffer(t *testing.T) {
	text, err := EncodeResources([]Plan{
		{Address: "0000:01:00.0", VFs: []VFPlan{{"netdevice", "a", false}, {"vfio-pci", "b", false}, {DeviceType: "netdevice"}, {"netdevice", "a", false}}},
		{Address: "0000:02:00.0", VFs: []VFPlan{{"vfio-pci", "b", false}, {"netdevice", "c", true}}},
	})
	require.NoError(t, err)
	all, faults := devices.ParseConfig(text)
	require.Empty(t, faults)
	pf := func(address string, ranges ...devices.Range) []devices.PFSelector {
		return []devices.PFSelector{{Name: address, Ranges: ranges}}
	}
	assert.Equal(t, []devices.Resource{
		{Prefix: "openshift.io", Name: "a", Classes: []string{"02"}, Selectors: []devices.Selector{
			{RootDevices: pf("0000:01:00.0", devices.Range{First: 0, Last: 0}, devices.Range{First: 3, Last: 3})},
		}},
		{Prefix: "openshift.io", Name: "b", Classes: []string{"02"}, Selectors: []devices.Selector{
			{Drivers: []string{"vfio-pci"}, RootDevices: pf("0000:01:00.0", devices.Range{First: 1, Last: 1})},
			{Drivers: []string{"vfio-pci"}, RootDevices: pf("0000:02:00.0", devices.Range{First: 0, Last: 0})},
		}},
		{Prefix: "openshift.io", Name: "c", Classes: []string{"02"}, Selectors: []devices.Selector{
			{RootDevices: pf("0000:02:00.0", devices.Range{First: 1, Last: 1}), IsRDMA: true},
		}},
	}, all)

	text, err = EncodeResources(nil)
	require.NoError(t, err)
	all, faults = devices.ParseConfig(text)
	assert.Empty(t, all)
	assert.Empty(t, faults)
}

func TestNetworksBecomeDefinitions(t *testing.T) {
	parse := func(spec string) Network {
		var n Network
		require.NoError(t, yaml.Unmarshal([]byte(spec), &n.Spec))
		n.Name, n.Namespace = "rack", Namespace
		return n
	}
	d, err := RenderDefinition(parse(`{resourceName: nic, networkNamespace: blue, vlan: 7, vlanQoS: 2, vlanProto: 802.1Q, spoofChk: "off",
		trust: "on", linkState: auto, maxTxRate: 100, ipam: '{"type": "host-local", "subnet": "192.0.2.0/24"}', capabilities: '{"mac": true}'}`))
	require.NoError(t, err)
	assert.Equal(t, "blue", d.GetNamespace())
	assert.Equal(t, map[string]string{"k8s.v1.cni.cncf.io/resourceName": "openshift.io/nic"}, d.GetAnnotations())
	assert.Equal(t, map[string]string{"sriovnetwork.openshift.io/network": "rack"}, d.GetLabels())
	assert.JSONEq(t, `{"cniVersion":"1.0.0","name":"rack","type":"sriov","vlan":7,"vlanQoS":2,"vlanProto":"802.1q","spoofchk":"off","trust":"on",
		"link_state":"auto","max_tx_rate":100,"ipam":{"type":"host-local","subnet":"192.0.2.0/24"},"capabilities":{"mac":true}}`,
		d.Object["spec"].(map[string]any)["config"].(string))

	d, err = RenderDefinition(parse(`{resourceName: nic}`))
	require.NoError(t, err)
	assert.Equal(t, Namespace, d.GetNamespace())
	assert.JSONEq(t, `{"cniVersion":"1.0.0","name":"rack","type":"sriov","vlan":0}`, d.Object["spec"].(map[string]any)["config"].(string))

	for spec, says := range map[string]string{
		`{}`:                              `resourceName "" is no name of a resource; name that of a SriovNetworkNodePolicy`,
		`{resourceName: nic, vlanQoS: 1}`: "vlanQoS needs a vlan",
		`{resourceName: nic, ipam: "x"}`:  "ipam is no JSON object: ",
	} {
		_, err := RenderDefinition(parse(spec))
		assert.ErrorContains(t, err, says)
	}
}
