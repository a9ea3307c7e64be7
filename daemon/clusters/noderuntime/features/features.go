// Package features finds what a machine has, and names it as Node Feature Discovery does (NFD v0.18, "Feature labels"), so
// that whatever selects nodes by those labels finds them: cpu, kernel, memory, network, pci, storage, system, usb, and what
// files on the machine say (the local source).
//
// Names here are without the prefix. A value is "true" or what was read; what is not there has no label.
package features

import (
	"io/fs"
	"maps"
	"path"
	"strings"
)

// Prefix is before the names of labels that name no domain of their own.
const Prefix = "feature.node.kubernetes.io/"

// CPU is what the processor says of itself.
type CPU struct {
	Vendor        string // as the instruction cpuid names it: GenuineIntel
	Family, Model string
	Flags         []string // names of instructions, as in cpuid's list of NFD: AVX2
	Threads       bool     // a core runs more than one
}

// Machine is where features are read from.
type Machine struct {
	Root fs.FS // of the machine: /proc, /sys, /etc and /boot are below it
	CPU  CPU
}

// Labels returns the features by name. What cannot be read is not there.
func (m Machine) Labels() map[string]string {
	all := map[string]string{}
	for _, source := range []func() map[string]string{
		m.cpu, m.kernel, m.memory, m.network, m.pci, m.storage, m.system, m.usb,
	} {
		maps.Copy(all, source())
	}
	return all
}

// text reads a file as one line; "" if it is not there.
func (m Machine) text(name string) string {
	b, err := fs.ReadFile(m.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// names are the entries of a directory.
func (m Machine) names(dir string) (all []string) {
	entries, err := fs.ReadDir(m.Root, dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// matches are the values of one file in each directory below dir.
func (m Machine) matches(dir, file string) (all []string) {
	for _, name := range m.names(dir) {
		if text := m.text(path.Join(dir, name, file)); text != "" {
			all = append(all, text)
		}
	}
	return all
}
