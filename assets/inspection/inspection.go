// Package inspection is what the deploy ramdisk reports of a server's disks and PCI devices, and the mark by which an
// installed disk says whose it is. The ramdisk's side is firstlight.py and firstlight_devices.py in overlays/ramdisk.
package inspection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Keys of a report under which Ironic keeps what the ramdisk's collector found.
const (
	Key    = "firstlight_contents"
	oldKey = "firstlight_disks" // of ramdisks that knew neither marks nor fingerprints: kinds alone
)

// SiteKey is the entry of an instance's metadata that names the site which installed it. The config drive carries
// the metadata: it is a partition of its own at the end of the disk, written with the image, and nothing that the
// installed system does to its root file system touches it.
const SiteKey = "firstlight-site"

// Disk is what one disk holds, its partitions included.
type Disk struct {
	// Kinds are partition tables, file systems and volume managers, by libblkid's names; none on a blank disk.
	Kinds []string `json:"kinds"`
	// Unreadable is why the disk could not be read; "": it was.
	Unreadable string `json:"unreadable,omitempty"`
	// Fingerprint stands for all that was seen on the disk, and for nothing else: data- and 12 hexadecimal digits,
	// so that no YAML takes it for a number. "" on a blank disk, on one that could not be read, and from a ramdisk
	// that made none.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Mark is who installed the system on the disk; nil: nobody says so.
	Mark *Mark `json:"mark,omitempty"`
}

// IsBlank reports whether the disk was read and holds nothing.
func (d Disk) IsBlank() bool { return len(d.Kinds) == 0 && d.Unreadable == "" && d.Mark == nil }

// Mark says that a disk was installed by an appliance of this kind.
type Mark struct {
	Site string `json:"site"` // "": an appliance that did not write its site's name yet
	Node string `json:"node"` // name of the host
	ID   string `json:"id"`   // of the installation: UID of the host that it was made for
	Time string `json:"time"` // when its config drive was made, 2006-01-02 15:04 by the appliance's clock; "": not known
}

// Report is what one inspection found out.
type Report struct {
	Disks   map[string]Disk // by device name; nil: nothing was reported of them
	Devices []Device        // nil: the same
	Booted  Boot            // how the ramdisk was started
}

// Boot is how firmware started the ramdisk, in the agent's words.
type Boot string

// BIOS and UEFI are what an agent says; "" if it said nothing.
const (
	BIOS Boot = "bios"
	UEFI Boot = "uefi"
)

// ReadReport reads both parts of a report. plugins is what Ironic keeps beside the inventory (its plugin_data).
func ReadReport(plugins map[string]json.RawMessage) (r Report, err error) {
	if r.Disks, err = Read(plugins); err != nil {
		return Report{}, err
	}
	if r.Devices, err = ReadDevices(plugins); err != nil {
		return Report{}, err
	}
	return r, nil
}

// Read returns the disks of a report by device name. plugins is what Ironic keeps beside the inventory (its
// plugin_data). Nil if the ramdisk reported nothing of the kind.
func Read(plugins map[string]json.RawMessage) (map[string]Disk, error) {
	var disks map[string]Disk
	if text := plugins[Key]; len(text) > 0 {
		if err := json.Unmarshal(text, &disks); err != nil {
			return nil, fmt.Errorf("read %s: %w", Key, err)
		}
		return disks, nil
	}

	var kinds map[string][]string
	if text := plugins[oldKey]; len(text) > 0 {
		if err := json.Unmarshal(text, &kinds); err != nil {
			return nil, fmt.Errorf("read %s: %w", oldKey, err)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if disks == nil {
			disks = map[string]Disk{}
		}
		disks[name] = Disk{Kinds: kinds[name]}
	}

	return disks, nil
}
