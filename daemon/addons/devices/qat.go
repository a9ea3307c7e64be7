package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// QATPrefix is of the names of QAT's resources.
const QATPrefix = "qat.intel.com"

// qatDevices are Intel's QuickAssist devices, by the kernel's driver of their physical functions: identifiers of these
// and of their virtual ones (drivers/crypto/intel/qat of the kernel).
var qatDevices = map[string]struct{ physical, virtual []string }{
	"dh895xcc": {[]string{"0435"}, []string{"0443"}},
	"c6xx":     {[]string{"37c8"}, []string{"37c9"}},
	"c3xxx":    {[]string{"19e2"}, []string{"19e3"}},
	"4xxx":     {[]string{"4940", "4942", "4944"}, []string{"4941", "4943", "4945"}},
	"420xx":    {[]string{"4946"}, []string{"4947"}},
}

const intel = "8086"

// QATDrivers are the drivers of physical functions that are known, sorted.
func QATDrivers() []string { return slices.Sorted(maps.Keys(qatDevices)) }

// QAT offers QuickAssist devices as Intel's device plugin does.
type QAT struct {
	Sysfs   Sysfs
	Drivers []string // whose devices are offered; those of QATDrivers
}

// Resources makes virtual functions of devices that have none, gives them to vfio-pci, and returns a resource for each
// set of services that devices are configured for. A device that cannot be prepared is a fault, and offers what it has.
func (q QAT) Resources() (all []Resource, faults []error) {
	found, err := q.Sysfs.PhysicalFunctions()
	if err != nil {
		return nil, []error{err}
	}
	byName := map[string]*Resource{}
	for _, driver := range q.Drivers {
		known := qatDevices[driver]
		for _, pf := range found {
			if pf.Vendor != intel || !slices.Contains(known.physical, pf.Device) {
				continue
			}
			if err := q.prepare(pf, driver, known.virtual); err != nil {
				faults = append(faults, fmt.Errorf("QAT device %s: %w", pf.Address, err))
			}

			name := q.service(pf.Address)
			r := byName[name]
			if r == nil {
				r = &Resource{Prefix: QATPrefix, Name: name, Numbered: "QAT"}
				byName[name] = r
			}
			r.Selectors = append(r.Selectors, Selector{
				Vendors: []string{intel}, Devices: known.virtual, Drivers: []string{VFIODriver},
				RootDevices: []PFSelector{{Name: pf.Address}},
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, *byName[name])
	}
	return all, faults
}

// prepare gives a device all of its virtual functions if it has none, and these to vfio-pci. What another driver than the
// kernel's own for them drives is left alone.
func (q QAT) prepare(pf PhysicalFunction, driver string, virtual []string) error {
	if pf.Driver != driver {
		return fmt.Errorf("the kernel's driver %s does not drive it; see the kernel's messages about it and its firmware",
			driver)
	}
	if err := q.Sysfs.checkDriver(VFIODriver); err != nil {
		return err
	}
	if pf.Number == 0 {
		if err := q.Sysfs.SetVirtualFunctions(pf.Address, pf.Most); err != nil {
			return err
		}
	}

	functions, err := q.Sysfs.VirtualFunctions()
	if err != nil {
		return err
	}
	for _, f := range functions {
		if f.PF != pf.Address || !slices.Contains(virtual, f.Device) || f.Driver != "" && f.Driver != driver+"vf" {
			continue
		}
		if err := q.Sysfs.SetDriver(f.Address, VFIODriver); err != nil {
			return err
		}
	}
	return nil
}

// service is the name of a device's resource. Devices of the fourth generation are configured for services; others, and
// those that do not say, are generic.
func (q QAT) service(pf string) string {
	const generic = "generic"
	if q.Sysfs.Text(pf, "qat/state") != "up" {
		return generic
	}
	services := strings.Split(q.Sysfs.Text(pf, "qat/cfg_services"), ";")
	slices.Sort(services)
	switch strings.Join(services, ";") {
	case "asym;sym":
		return "cy"
	case "dc":
		return "dc"
	case "sym":
		return "sym"
	case "asym":
		return "asym"
	case "asym;dc":
		return "asym-dc"
	case "dc;sym":
		return "sym-dc"
	}
	return generic
}
