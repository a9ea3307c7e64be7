package inspection

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	nic      = Device{Address: "0000:3b:00.0", Class: "020000", Vendor: "8086", Device: "1592", Driver: "ice", VFs: 256}
	noCable  = Device{Address: "0000:3c:00.0", Class: "020000", Vendor: "14e4", Device: "164e"}
	raid     = Device{Address: "0000:5e:00.0", Class: "010400", Vendor: "1000", Device: "10e2", Modules: []string{"mpi3mr"}}
	console  = Device{Address: "0000:04:00.0", Class: "030000", Vendor: "1a03", Device: "2000", Driver: "ast"}
	tesla    = Device{Address: "0000:af:00.0", Class: "030200", Vendor: "10de", Device: "20f1"}
	qat      = Device{Address: "0000:6b:00.0", Class: "0b4000", Vendor: "8086", Device: "4940"}
	alveo    = Device{Address: "0000:d8:00.0", Class: "120000", Vendor: "10ee", Device: "5000"}
	function = Device{Address: "0000:6b:00.1", Class: "0b4000", Vendor: "8086", Device: "4941"} // a virtual one
)

func TestEachFaultIsNamed(t *testing.T) {
	fibre := raid
	fibre.Modules, fibre.Missing = []string{"qla2xxx"}, []string{"ql2500_fw.bin", "ql2400_fw.bin"}
	for want, d := range map[string]Device{
		"": nic,
		"NIC 14e4:164e at 0000:3c:00.0 has no driver":                             noCable,
		"disk controller 1000:10e2 at 0000:5e:00.0 is not driven by mpi3mr":       raid,
		"disk controller 1000:10e2 at 0000:5e:00.0 has no firmware ql2500_fw.bin": fibre,
	} {
		assert.Equal(t, want, d.Describe())
	}
	assert.Equal(t, []Device{raid, noCable}, Broken([]Device{nic, noCable, tesla, console, raid}), "what it needs to be installed first")
}

func TestFeaturesAreFoundByDevices(t *testing.T) {
	assert.Equal(t, Features{}, FindFeatures([]Device{console, noCable, raid, function}))
	for name, c := range map[string]struct {
		device Device
		want   Features
	}{
		"a NIC with virtual functions": {nic, Features{SRIOV: true}},
		"QuickAssist":                  {qat, Features{QAT: true}},
		"a GPU":                        {tesla, Features{GPU: true}},
		"an FPGA":                      {alveo, Features{FPGA: true}},
	} {
		assert.Equal(t, c.want, FindFeatures([]Device{console, c.device}), name)
	}
}

func TestReportsOfDevicesAreRead(t *testing.T) {
	read := func(text string) ([]Device, error) {
		return ReadDevices(map[string]json.RawMessage{DevicesKey: json.RawMessage(text)})
	}
	none, err := ReadDevices(nil)
	require.NoError(t, err)
	assert.Nil(t, none)
	got, err := read(`[{"address": "0000:3b:00.0", "class": "020000", "vendor": "8086", "device": "1592", "driver": "ice", "vfs": 256},` +
		` {"address": "x", "class": "02"}, {}]`)
	require.NoError(t, err)
	assert.Equal(t, []Device{nic}, got)
	_, err = read(`"none"`)
	assert.ErrorContains(t, err, "firstlight_devices")
}
