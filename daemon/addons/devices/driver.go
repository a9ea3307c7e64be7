package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// checkDriver says what to do if the kernel has a driver of PCI devices not loaded.
func (s Sysfs) checkDriver(name string) error {
	_, err := os.Stat(filepath.Join(string(s), "bus/pci/drivers", name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the kernel has no driver %[1]s loaded; load it on the node: modprobe %[1]s, and at each start: "+
			"echo %[1]s >/etc/modules-load.d/%[1]s.conf", name)
	}
	return err
}

// SetDriver has a device driven by one driver, "" for the one that the kernel chooses, whatever drives it now
// (driver_override of sysfs). A device that has that driver already is left alone.
func (s Sysfs) SetDriver(address, driver string) error {
	if driver != "" && s.link(address, "driver") == driver {
		return nil
	}
	if driver != "" {
		if err := s.checkDriver(driver); err != nil {
			return err
		}
	}
	if driver == VFIODriver && !s.mayBindVFIO(address) {
		return fmt.Errorf("device %s has no IOMMU group; start the node with its IOMMU on", address)
	}

	// The kernel reads a name up to the end of the line; an empty one removes it.
	if err := s.write(s.device(address, "driver_override"), driver+"\n"); err != nil {
		return err
	}
	if err := s.Unbind(address); err != nil {
		return err
	}
	return s.Probe(address)
}

// mayBindVFIO reports whether a device has an IOMMU group, or somebody allowed vfio to do without.
func (s Sysfs) mayBindVFIO(address string) bool {
	if s.link(address, "iommu_group") != "" {
		return true
	}
	unsafe, err := os.ReadFile(filepath.Join(string(s), "module/vfio/parameters/enable_unsafe_noiommu_mode"))
	return err == nil && strings.HasPrefix(string(unsafe), "Y")
}

// Unbind takes a device from its driver. One without a driver is no error.
func (s Sysfs) Unbind(address string) error {
	err := s.write(s.device(address, "driver/unbind"), address)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Probe has the kernel find a driver for a device that has none.
func (s Sysfs) Probe(address string) error {
	return s.write(filepath.Join(string(s), "bus/pci/drivers_probe"), address)
}

// SetVirtualFunctions has a physical function have a number of virtual ones. The kernel changes from none to some, and
// from some to none: another number takes all away first.
func (s Sysfs) SetVirtualFunctions(pf string, number int) error {
	have := s.Text(pf, "sriov_numvfs")
	if have == strconv.Itoa(number) {
		return nil
	}
	file := s.device(pf, "sriov_numvfs")
	if have != "0" {
		if err := s.write(file, "0"); err != nil {
			return err
		}
	}
	if number == 0 {
		return nil
	}
	return s.write(file, strconv.Itoa(number))
}

// MTU is that of a device's network interface, in bytes; 0 if there is none.
func (s Sysfs) MTU(address, name string) int {
	n, _ := strconv.Atoi(s.Text(address, filepath.Join("net", name, "mtu")))
	return n
}

// SetMTU changes that of a device's network interface.
func (s Sysfs) SetMTU(address, name string, mtu int) error {
	return s.write(s.device(address, "net", name, "mtu"), strconv.Itoa(mtu))
}

// EnsureUp takes a device's network interface up, by its flags (IFF_UP of include/uapi/linux/if.h).
func (s Sysfs) EnsureUp(address, name string) error {
	const up = 1
	flags, err := strconv.ParseUint(s.Text(address, filepath.Join("net", name, "flags")), 0, 32)
	if err != nil || flags&up != 0 {
		return nil // it has gone, or is up
	}
	return s.write(s.device(address, "net", name, "flags"), fmt.Sprintf("%#x", flags|up))
}

// write writes to a file of sysfs, which is there.
func (s Sysfs) write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("change a device: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("change a device: %w", err)
	}
	return nil
}
