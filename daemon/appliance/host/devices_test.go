package host

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheApplianceNamesItsOwnDevicesThatNothingDrives(t *testing.T) {
	h := &Host{Log: slog.New(slog.DiscardHandler), Root: t.TempDir()}
	h.Run = func(_ context.Context, name string, args ...string) (string, error) {
		switch name + " " + args[len(args)-1] {
		case "modprobe pci:fibre":
			return "qla2xxx", nil
		case "modprobe pci:raid":
			return "megaraid_sas", nil
		case "modinfo qla2xxx":
			return "ql2500_fw.bin\nql2400_fw.bin", nil
		case "modinfo megaraid_sas":
			return "", nil
		}
		return "", errors.New("exit status 1")
	}
	assert.Empty(t, h.undriven(), "a machine without PCI")

	device := func(address, class, vendor, id, alias string) string {
		dir := filepath.Join(pciDevices, address)
		for name, text := range map[string]string{"class": "0x" + class, "vendor": "0x" + vendor, "device": "0x" + id, "modalias": alias} {
			h.put(t, filepath.Join(dir, name), text+"\n")
		}
		return dir
	}
	device("0000:00:02.0", "030000", "1a03", "2000", "pci:screen")
	device("0000:3c:00.0", "020000", "14e4", "164e", "pci:nic")
	device("0000:5e:00.0", "010400", "1000", "005d", "pci:raid")
	device("0000:5f:00.0", "0c0400", "1077", "2532", "pci:serial-bus")
	device("0000:60:00.0", "010000", "1077", "2532", "pci:fibre")
	function := device("0000:3b:02.0", "020000", "8086", "1889", "pci:iavf")
	require.NoError(t, os.Symlink("../0000:3c:00.0", h.path(filepath.Join(function, "physfn"))))
	driven := device("0000:3b:00.0", "020000", "8086", "1592", "pci:ice")
	h.put(t, "/sys/bus/pci/drivers/ice/bind", "")
	require.NoError(t, os.Symlink(h.path("/sys/bus/pci/drivers/ice"), h.path(filepath.Join(driven, "driver"))))
	h.put(t, firmwareDir+"/ql2400_fw.bin.xz", "x")

	assert.Equal(t, "Of this machine's own hardware: disk controller 1000:005d at 0000:5e:00.0 is not driven by megaraid_sas; "+
		"disk controller 1077:2532 at 0000:60:00.0 has no firmware ql2500_fw.bin; NIC 14e4:164e at 0000:3c:00.0 has no driver.",
		describeBroken(h.explainDevices(t.Context(), h.undriven())))

	h.put(t, firmwareDir+"/ql2500_fw.bin", "x")
	assert.Contains(t, describeBroken(h.explainDevices(t.Context(), h.undriven())), "1077:2532 at 0000:60:00.0 is not driven by qla2xxx")
	assert.Empty(t, describeBroken(nil))
}
