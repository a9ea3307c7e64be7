package features

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unlisted are instructions that every processor has, or that say nothing (NFD's default attributeBlacklist).
var unlisted = []string{
	"AVX10", "BMI1", "BMI2", "CLMUL", "CMOV", "CX16", "ERMS", "F16C", "HTT", "LZCNT", "MMX", "MMXEXT", "NX", "POPCNT",
	"RDRAND", "RDSEED", "RDTSCP", "SGX", "SGXLC", "SSE", "SSE2", "SSE3", "SSE4", "SSE42", "SSSE3", "TDX_GUEST",
}

func (m Machine) cpu() map[string]string {
	all := map[string]string{}
	for _, f := range m.CPU.Flags {
		if !slices.Contains(unlisted, f) {
			all["cpu-cpuid."+f] = "true"
		}
	}
	for name, value := range map[string]string{
		"cpu-model.vendor_id": m.CPU.Vendor,
		"cpu-model.family":    m.CPU.Family,
		"cpu-model.id":        m.CPU.Model,
	} {
		if value != "" {
			all[name] = value
		}
	}
	if m.CPU.Threads {
		all["cpu-hardware_multithreading"] = "true"
	}
	return all
}

// options are those of the kernel's configuration that become labels (NFD's default configOpts).
var options = []string{"NO_HZ", "NO_HZ_IDLE", "NO_HZ_FULL", "PREEMPT"}

// release is a kernel's version: the first three numbers.
var release = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?`)

func (m Machine) kernel() map[string]string {
	all := map[string]string{}
	full := m.text("proc/sys/kernel/osrelease")
	if numbers := release.FindStringSubmatch(full); numbers != nil {
		all["kernel-version.full"] = full
		for i, name := range []string{"major", "minor", "revision"} {
			if n := numbers[i+1]; n != "" {
				all["kernel-version."+name] = n
			}
		}
	}

	config := m.kernelConfig()
	for _, name := range options {
		if config[name] == "y" {
			all["kernel-config."+name] = "true"
		}
	}
	if m.text("sys/fs/selinux/enforce") == "1" {
		all["kernel-selinux.enabled"] = "true"
	}

	return all
}

// numaNode is the directory of a node of NUMA.
var numaNode = regexp.MustCompile(`^node\d+$`)

// numaNodes is how many nodes of NUMA there are.
func (m Machine) numaNodes() (n int) {
	for _, name := range m.names("sys/devices/system/node") {
		if numaNode.MatchString(name) {
			n++
		}
	}
	return n
}

func (m Machine) memory() map[string]string {
	all := map[string]string{}
	if m.numaNodes() > 1 {
		all["memory-numa"] = "true"
	}

	if len(m.names("sys/bus/nd/devices")) > 0 {
		all["memory-nv.present"] = "true"
	}
	if slices.Contains(m.matches("sys/bus/nd/devices", "devtype"), "nd_dax") {
		all["memory-nv.dax"] = "true"
	}
	if strings.Count(m.text("proc/swaps"), "\n") > 0 { // below a heading
		all["memory-swap"] = "true"
	}

	return all
}

// positive reports whether one of numbers is above zero.
func positive(numbers []string) bool {
	return slices.ContainsFunc(numbers, func(text string) bool {
		n, err := strconv.Atoi(text)
		return err == nil && n > 0
	})
}

func (m Machine) network() map[string]string {
	all := map[string]string{}
	if positive(m.matches("sys/class/net", "device/sriov_totalvfs")) {
		all["network-sriov.capable"] = "true"
	}
	if positive(m.matches("sys/class/net", "device/sriov_numvfs")) {
		all["network-sriov.configured"] = "true"
	}
	return all
}

// classes are the beginnings of the classes of PCI devices that become labels (NFD's default deviceClassWhitelist):
// displays, co-processors and accelerators.
var classes = []string{"03", "0b40", "12"}

func (m Machine) pci() map[string]string {
	all := map[string]string{}
	const dir = "sys/bus/pci/devices"
	for _, name := range m.names(dir) {
		class := strings.TrimPrefix(m.text(path.Join(dir, name, "class")), "0x")
		vendor := strings.TrimPrefix(m.text(path.Join(dir, name, "vendor")), "0x")
		fits := func(c string) bool { return strings.HasPrefix(class, c) }
		if len(class) < 4 || vendor == "" || !slices.ContainsFunc(classes, fits) {
			continue
		}

		id := "pci-" + class[:4] + "_" + vendor
		all[id+".present"] = "true"
		if positive([]string{m.text(path.Join(dir, name, "sriov_totalvfs"))}) {
			all[id+".sriov.capable"] = "true"
		}
	}
	return all
}

func (m Machine) storage() map[string]string {
	if slices.Contains(m.matches("sys/block", "queue/rotational"), "0") {
		return map[string]string{"storage-nonrotationaldisk": "true"}
	}
	return nil
}

func (m Machine) system() map[string]string {
	all := map[string]string{}
	release := m.osRelease()
	for _, name := range []string{"ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor"} {
		if value := release[name]; value != "" {
			all["system-os_release."+name] = value
		}
	}
	return all
}

// usbClasses are the classes of USB devices that become labels (NFD's default deviceClassWhitelist): video,
// miscellaneous, of an application, of a vendor.
var usbClasses = []string{"0e", "ef", "fe", "ff"}

func (m Machine) usb() map[string]string {
	all := map[string]string{}
	const dir = "sys/bus/usb/devices"
	for _, name := range m.names(dir) {
		device := path.Join(dir, name)
		class, vendor, product := m.text(path.Join(device, "bDeviceClass")), m.text(path.Join(device, "idVendor")), m.text(path.Join(device, "idProduct"))
		if slices.Contains(usbClasses, class) && vendor != "" && product != "" {
			all["usb-"+class+"_"+vendor+"_"+product+".present"] = "true"
		}
	}
	return all
}
