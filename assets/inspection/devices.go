package inspection

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// DevicesKey is where Ironic keeps the PCI devices of a report.
const DevicesKey = "firstlight_devices"

// Device is a PCI device, as sysfs shows it to a system that has tried its drivers.
type Device struct {
	Address string `json:"address"` // domain:bus:device.function, such as 0000:3b:00.0
	Class   string `json:"class"`   // class, subclass and interface: 6 hexadecimal digits, such as 020000
	Vendor  string `json:"vendor"`  // 4 hexadecimal digits, as in https://pci-ids.ucw.cz
	Device  string `json:"device"`  // the same
	Driver  string `json:"driver"`  // that drives it; "": none does
	// Modules are the kernel modules that are for it, where no driver drives it; none: there is no driver for it.
	Modules []string `json:"modules,omitempty"`
	// Missing are files that those modules name, below /usr/lib/firmware, and that are not there.
	Missing []string `json:"missing,omitempty"`
	VFs     int      `json:"vfs,omitempty"` // how many virtual functions it can have (SR-IOV)
}

// Fault is why a device is of no use.
type Fault string

// Faults. A device that a driver drives has none.
const (
	NoFault    Fault = ""
	NoDriver   Fault = "no-driver"   // no module is for it
	NoFirmware Fault = "no-firmware" // its module names files that are not there
	DriverFail Fault = "driver-fail" // its module is there with all that it names, and does not drive it
)

// IsNetwork reports whether the device is a network controller (PCI code and ID assignment specification, class 02).
func (d Device) IsNetwork() bool { return strings.HasPrefix(d.Class, "02") }

// IsStorage reports whether the device is a mass storage controller (class 01).
func (d Device) IsStorage() bool { return strings.HasPrefix(d.Class, "01") }

// Fault is why nothing drives the device; NoFault also of devices that are neither networks nor storage: a system
// does without the driver of a graphics card.
func (d Device) Fault() Fault {
	switch {
	case d.Driver != "" || !d.IsNetwork() && !d.IsStorage():
		return NoFault
	case len(d.Modules) == 0:
		return NoDriver
	case len(d.Missing) > 0:
		return NoFirmware
	}
	return DriverFail
}

// Describe says in half a sentence what is wrong with a device; "" if nothing is.
func (d Device) Describe() string {
	what := "disk controller"
	if d.IsNetwork() {
		what = "NIC"
	}

	what += fmt.Sprintf(" %s:%s at %s ", d.Vendor, d.Device, d.Address)
	switch d.Fault() {
	case NoDriver:
		return what + "has no driver"
	case NoFirmware:
		return what + "has no firmware " + d.Missing[0]
	case DriverFail:
		return what + "is not driven by " + strings.Join(d.Modules, ", ")
	}
	return ""
}

// Broken are the devices that are of no use, disk controllers first.
func Broken(all []Device) []Device {
	broken := slices.DeleteFunc(slices.Clone(all), func(d Device) bool { return d.Fault() == NoFault })
	slices.SortFunc(broken, func(a, b Device) int {
		return cmp.Or(strings.Compare(a.Class[:2], b.Class[:2]), strings.Compare(a.Address, b.Address))
	})
	return broken
}

// ParseBroken reads what Broken found, from the annotation of a host; none if it is not there, or if someone wrote
// something else.
func ParseBroken(annotation string) []Device {
	var broken []Device
	if json.Unmarshal([]byte(annotation), &broken) != nil {
		return nil
	}
	return slices.DeleteFunc(broken, func(d Device) bool { return d.Fault() == NoFault })
}

// Features are what clusters may ask of a server besides processors and memory.
type Features struct {
	SRIOV bool // a network card that can have virtual functions
	QAT   bool // Intel QuickAssist
	GPU   bool
	FPGA  bool
}

// quickAssist are Intel's physical functions of QuickAssist: DH895xCC, C62x, C3xxx, D15xx, 200xx, 4xxx (Linux,
// drivers/crypto/intel/qat/qat_common/adf_accel_devices.h).
var quickAssist = []string{"0435", "37c8", "19e2", "6f54", "18ee", "4940", "4942", "4944", "4946", "578a"}

// graphics are vendors of cards that compute: a display controller of theirs is not a BMC's console.
var graphics = []string{"10de", "1002"} // NVIDIA, AMD

// gateArrays are FPGA cards by vendor, with their devices; none: all of its devices are such.
var gateArrays = map[string][]string{
	"10ee": nil,                              // Xilinx, AMD
	"1172": nil,                              // Altera
	"8086": {"09c4", "0b2b", "0b30", "bcce"}, // Intel's Programmable Acceleration Cards (Linux, drivers/fpga/dfl-pci.c)
}

// FindFeatures says what a server's devices make it fit for.
func FindFeatures(all []Device) Features {
	var f Features
	for _, d := range all {
		ids, makesFPGAs := gateArrays[d.Vendor]
		f.SRIOV = f.SRIOV || d.IsNetwork() && d.VFs > 0
		f.QAT = f.QAT || d.Vendor == "8086" && slices.Contains(quickAssist, d.Device)
		f.GPU = f.GPU || strings.HasPrefix(d.Class, "0302") ||
			strings.HasPrefix(d.Class, "03") && slices.Contains(graphics, d.Vendor)
		f.FPGA = f.FPGA || makesFPGAs && (slices.Contains(ids, d.Device) || len(ids) == 0)
	}
	return f
}

// ReadDevices returns the PCI devices of a report; nil if the ramdisk reported none, as earlier ones did not. What is
// no device is left out: whatever boots may send a report.
func ReadDevices(plugins map[string]json.RawMessage) ([]Device, error) {
	text := plugins[DevicesKey]
	if len(text) == 0 {
		return nil, nil
	}

	var devices []Device
	if err := json.Unmarshal(text, &devices); err != nil {
		return nil, fmt.Errorf("read %s: %w", DevicesKey, err)
	}

	return slices.DeleteFunc(devices, func(d Device) bool { return len(d.Class) != 6 || d.Address == "" }), nil
}
