package flash

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/mountinfo"
)

// SysFS is where the kernel tells about devices: /sys and /proc. Sys must implement
// fs.ReadLinkFS for serial numbers of USB devices.
type SysFS struct {
	Sys, Proc fs.FS
}

const blockDir = "class/block"

// List returns the whole disks that an image may be written to or that a person would
// look for here: no loop, memory or optical devices, none without a medium.
func (w SysFS) List() ([]Device, error) {
	entries, err := fs.ReadDir(w.Sys, blockDir)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}

	var out []Device
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.HasPrefix(name, "zram") ||
			strings.HasPrefix(name, "sr") || strings.HasPrefix(name, "dm-") || strings.HasPrefix(name, "md") {
			continue
		}

		d, err := w.Device(name)
		if err != nil {
			return nil, err
		}

		if d.Parent == "" && d.Bytes > 0 {
			out = append(out, d)
		}
	}

	return out, nil
}

// Device reads what the kernel says about a block device; name is as in /sys/class/block.
func (w SysFS) Device(name string) (Device, error) {
	dir := path.Join(blockDir, name)
	if _, err := fs.Stat(w.Sys, dir); err != nil {
		return Device{}, fmt.Errorf("read device %s: it is no block device: %w", name, err)
	}

	sectors, err := strconv.ParseInt(w.readAttribute(dir, "size"), 10, 64)
	if err != nil {
		return Device{}, fmt.Errorf("read size of %s: %w", name, err)
	}

	d := Device{
		Name: name, Path: "/dev/" + strings.ReplaceAll(name, "!", "/"),
		Bytes:     sectors * 512, // sysfs counts 512-byte sectors whatever the device has
		Removable: w.readAttribute(dir, "removable") == "1",
		USB:       strings.Contains(w.realPath(dir), "/usb"),
		ReadOnly:  w.readAttribute(dir, "ro") == "1",
		Model: strings.TrimSpace(w.readAttribute(
			dir, "device/vendor",
		) + " " + w.readAttribute(dir, "device/model")),
		Serial: w.serial(dir),
		Sector: 512,
	}
	if strings.HasPrefix(w.readAttribute(dir, "device/vendor"), "0x") {
		d.Model = w.readAttribute(dir, "device/model") // virtio has a number there
	}

	if n, err := strconv.ParseInt(w.readAttribute(dir, "queue/logical_block_size"), 10, 64); err == nil {
		d.Sector = n
	}

	if w.readAttribute(dir, "partition") != "" {
		d.Parent = "/dev/" + w.parent(dir)
	}

	return d, w.findUses(&d)
}

func (w SysFS) readAttribute(dir, name string) string {
	b, err := fs.ReadFile(w.Sys, path.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(b), "\x00"))
}

// realPath is the directory of devices/ that a class entry links to.
func (w SysFS) realPath(dir string) string {
	to, err := fs.ReadLink(w.Sys, dir)
	if err != nil {
		return dir
	}
	return path.Join(path.Dir(dir), to)
}

// parent is the disk of a partition: the directory above it.
func (w SysFS) parent(dir string) string { return path.Base(path.Dir(w.realPath(dir))) }

// serial looks at the device and then, for USB, at what it hangs on.
func (w SysFS) serial(dir string) string {
	for _, name := range []string{"serial", "device/serial"} {
		if s := w.readAttribute(dir, name); s != "" {
			return s
		}
	}
	for up := w.realPath(dir); strings.Contains(up, "/usb"); up = path.Dir(up) {
		if s := w.readAttribute(up, "serial"); s != "" {
			return s
		}
	}
	return ""
}

// systemMounts are where the running system is, apart from the root.
var systemMounts = [...]string{"/", "/usr", "/boot", "/boot/efi", "/efi", "/var", "/run/firstlight", "/var/lib/firstlight"}

// findUses notes what is mounted, swapped to, or built on the device or its partitions, also
// through device mapper and RAID.
func (w SysFS) findUses(d *Device) error {
	parts, err := w.partitions(d.Name)
	if err != nil {
		return err
	}

	names := map[string]string{} // everything that lies on the device, and what of the device it lies on
	for _, part := range append([]string{d.Name}, parts...) {
		if err := w.followHolders(part, part, names); err != nil {
			return err
		}
	}

	numbers := map[string]string{}
	for name := range names {
		if dev := w.readAttribute(path.Join(blockDir, name), "dev"); dev != "" {
			numbers[dev] = name
		}
	}

	mounts, err := fs.ReadFile(w.Proc, "self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}

	for _, line := range strings.Split(string(mounts), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 7 {
			continue
		}

		name, ok := numbers[fields[2]]
		if !ok { // btrfs and others show numbers of their own: look at the source
			name, ok = w.mountSource(fields, names)
		}

		if !ok {
			continue
		}

		at := mountinfo.Unescape(fields[4])
		for _, system := range systemMounts {
			d.System = d.System || at == system || system != "/" && strings.HasPrefix(at, system+"/")
		}

		d.Uses = append(d.Uses, fmt.Sprintf("/dev/%s is mounted on %s", name, at))
	}

	swaps, err := fs.ReadFile(w.Proc, "swaps")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read swaps: %w", err)
	}

	for _, line := range strings.Split(string(swaps), "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			if name, ok := strings.CutPrefix(fields[0], "/dev/"); ok && names[name] != "" {
				d.Uses = append(d.Uses, fmt.Sprintf("/dev/%s is swap", name))
			}
		}
	}

	for name, below := range names {
		if name != below {
			d.Uses = append(d.Uses, fmt.Sprintf("/dev/%s is part of /dev/%s", below, name))
		}
	}

	slices.Sort(d.Uses)
	return nil
}

// mountSource finds the name in the mount's source field, which follows the " - " separator.
func (w SysFS) mountSource(fields []string, names map[string]string) (string, bool) {
	for i, f := range fields {
		if f == "-" && i+2 < len(fields) {
			name := filepath.Base(fields[i+2])
			return name, strings.HasPrefix(fields[i+2], "/dev/") && names[name] != ""
		}
	}
	return "", false
}

// partitions lists the partitions of a disk.
func (w SysFS) partitions(name string) ([]string, error) {
	entries, err := fs.ReadDir(w.Sys, path.Join(blockDir, name))
	if err != nil {
		return nil, fmt.Errorf("list partitions of %s: %w", name, err)
	}

	var out []string
	for _, e := range entries {
		if w.readAttribute(path.Join(blockDir, name, e.Name()), "partition") != "" {
			out = append(out, e.Name())
		}
	}

	return out, nil
}

// followHolders follows holders upwards.
func (w SysFS) followHolders(name, below string, names map[string]string) error {
	if names[name] != "" {
		return nil
	}

	names[name] = below
	holders, err := fs.ReadDir(w.Sys, path.Join(blockDir, name, "holders"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list holders of %s: %w", name, err)
	}

	for _, h := range holders {
		if err := w.followHolders(h.Name(), below, names); err != nil {
			return err
		}
	}

	return nil
}
