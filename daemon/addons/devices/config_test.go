package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpstreamsConfigurationIsRead(t *testing.T) {
	all, faults := ParseConfig([]byte(`{"resourceList": [
		{"resourceName": "intel_sriov_netdevice",
		 "selectors": {"vendors": ["8086"], "devices": ["154c", "0x10ED"], "drivers": ["i40evf", "ixgbevf"], "linkTypes": ["ether"]}},
		{"resourceName": "intel_sriov_dpdk", "resourcePrefix": "intel.com", "deviceType": "netDevice", "excludeTopology": true,
		 "selectors": [{"drivers": ["vfio-pci"], "pfNames": ["enp0s0f0#0,2-7", "enp2s2f1"], "isRdma": false},
		               {"rootDevices": ["0000:86:00.0#1"], "pciAddresses": ["0000:03:02.0"], "needVhostNet": true}]},
		{"resourceName": "fpga", "resourcePrefix": "example.org", "deviceType": "accelerator"},
		{"resourceName": "old", "isRdma": true, "additionalInfo": {"*": {"token": "t"}, "0000:03:02.0": {"port": "1"}}},
		{"resourceName": "fast", "selectors": [{"isRdma": true, "pKeys": ["0x7FFF", "0c"], "acpiIndexes": ["101"]}, {}]},
		{"resourceName": "virtio", "selectors": {"vdpaType": "vhost"}},
		{"resourceName": "sub", "deviceType": "auxNetDevice", "additionalInfo": {"mlx5_core.sf.2": {"port": "1"}},
		 "selectors": {"devices": ["a2d6"], "pfNames": ["p0#1-5"], "auxTypes": ["sf"], "isRdma": true}}
	]}`))
	require.Empty(t, faults)
	assert.Equal(t, []Resource{
		{
			Prefix: "intel.com", Name: "intel_sriov_netdevice", Classes: []string{"02"},
			Selectors: []Selector{{
				Vendors: []string{"8086"}, Devices: []string{"154c", "10ed"}, Drivers: []string{"i40evf", "ixgbevf"},
				LinkTypes: []string{"ether"},
			}},
		},
		{
			Prefix: "intel.com", Name: "intel_sriov_dpdk", Classes: []string{"02"}, ExcludeTopology: true,
			Selectors: []Selector{
				{
					Drivers: []string{"vfio-pci"},
					PFNames: []PFSelector{{Name: "enp0s0f0", Ranges: []Range{{0, 0}, {2, 7}}}, {Name: "enp2s2f1"}},
				},
				{
					Addresses:   []string{"0000:03:02.0"},
					RootDevices: []PFSelector{{Name: "0000:86:00.0", Ranges: []Range{{1, 1}}}}, NeedsVhostNet: true,
				},
			},
		},
		{Prefix: "example.org", Name: "fpga", Classes: []string{"12"}},
		{
			Prefix: "intel.com", Name: "old", Classes: []string{"02"}, Selectors: []Selector{{IsRDMA: true}},
			Extra: Extra{"*": {"token": "t"}, "0000:03:02.0": {"port": "1"}},
		},
		{
			Prefix: "intel.com", Name: "fast", Classes: []string{"02"},
			Selectors: []Selector{{IsRDMA: true, PKeys: []uint16{0x7fff, 0xc}, ACPIIndexes: []string{"101"}}, {}},
		},
		{Prefix: "intel.com", Name: "virtio", Classes: []string{"02"}, Selectors: []Selector{{VDPAType: "vhost"}}},
		{
			Prefix: "intel.com", Name: "sub", HasSubfunctions: true, Classes: []string{"02"},
			Selectors: []Selector{{
				Devices: []string{"a2d6"}, PFNames: []PFSelector{{Name: "p0", Ranges: []Range{{1, 5}}}},
				AuxTypes: []string{"sf"}, IsRDMA: true,
			}},
			Extra: Extra{"mlx5_core.sf.2": {"port": "1"}},
		},
	}, all)
}

func TestAFaultKeepsOneResource(t *testing.T) {
	for text, says := range map[string]string{
		`{"resourceName": ""}`:                                                                 "resource 1 of resourceList: it has no resourceName",
		`{"resourceName": "a b"}`:                                                              "resource 1 of resourceList (intel.com/a b): that is no name of a resource; resourcePrefix is a domain, and resourceName has letters, digits, '-' and '_'",
		`{"resourceName": "a", "name": "b"}`:                                                   `resource 1 of resourceList (intel.com/a): json: unknown field "name"`,
		`{"resourceName": "a", "deviceType": "x"}`:                                             `resource 1 of resourceList (intel.com/a): deviceType "x" is not netDevice, accelerator or auxNetDevice`,
		`{"resourceName": "a", "selectors": {"vdpaType": "vduse"}}`:                            `resource 1 of resourceList (intel.com/a): selectors: vdpaType "vduse" is neither vhost nor virtio`,
		`{"resourceName": "a", "selectors": {"vdpaType": "vhost", "isRdma": true}}`:            `resource 1 of resourceList (intel.com/a): selectors: isRdma and vdpaType exclude each other; remove one of them`,
		`{"resourceName": "a", "selectors": {"ddpProfiles": ["gtp"]}}`:                         `resource 1 of resourceList (intel.com/a): selectors: ddpProfiles is not offered: drivers tell profiles by devlink or ethtool, which nothing here reads; select by pfNames or rootDevices`,
		`{"resourceName": "a", "selectors": {"auxTypes": ["sf"]}}`:                             `resource 1 of resourceList (intel.com/a): selectors: auxTypes is for deviceType auxNetDevice alone; set that, or remove auxTypes`,
		`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"pKeys": ["0x1"]}}`: `resource 1 of resourceList (intel.com/a): selectors: pKeys is not for deviceType auxNetDevice; remove it`,
		`{"resourceName": "a", "selectors": {"pKeys": ["0x12345"]}}`:                           `resource 1 of resourceList (intel.com/a): selectors: pKeys: "0x12345" cannot be; write it as 0x7fff`,
		`{"resourceName": "a", "selectors": {"acpiIndexes": ["first"]}}`:                       `resource 1 of resourceList (intel.com/a): selectors: acpiIndexes: "first" cannot be; write it as 101`,
		`{"resourceName": "a", "additionalInfo": {"eno1": {}}}`:                                `resource 1 of resourceList (intel.com/a): additionalInfo: "eno1" is no address; write 0000:3b:02.0, mlx5_core.sf.2, or * for all`,
		`{"resourceName": "a", "additionalInfo": {"*": {"n": 1}}}`:                             `resource 1 of resourceList (intel.com/a): json: cannot unmarshal number into Go struct field resourceConfig.additionalInfo of type string`,
		`{"resourceName": "a", "selectors": {"pfName": ["eno1"]}}`:                             `resource 1 of resourceList (intel.com/a): selectors: json: unknown field "pfName"`,
		`{"resourceName": "a", "selectors": {"vendors": ["Intel"]}}`:                           `resource 1 of resourceList (intel.com/a): selectors: vendors: "Intel" cannot be; write it as 8086`,
		`{"resourceName": "a", "selectors": {"pciAddresses": ["03:02.0"]}}`:                    `resource 1 of resourceList (intel.com/a): selectors: pciAddresses: "03:02.0" cannot be; write it as 0000:3b:02.0`,
		`{"resourceName": "a", "selectors": {"pfNames": ["eno1#7-2"]}}`:                        `resource 1 of resourceList (intel.com/a): selectors: pfNames: "eno1#7-2" cannot be; write NAME, or NAME#0,2-7 for some of its virtual functions`,
		`{"resourceName": "a", "selectors": {"pfNames": ["eno1#"]}}`:                           `resource 1 of resourceList (intel.com/a): selectors: pfNames: "eno1#" cannot be; write NAME, or NAME#0,2-7 for some of its virtual functions`,
		`{"resourceName": "a", "selectors": {"rootDevices": ["eno1"]}}`:                        `resource 1 of resourceList (intel.com/a): selectors: rootDevices: "eno1" is no address; write 0000:3b:00.0`,
		`{"resourceName": "a", "resourcePrefix": "No Domain", "selectors": null}`:              "resource 1 of resourceList (No Domain/a): that is no name of a resource; resourcePrefix is a domain, and resourceName has letters, digits, '-' and '_'",
	} {
		all, faults := ParseConfig([]byte(`{"resourceList": [` + text + `, {"resourceName": "sound"}]}`))
		assert.EqualError(t, errors.Join(faults...), says)
		require.Len(t, all, 1, text)
		assert.Equal(t, "intel.com/sound", all[0].String())
	}

	for _, text := range []string{"", "[]", `{"resourcelist": 7}`, `{"resources": []}`, `{"resourceList": []} {}`} {
		_, faults := ParseConfig([]byte(text))
		assert.ErrorContains(t, errors.Join(faults...), "the configuration is no JSON object with resourceList: ", text)
	}
	_, faults := ParseConfig([]byte(`{"resourceList": [{"resourceName": "a"}, {"resourceName": "a"}]}`))
	assert.EqualError(t, errors.Join(faults...),
		"resource 2 of resourceList (intel.com/a): an earlier one has the same name; rename one of them")
}

func TestConfigurationsOfSeveralFiles(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for file, text := range map[string]string{
		filepath.Join(first, "config.json"):  `{"resourceList": [{"resourceName": "a"}]}`,
		filepath.Join(second, "b.json"):      `{"resourceList": [{"resourceName": "b"}, {"resourceName": "a"}]}`,
		filepath.Join(second, "c.json"):      `{`,
		filepath.Join(second, "README"):      `{`,
		filepath.Join(second, "..data", "x"): `{`,
		filepath.Join(second, "d.json", "x"): `{`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	all, faults := ReadConfigs([]string{first, second, filepath.Join(first, "missing")})
	require.Len(t, all, 2)
	assert.Equal(t, "intel.com/b", all[1].String())
	require.Len(t, faults, 3)
	assert.EqualError(t, faults[0], "b.json: intel.com/a is in another file, too; rename one of them")
	assert.ErrorContains(t, faults[1], "c.json: the configuration is no JSON object")
	assert.ErrorContains(t, faults[2], "read the configuration: ")
}
