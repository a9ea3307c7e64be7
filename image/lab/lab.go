// Package lab starts machines in QEMU, reads their consoles, acts on them over QMP, cuts
// their power and keeps their disks. `firstlight boot` and every test that boots the
// image stand on it; the virtual rack is built from its machines.
//
// Package accelerator decides whether guests run under KVM or are emulated.
package lab

import (
	"fmt"
	"net"
	"slices"
	"time"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

// Firmware is what starts the boot loader.
type Firmware string

const (
	BIOS       Firmware = "bios"        // SeaBIOS
	UEFI       Firmware = "uefi"        // OVMF, Secure Boot absent
	SecureBoot Firmware = "secure-boot" // OVMF with Microsoft's and Debian's keys enrolled and enforced
	SetupMode  Firmware = "setup-mode"  // OVMF without keys: whoever writes some has Secure Boot enforced
)

// Bus is what a disk is plugged into.
type Bus string

const (
	USB    Bus = "usb"  // a stick on xHCI, removable
	EHCI   Bus = "ehci" // a stick on USB 2
	NVMe   Bus = "nvme"
	Virtio Bus = "virtio"
	AHCI   Bus = "ahci"
	SCSI   Bus = "scsi" // a drive that unmaps blocks, on virtio-scsi
)

// Disk is one drive. Its Image is never written unless Direct is set: the machine writes
// to an overlay in its directory, which stays between starts, as a real disk would.
type Disk struct {
	Image  string // raw file; "" for an empty drive of Bytes
	Bus    Bus    // "" means USB
	Bytes  int64  // size the guest sees; 0: as large as Image
	Direct bool   // write to Image itself
	Serial string // shown to the guest; "" gives "disk0", "disk1", …
	BootIx int    // boot order, with that of the NICs; 0: its place in the list, from 1
	// Quick leaves the guest's flushes to this machine's memory. What the guest has written
	// outlives its QEMU all the same, but not a power cut of this machine.
	Quick bool
}

// CD is a drive for discs. Machine.Insert changes the disc.
type CD struct {
	Image  string // file of the disc, which is only read; "": the drive is empty
	BootIx int    // boot order; 0: not booted from
}

// NIC is one network card. With neither Port nor User it has no cable.
type NIC struct {
	MAC    net.HardwareAddr // nil: 52:54:00:00:00:01 counted up
	Model  string           // QEMU device; "" means virtio-net-pci
	Port   string           // unix socket of the virtual switch, see package wire
	User   bool             // QEMU's own NAT with its DHCP server
	NoROM  bool             // leave out QEMU's iPXE: the firmware's own PXE speaks
	BootIx int              // boot order; 0: not booted from
	Slot   int              // of the root bus, by which its PCI address is known; 0: QEMU's choice
}

// PCIAddress is what a card in a slot of the root bus has.
func PCIAddress(slot int) string { return fmt.Sprintf("0000:00:%02x.0", slot) }

// Config describes a machine. The zero value of every field but Dir is usable.
type Config struct {
	Name     string           // "" means "machine"
	Dir      string           // for overlays, firmware variables, sockets and the console log; made if absent
	Firmware Firmware         // "" means BIOS
	Accel    accelerator.Kind // "" means TCG, which runs everywhere
	CPUs     int              // 0 means 2
	MiB      int              // memory; 0 means 2048
	Disks    []Disk           // booted in this order
	CD       *CD              // nil: it has no drive for discs
	NICs     []NIC
	Kernel   string   // boot this kernel instead of the disks
	Initrd   string   // with Kernel
	Append   string   // with Kernel
	Extra    []string // further QEMU arguments, at the end
	Nice     int      // niceness of QEMU, above this process's; 0 to 19, see nice(1)
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, fmt.Errorf("start machine %s: no directory for its files", c.Name)
	}

	if c.Name == "" {
		c.Name = "machine"
	}

	if c.Firmware == "" {
		c.Firmware = BIOS
	}

	if c.CPUs == 0 {
		c.CPUs = 2
	}

	if c.MiB == 0 {
		c.MiB = 2048
	}

	disks := make([]Disk, len(c.Disks))
	for i, d := range c.Disks {
		if d.Bus == "" {
			d.Bus = USB
		}

		if d.Serial == "" {
			d.Serial = fmt.Sprintf("disk%d", i)
		}

		if d.BootIx == 0 {
			d.BootIx = i + 1
		}

		disks[i] = d
	}

	c.Disks = disks
	nics := make([]NIC, len(c.NICs))
	for i, n := range c.NICs {
		if n.Model == "" {
			n.Model = "virtio-net-pci"
		}
		if n.MAC == nil {
			n.MAC = net.HardwareAddr{0x52, 0x54, 0, 0, 0, byte(i + 1)}
		}
		nics[i] = n
	}

	c.NICs = nics
	return c, nil
}

// BootDevice is what a machine boots from first, named as by ipmitool's "chassis bootdev".
type BootDevice string

const (
	BootDisks   BootDevice = "disk"
	BootNetwork BootDevice = "pxe"
	BootCD      BootDevice = "cdrom"
)

// BootFrom orders the devices of a machine with one NIC to boot from as its BMC wants them: one kind first, then the
// others in their usual order of disks, network and disc, which is the order for any other device. Blank disks lead to
// the network either way.
func (c *Config) BootFrom(first BootDevice) {
	kinds := []BootDevice{BootDisks, BootNetwork, BootCD}
	if i := slices.Index(kinds, first); i > 0 {
		kinds = slices.Insert(slices.Delete(kinds, i, i+1), 0, first)
	}

	disks, nics := slices.Clone(c.Disks), slices.Clone(c.NICs)
	next := 1
	for _, kind := range kinds {
		switch kind {
		case BootDisks:
			for i := range disks {
				disks[i].BootIx = next
				next++
			}
		case BootNetwork:
			nics[0].BootIx = next
			next++
		case BootCD:
			if c.CD != nil {
				c.CD = &CD{Image: c.CD.Image, BootIx: next}
				next++
			}
		}
	}

	c.Disks, c.NICs = disks, nics
}

// BootDeadline is how long a test may wait for one boot: it only ends hung runs. Under
// TCG on two busy cores a boot takes several times what it takes alone.
const BootDeadline = 30 * time.Minute
