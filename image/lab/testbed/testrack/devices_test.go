package testrack

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/inspection"
)

// The deploy ramdisk's collector of PCI devices, run as a program on files as sysfs has them, with the commands of
// kmod as they answer for these.
func TestCollectorTellsWhichDevicesNothingDrives(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs what the ramdisk has: ", err)
	}

	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
	}
	device := func(address, class, id, functions string) {
		write(address+"/class", "0x"+class+"\n")
		write(address+"/vendor", "0x"+id[:4]+"\n")
		write(address+"/device", "0x"+id[4:]+"\n")
		write(address+"/modalias", "pci:"+id+"\n")
		if functions != "" {
			write(address+"/sriov_totalvfs", functions+"\n")
		}
	}
	device("pci/0000:00:1f.0", "060100", "8086a1c1", "") // a bridge
	device("pci/0000:3b:00.0", "020000", "80861592", "256")
	device("pci/0000:3c:00.0", "020000", "14e4164e", "0")
	device("pci/0000:5e:00.0", "010400", "10770001", "")
	device("pci/0000:6b:00.0", "0b4000", "80864940", "16")
	write("drivers/ice/bind", "")
	require.NoError(t, os.Symlink("../../drivers/ice", filepath.Join(dir, "pci/0000:3b:00.0/driver")))
	write("bin/modprobe", "#!/bin/sh\n[ \"$2\" = pci:10770001 ] && echo qla2xxx\n")
	write("bin/modinfo", "#!/bin/sh\necho firstlight-test-of-no-firmware.bin\n")

	run := func(args ...string) []byte {
		t.Helper()
		args = append([]string{filepath.FromSlash(filepath.Dir(collector) + "/firstlight_devices.py")}, args...)
		cmd := exec.Command("python3", append(args, filepath.Join(dir, "pci"))...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		require.NoError(t, err)
		return out
	}
	out := run()
	got, err := inspection.ReadDevices(map[string]json.RawMessage{inspection.DevicesKey: out})
	require.NoError(t, err)
	assert.Equal(t, []inspection.Device{
		{Address: "0000:3b:00.0", Class: "020000", Vendor: "8086", Device: "1592", Driver: "ice", VFs: 256},
		{Address: "0000:3c:00.0", Class: "020000", Vendor: "14e4", Device: "164e", Modules: []string{}, Missing: []string{}},
		{Address: "0000:5e:00.0", Class: "010400", Vendor: "1077", Device: "0001", Modules: []string{"qla2xxx"},
			Missing: []string{"firstlight-test-of-no-firmware.bin"}},
		{Address: "0000:6b:00.0", Class: "0b4000", Vendor: "8086", Device: "4940", VFs: 16},
	}, got)
	assert.Equal(t, inspection.Features{SRIOV: true, QAT: true}, inspection.FindFeatures(got))
	assert.Equal(t, inspection.NoFirmware, inspection.Broken(got)[0].Fault())
	assert.Equal(t, inspection.NoDriver, inspection.Broken(got)[1].Fault())

	// A ramdisk that gets no address says the same on its console.
	var said []string
	for _, d := range inspection.Broken(got) {
		said = append(said, d.Describe())
	}
	assert.ElementsMatch(t, said, strings.Split(strings.TrimSpace(string(run("--broken"))), "\n"))
	init, err := os.ReadFile("../../../../overlays/ramdisk/init")
	require.NoError(t, err)
	assert.Contains(t, string(init), "firstlight_devices.py --broken")
}
