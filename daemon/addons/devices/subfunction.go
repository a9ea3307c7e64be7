package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// auxName is DRIVER.TYPE.NUMBER, the name of a device of the auxiliary bus
// (Documentation/driver-api/auxiliary_bus.rst of the kernel).
var auxName = regexp.MustCompile(`^[^./]+\.([^./]+)\.[0-9]+$`)

func (s Sysfs) auxiliary(name string) string {
	return filepath.Join(string(s), "bus/auxiliary/devices", name)
}

// Subfunctions returns those of all devices, by name. A machine without the auxiliary bus has none.
func (s Sysfs) Subfunctions() ([]VirtualFunction, error) {
	entries, err := os.ReadDir(s.auxiliary(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read auxiliary devices: %w", err)
	}

	var all []VirtualFunction
	for _, e := range entries {
		if f, ok := s.Subfunction(e.Name()); ok {
			all = append(all, f)
		}
	}
	return all, nil
}

// Subfunction returns the one of a name; false if there is none. What else is on the auxiliary bus has no sfnum: the parts
// of drivers for InfiniBand, vDPA and the like.
func (s Sysfs) Subfunction(name string) (VirtualFunction, bool) {
	f := VirtualFunction{Address: name, NUMANode: -1}
	parts := auxName.FindStringSubmatch(name)
	if parts == nil {
		return f, false
	}
	f.AuxType = parts[1]
	dir := s.auxiliary(name)
	number, err := os.ReadFile(filepath.Join(dir, "sfnum"))
	if err != nil {
		return f, false
	}
	if f.Index, err = strconv.Atoi(strings.TrimSpace(string(number))); err != nil {
		return f, false
	}

	parent := parentOf(dir)
	f.Class = s.hexadecimal(parent, "class")
	f.Vendor = s.hexadecimal(parent, "vendor")
	f.Device = s.hexadecimal(parent, "device")
	f.Driver = s.link(parent, "driver")
	if f.PF = s.link(parent, "physfn"); f.PF == "" {
		f.PF = parent
	}
	f.PFNames, f.LinkType = s.names(f.PF)
	if n, err := strconv.Atoi(s.Text(parent, "numa_node")); err == nil {
		f.NUMANode = n
	}

	f.Interfaces = listNames(filepath.Join(dir, "net"))
	f.IsEnslaved = isEnslaved(dir, f.Interfaces)
	f.PKey, f.RDMA = s.rdma(dir)
	return f, true
}

// functions returns virtual functions and subfunctions.
func (s Sysfs) functions() ([]VirtualFunction, error) {
	virtual, err := s.VirtualFunctions()
	if err != nil {
		return nil, err
	}
	sub, err := s.Subfunctions()
	return append(virtual, sub...), err
}

// function returns the virtual function or subfunction of an address; false if there is none.
func (s Sysfs) function(address string) (VirtualFunction, bool) {
	if auxName.MatchString(address) {
		return s.Subfunction(address)
	}
	return s.VirtualFunction(address)
}
