package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// VFIODriver gives a virtual function to a program or a virtual machine.
const VFIODriver = "vfio-pci"

// VirtualFunction is one, or a subfunction, as sysfs shows it. A subfunction has the class, vendor, device, driver and NUMA
// node of the PCI device that it shares.
type VirtualFunction struct {
	Address    string   // on the PCI bus, as 0000:3b:02.0; of a subfunction its name, as mlx5_core.sf.2
	AuxType    string   // of a subfunction, as sf; "" of a virtual function
	Class      string   // six hexadecimal digits
	Vendor     string   // four hexadecimal digits
	Device     string   // four hexadecimal digits
	Driver     string   // "" if nothing drives it
	Interfaces []string // in the node's own network namespace
	IsEnslaved bool     // one of Interfaces is a port of a bond or a bridge

	PF       string   // address of its physical function
	PFNames  []string // network interfaces of that
	LinkType string   // of these: ether or infiniband
	Index    int      // its number at that, from 0; of a subfunction the one that whoever made it chose

	NUMANode  int    // -1 if the machine does not say
	Group     string // its IOMMU group's file in /dev/vfio; "" without an IOMMU
	ACPIIndex string // the firmware's number of it; "" if that gives none

	PKey string // of its first InfiniBand port, at index 0, as 0x7fff; "" without InfiniBand
	RDMA RDMA   // zero without RDMA
	VDPA VDPA   // zero without a vDPA device
}

// linkTypes are those of interfaces (ARPHRD of include/uapi/linux/if_arp.h), by upstream's names.
var linkTypes = map[string]string{"1": "ether", "32": "infiniband"}

// Sysfs is where sysfs is mounted, such as /sys (Documentation/ABI/testing/sysfs-bus-pci of the kernel).
type Sysfs string

func (s Sysfs) device(address string, more ...string) string {
	return filepath.Join(append([]string{string(s), "bus/pci/devices", address}, more...)...)
}

// VirtualFunctions returns those of all devices, by address. A machine without PCI has none.
func (s Sysfs) VirtualFunctions() ([]VirtualFunction, error) {
	entries, err := os.ReadDir(s.device(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PCI devices: %w", err)
	}

	var all []VirtualFunction
	for _, e := range entries {
		if f, ok := s.VirtualFunction(e.Name()); ok {
			all = append(all, f)
		}
	}
	return all, nil
}

// VirtualFunction returns the one at an address; false if there is none.
func (s Sysfs) VirtualFunction(address string) (VirtualFunction, bool) {
	f := VirtualFunction{Address: address, PF: s.link(address, "physfn"), NUMANode: -1}
	if f.PF == "" {
		return f, false
	}

	f.Class = s.hexadecimal(address, "class")
	f.Vendor = s.hexadecimal(address, "vendor")
	f.Device = s.hexadecimal(address, "device")
	f.Driver = s.link(address, "driver")
	f.Interfaces = s.Interfaces(address)
	f.IsEnslaved = isEnslaved(s.device(address), f.Interfaces)
	f.PFNames, f.LinkType = s.names(f.PF)
	index, ok := s.index(f.PF, address)
	if !ok {
		return f, false // it goes at this moment
	}
	f.Index = index

	if n, err := strconv.Atoi(s.Text(address, "numa_node")); err == nil {
		f.NUMANode = n
	}
	f.ACPIIndex = s.Text(address, "acpi_index")
	f.PKey, f.RDMA = s.rdma(s.device(address))
	f.VDPA = s.vdpa(address)
	f.Group = s.link(address, "iommu_group")
	if f.Group != "" && s.Text(address, "iommu_group/name") == "vfio-noiommu" {
		f.Group = "noiommu-" + f.Group
	}
	return f, true
}

// isEnslaved reports whether one of a device's interfaces is a port of a bond or a bridge.
func isEnslaved(dir string, interfaces []string) bool {
	return slices.ContainsFunc(interfaces, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, "net", name, "master"))
		return err == nil
	})
}

// names returns a physical function's network interfaces and what kind of link these are.
func (s Sysfs) names(pf string) (all []string, linkType string) {
	all = s.Interfaces(pf)
	for _, name := range all {
		linkType = linkTypes[s.Text(pf, filepath.Join("net", name, "type"))]
	}
	return all, linkType
}

// PhysicalFunction is a device that can have virtual functions.
type PhysicalFunction struct {
	Address    string   // on the PCI bus
	Class      string   // six hexadecimal digits
	Vendor     string   // four hexadecimal digits
	Device     string   // four hexadecimal digits
	Driver     string   // "" if nothing drives it
	Interfaces []string // in the node's own network namespace
	Most       int      // virtual functions that it can have
	Number     int      // virtual functions that it has
}

// PhysicalFunctions returns those that can have virtual ones, by address. A machine without PCI has none.
func (s Sysfs) PhysicalFunctions() ([]PhysicalFunction, error) {
	entries, err := os.ReadDir(s.device(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read PCI devices: %w", err)
	}

	var all []PhysicalFunction
	for _, e := range entries {
		address := e.Name()
		most, err := strconv.Atoi(s.Text(address, "sriov_totalvfs"))
		if err != nil || most == 0 {
			continue
		}
		number, _ := strconv.Atoi(s.Text(address, "sriov_numvfs")) // it is there with the other one
		all = append(all, PhysicalFunction{
			Address: address, Class: s.hexadecimal(address, "class"), Vendor: s.hexadecimal(address, "vendor"),
			Device: s.hexadecimal(address, "device"), Driver: s.link(address, "driver"), Interfaces: s.Interfaces(address),
			Most: most, Number: number,
		})
	}
	return all, nil
}

// index is the number of a virtual function at its physical one, which has a link virtfnN to each.
func (s Sysfs) index(pf, address string) (int, bool) {
	links, _ := filepath.Glob(s.device(pf, "virtfn*")) // the pattern is sound
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil || filepath.Base(to) != address {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(l), "virtfn"))
		return n, err == nil
	}
	return 0, false
}

// Interfaces are the names of a device's network interfaces, sorted. One that is in another network namespace than that
// of whoever mounted sysfs is not among them.
func (s Sysfs) Interfaces(address string) []string { return listNames(s.device(address, "net")) }

// listNames are those of what is in a folder, sorted; none if there is no such folder.
func listNames(dir string) (all []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Text is what a file of a device says, without white space around it; "" if there is none.
func (s Sysfs) Text(address, name string) string {
	text, err := os.ReadFile(s.device(address, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (s Sysfs) hexadecimal(address, name string) string {
	return strings.ToLower(strings.TrimPrefix(s.Text(address, name), "0x"))
}

// link is the last element of where a device's link points to; "" if there is none.
func (s Sysfs) link(address, name string) string {
	to, err := os.Readlink(s.device(address, name))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}
