package features

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Raw are features as rules look at them, by DOMAIN.FEATURE: each a set of names, of names with values, or of instances
// that have such each (NFD, "Available features").
type Raw struct {
	Flags      map[string]map[string]bool
	Attributes map[string]map[string]string
	Instances  map[string][]map[string]string
}

func (r Raw) clone() Raw {
	c := Raw{maps.Clone(r.Flags), map[string]map[string]string{}, maps.Clone(r.Instances)}
	for name, values := range r.Attributes {
		c.Attributes[name] = maps.Clone(values)
	}
	return c
}

// elements are the names of a feature with their values, which flags do not have.
func (r Raw) elements(feature string) (all map[string]string, isThere bool) {
	flags, hasFlags := r.Flags[feature]
	values, hasValues := r.Attributes[feature]
	all = maps.Clone(values)
	if all == nil {
		all = map[string]string{}
	}
	for name := range flags {
		all[name] = ""
	}
	return all, hasFlags || hasValues
}

// NodeNameLabel is on a NodeFeature and names its node.
const NodeNameLabel = "nfd.node.kubernetes.io/node-name"

// NodeFeature is what other programs say of a node (nfd.k8s-sigs.io/v1alpha1).
type NodeFeature struct {
	Spec struct {
		Labels   map[string]string `json:"labels"`
		Features struct {
			Flags map[string]struct {
				Elements map[string]struct{} `json:"elements"`
			} `json:"flags"`
			Attributes map[string]struct {
				Elements map[string]string `json:"elements"`
			} `json:"attributes"`
			Instances map[string]struct {
				Elements []struct {
					Attributes map[string]string `json:"attributes"`
				} `json:"elements"`
			} `json:"instances"`
		} `json:"features"`
	} `json:"spec"`
}

// Add adds what another program says.
func (r Raw) Add(n NodeFeature) {
	for name, set := range n.Spec.Features.Flags {
		if r.Flags[name] == nil {
			r.Flags[name] = map[string]bool{}
		}
		for element := range set.Elements {
			r.Flags[name][element] = true
		}
	}
	for name, set := range n.Spec.Features.Attributes {
		if r.Attributes[name] == nil {
			r.Attributes[name] = map[string]string{}
		}
		maps.Copy(r.Attributes[name], set.Elements)
	}
	for name, set := range n.Spec.Features.Instances {
		for _, one := range set.Elements {
			r.Instances[name] = append(r.Instances[name], one.Attributes)
		}
	}
}

// Raw returns the features of a machine that has some name as a Node, and those of files on it.
func (m Machine) Raw(node string, local map[string]string) Raw {
	return Raw{
		Flags: map[string]map[string]bool{
			"cpu.cpuid":           set(m.CPU.Flags),
			"kernel.loadedmodule": set(m.modules()),
		},
		Attributes: map[string]map[string]string{
			"cpu.model":        trim(map[string]string{"vendor_id": m.CPU.Vendor, "family": m.CPU.Family, "id": m.CPU.Model}),
			"cpu.topology":     {"hardware_multithreading": strconv.FormatBool(m.CPU.Threads)},
			"kernel.config":    m.kernelConfig(),
			"kernel.version":   trim(part(m.kernel(), "kernel-version.")),
			"kernel.selinux":   {"enabled": strconv.FormatBool(m.text("sys/fs/selinux/enforce") == "1")},
			"memory.numa":      m.numa(),
			"memory.swap":      {"enabled": strconv.FormatBool(m.memory()["memory-swap"] != "")},
			"system.name":      {"nodename": node},
			"system.osrelease": m.osRelease(),
			"local.label":      local,
			"local.feature":    local,
		},
		Instances: map[string][]map[string]string{
			"pci.device": m.instances("sys/bus/pci/devices", "", "class", "vendor", "device", "subsystem_vendor",
				"subsystem_device", "sriov_totalvfs"),
			"usb.device": m.instances("sys/bus/usb/devices", "", "class=bDeviceClass", "vendor=idVendor", "device=idProduct", "serial"),
			"network.device": m.instances("sys/class/net", "name", "operstate", "speed", "mtu", "sriov_numvfs=device/sriov_numvfs",
				"sriov_totalvfs=device/sriov_totalvfs"),
			"storage.block": m.instances("sys/block", "name", "rotational=queue/rotational", "dax=queue/dax",
				"zoned=queue/zoned", "nr_zones=queue/nr_zones"),
		},
	}
}

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// trim leaves out what could not be read.
func trim(values map[string]string) map[string]string {
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	return values
}

// part are the labels that begin with something, without it.
func part(labels map[string]string, prefix string) map[string]string {
	all := map[string]string{}
	for name, value := range labels {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			all[rest] = value
		}
	}
	return all
}

// modules are the kernel's that are loaded.
func (m Machine) modules() (all []string) {
	for line := range strings.Lines(m.text("proc/modules")) {
		name, _, _ := strings.Cut(line, " ")
		all = append(all, name)
	}
	return all
}

// kernelConfig are the options that are set, without CONFIG_, and texts without their quotes.
func (m Machine) kernelConfig() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(m.text("boot/config-" + m.text("proc/sys/kernel/osrelease"))) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if name, isOption := strings.CutPrefix(name, "CONFIG_"); ok && isOption {
			all[name] = strings.Trim(value, `"`)
		}
	}
	return all
}

func (m Machine) numa() map[string]string {
	nodes := m.numaNodes()
	return map[string]string{"is_numa": strconv.FormatBool(nodes > 1), "node_count": strconv.Itoa(nodes)}
}

// osRelease is all of os-release(5), and the parts of VERSION_ID.
func (m Machine) osRelease() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(m.text("etc/os-release")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && !strings.HasPrefix(name, "#") {
			all[name] = strings.Trim(value, `"'`)
		}
	}
	if id := all["VERSION_ID"]; id != "" {
		all["VERSION_ID.major"], all["VERSION_ID.minor"], _ = strings.Cut(id, ".")
	}
	return trim(all)
}

// instances has one for each directory below dir, with what its files say: NAME, or NAME=FILE. Those of which nothing can
// be read are left out. title is the attribute of the directory's own name; "": none.
func (m Machine) instances(dir, title string, files ...string) (all []map[string]string) {
	for _, name := range slices.Sorted(slices.Values(m.names(dir))) {
		one := map[string]string{}
		for _, f := range files {
			attribute, file, renamed := strings.Cut(f, "=")
			if !renamed {
				file = attribute
			}
			if text := m.text(path.Join(dir, name, file)); text != "" {
				one[attribute] = strings.TrimPrefix(text, "0x")
			}
		}
		if class := one["class"]; len(class) > 4 {
			one["class"] = class[:4]
		}
		if len(one) == 0 {
			continue
		}
		if title != "" {
			one[title] = name
		}
		all = append(all, one)
	}
	return all
}
