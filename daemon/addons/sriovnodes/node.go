package sriovnodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/addons/devices"
)

// Machine is the devices of one node.
type Machine struct {
	Sysfs devices.Sysfs
	// Configured is a file with the addresses of physical functions whose virtual ones were made here: those that no policy
	// is about any more lose them.
	Configured string
}

// networkClass begins the classes of network devices.
const networkClass = "02"

// Interfaces returns the network devices that can have virtual functions, by address.
func (m Machine) Interfaces() ([]Interface, error) {
	found, err := m.Sysfs.PhysicalFunctions()
	if err != nil {
		return nil, err
	}
	functions, err := m.Sysfs.VirtualFunctions()
	if err != nil {
		return nil, err
	}

	var all []Interface
	for _, pf := range found {
		if !strings.HasPrefix(pf.Class, networkClass) {
			continue
		}
		i := Interface{
			PCIAddress: pf.Address, Vendor: pf.Vendor, DeviceID: pf.Device, Driver: pf.Driver,
			TotalVfs: pf.Most, NumVfs: pf.Number,
		}
		if len(pf.Interfaces) > 0 {
			i.Name = pf.Interfaces[0]
			i.MTU = m.Sysfs.MTU(pf.Address, i.Name)
		}
		for _, f := range functions {
			if f.PF != pf.Address {
				continue
			}
			vf := VirtualFunction{
				ID: f.Index, PCIAddress: f.Address, Vendor: f.Vendor, DeviceID: f.Device, Driver: f.Driver,
			}
			if len(f.Interfaces) > 0 {
				vf.Name = f.Interfaces[0]
			}
			i.VFs = append(i.VFs, vf)
		}
		slices.SortFunc(i.VFs, func(a, b VirtualFunction) int { return a.ID - b.ID })
		all = append(all, i)
	}
	return all, nil
}

// Users has who uses virtual functions, by address: pods as NAMESPACE/NAME, or sentences about others.
type Users struct {
	Pods   map[string]string
	Others map[string]string
}

// Blocked says that a device cannot be changed while virtual functions of it are in use.
type Blocked struct {
	Device string
	Pods   []string // NAMESPACE/NAME, sorted
	Others []string // sentences
}

func (b *Blocked) Error() string {
	return fmt.Sprintf("%s: virtual functions that must change are in use: %s; they change when it is over", b.Device,
		strings.Join(slices.Concat(b.Pods, b.Others), ", "))
}

// checkUnused returns a Blocked if any of some virtual functions is in use.
func (u Users) checkUnused(device string, all []VirtualFunction) error {
	b := &Blocked{Device: device}
	for _, vf := range all {
		if pod, ok := u.Pods[vf.PCIAddress]; ok {
			b.Pods = append(b.Pods, pod)
		} else if other, ok := u.Others[vf.PCIAddress]; ok {
			b.Others = append(b.Others, other)
		}
	}
	if len(b.Pods)+len(b.Others) == 0 {
		return nil
	}
	slices.Sort(b.Pods)
	b.Pods = slices.Compact(b.Pods)
	return b
}

// Apply brings devices to what plans say. What cannot be done keeps nothing else from it. Some of the errors may be a
// Blocked.
func (m Machine) Apply(plans []Plan, users Users) (failed []error) {
	interfaces, err := m.Interfaces()
	if err != nil {
		return []error{err}
	}
	configured, err := m.readConfigured()
	if err != nil {
		return []error{err}
	}

	for _, i := range interfaces {
		at := slices.IndexFunc(plans, func(p Plan) bool { return p.Address == i.PCIAddress })
		isOurs := slices.Contains(configured, i.PCIAddress)
		switch {
		case at >= 0:
			if !isOurs {
				configured = append(configured, i.PCIAddress)
				if err := m.saveConfigured(configured); err != nil {
					return append(failed, err)
				}
			}
			failed = append(failed, m.applyPlan(plans[at], i, users)...)
		case isOurs:
			if err := m.release(i, users); err != nil {
				failed = append(failed, err)
				continue
			}
			configured = slices.DeleteFunc(configured, func(a string) bool { return a == i.PCIAddress })
			if err := m.saveConfigured(configured); err != nil {
				return append(failed, err)
			}
		}
	}
	return failed
}

func (m Machine) applyPlan(p Plan, i Interface, users Users) (failed []error) {
	if i.NumVfs != p.NumVfs {
		if err := users.checkUnused(i.describe(), i.VFs); err != nil {
			return []error{err}
		}
		if err := m.Sysfs.SetVirtualFunctions(p.Address, p.NumVfs); err != nil {
			return []error{fmt.Errorf("%s: give it %d virtual functions: %w; see the kernel's messages", i.describe(), p.NumVfs, err)}
		}
		all, err := m.Interfaces()
		if err != nil {
			return []error{err}
		}
		at := slices.IndexFunc(all, func(now Interface) bool { return now.PCIAddress == p.Address })
		if at < 0 {
			return []error{fmt.Errorf("%s is gone", i.describe())}
		}
		i = all[at]
	}

	if p.MTU > i.MTU && i.Name != "" {
		if err := m.Sysfs.SetMTU(p.Address, i.Name, p.MTU); err != nil {
			failed = append(failed, fmt.Errorf("%s: set its MTU to %d: %w", i.describe(), p.MTU, err))
		}
	}
	if i.Name != "" && p.NumVfs > 0 { // virtual functions of many devices have no carrier otherwise
		if err := m.Sysfs.EnsureUp(p.Address, i.Name); err != nil {
			failed = append(failed, fmt.Errorf("%s: take it up: %w", i.describe(), err))
		}
	}
	for _, vf := range i.VFs {
		if vf.ID >= len(p.VFs) || p.VFs[vf.ID].Resource == "" {
			continue
		}
		if err := m.applyVF(p, vf, i, users); err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// applyVF gives a virtual function its driver and its MTU.
func (m Machine) applyVF(p Plan, vf VirtualFunction, i Interface, users Users) error {
	isVFIO, wantsVFIO := vf.Driver == vfio, p.VFs[vf.ID].DeviceType == vfio
	switch {
	case isVFIO == wantsVFIO && vf.Driver != "":
		if p.MTU > 0 && vf.Name != "" && m.Sysfs.MTU(vf.PCIAddress, vf.Name) != p.MTU {
			if err := m.Sysfs.SetMTU(vf.PCIAddress, vf.Name, p.MTU); err != nil {
				return fmt.Errorf("%s: set the MTU of virtual function %d to %d: %w", i.describe(), vf.ID, p.MTU, err)
			}
		}
		return nil
	case vf.Driver != "":
		if err := users.checkUnused(i.describe(), []VirtualFunction{vf}); err != nil {
			return err
		}
	}

	driver := ""
	if wantsVFIO {
		driver = vfio
	}
	if err := m.Sysfs.SetDriver(vf.PCIAddress, driver); err != nil {
		return fmt.Errorf("%s: virtual function %d: %w", i.describe(), vf.ID, err)
	}
	if f, ok := m.Sysfs.VirtualFunction(vf.PCIAddress); ok && f.Driver == "" {
		return fmt.Errorf("%s: no driver takes virtual function %d (%s:%s); load its module on the node",
			i.describe(), vf.ID, vf.Vendor, vf.DeviceID)
	}
	return nil
}

// release takes away the virtual functions that no policy asks for any more.
func (m Machine) release(i Interface, users Users) error {
	if i.NumVfs == 0 {
		return nil
	}
	if err := users.checkUnused(i.describe(), i.VFs); err != nil {
		return err
	}
	if err := m.Sysfs.SetVirtualFunctions(i.PCIAddress, 0); err != nil {
		return fmt.Errorf("%s: take its virtual functions away: %w", i.describe(), err)
	}
	return nil
}

func (m Machine) readConfigured() (all []string, err error) {
	text, err := os.ReadFile(m.Configured)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read which devices were configured: %w", err)
	}
	return all, nil
}

func (m Machine) saveConfigured(all []string) error {
	slices.Sort(all)
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode which devices were configured: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(m.Configured), 0o700); err != nil {
		return fmt.Errorf("save which devices were configured: %w", err)
	}
	return atomicfile.Write(m.Configured, text, 0o600)
}
