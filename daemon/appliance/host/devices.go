package host

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/inspection"
)

const (
	pciDevices  = "/sys/bus/pci/devices"
	firmwareDir = "/usr/lib/firmware" // as the kernel has it (drivers/base/firmware_loader/main.c)
	devicesWait = time.Minute         // between two looks: a driver may need half of it to give up
)

// WatchDevices keeps a note about the appliance's own NICs and disk controllers that nothing drives, until ctx ends.
func (h *Host) WatchDevices(ctx context.Context) error {
	var before []inspection.Device
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(devicesWait):
		}

		idle := h.undriven()
		if same := func(a, b inspection.Device) bool { return a.Address == b.Address }; !first &&
			slices.EqualFunc(idle, before, same) {
			continue
		}

		before = idle
		h.setNote("devices", describeBroken(h.explainDevices(ctx, idle)))
	}
}

// undriven are the NICs and disk controllers that no driver drives, by address. Devices that go meanwhile are left out.
func (h *Host) undriven() []inspection.Device {
	entries, err := os.ReadDir(h.path(pciDevices))
	if err != nil {
		return nil // no PCI, as some virtual machines
	}

	var all []inspection.Device
	for _, e := range entries {
		dir := filepath.Join(pciDevices, e.Name())
		d := inspection.Device{
			Address: e.Name(),
			Class:   h.pciValue(dir, "class"),
			Vendor:  h.pciValue(dir, "vendor"),
			Device:  h.pciValue(dir, "device"),
		}
		if len(d.Class) != 6 || !d.IsNetwork() && !d.IsStorage() {
			continue
		}
		if h.hasLink(dir, "driver") || h.hasLink(dir, "physfn") { // a virtual function waits for who asks for it
			continue
		}
		all = append(all, d)
	}
	return all
}

// hasLink reports whether sysfs has a device's link to something.
func (h *Host) hasLink(dir, name string) bool {
	_, err := os.Stat(h.path(filepath.Join(dir, name)))
	return err == nil
}

// pciValue is a number that sysfs shows of a device, in hexadecimal digits; "" if it does not.
func (h *Host) pciValue(dir, name string) string {
	text, err := os.ReadFile(h.path(filepath.Join(dir, name)))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(text)), "0x")
}

// explainDevices adds to devices which modules are for them, and what those do not find. kmod's commands answer as for
// whoever loads drivers; a failure of modprobe means that no module fits.
func (h *Host) explainDevices(ctx context.Context, all []inspection.Device) []inspection.Device {
	var explained []inspection.Device
	for _, d := range all {
		alias, _ := os.ReadFile(h.path(filepath.Join(pciDevices, d.Address, "modalias")))
		if modules, err := h.run(ctx, "modprobe", "--resolve-alias", strings.TrimSpace(string(alias))); err == nil {
			d.Modules = strings.Fields(modules)
		}

		for _, module := range d.Modules {
			names, err := h.run(ctx, "modinfo", "-F", "firmware", module)
			if err != nil {
				continue
			}
			d.Missing = append(d.Missing, slices.DeleteFunc(strings.Fields(names), h.hasFirmware)...)
		}
		explained = append(explained, d)
	}
	return explained
}

// hasFirmware reports whether what a driver names is there, plain or compressed; the name may be a glob.
func (h *Host) hasFirmware(name string) bool {
	return slices.ContainsFunc([]string{"", ".xz", ".zst"}, func(suffix string) bool {
		found, err := filepath.Glob(h.path(filepath.Join(firmwareDir, name)) + suffix)
		return err == nil && len(found) > 0
	})
}

// describeBroken is the note: each device with what is wrong with it; "" if nothing is.
func describeBroken(all []inspection.Device) string {
	var texts []string
	for _, d := range inspection.Broken(all) {
		texts = append(texts, d.Describe())
	}
	if len(texts) == 0 {
		return ""
	}
	return "Of this machine's own hardware: " + strings.Join(texts, "; ") + "."
}
