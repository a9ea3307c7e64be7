package lab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// firmwareFiles are the images QEMU is given for UEFI. Vars is this machine's own copy.
type firmwareFiles struct{ Code, Vars string }

// qemuArgs returns QEMU's arguments for a machine whose disks were prepared: drives[i]
// is the file and format behind c.Disks[i]. Pure, so that it can be compared.
func qemuArgs(c Config, fw firmwareFiles, drives []drive) []string {
	machine := "q35"
	guarded := c.Firmware == SecureBoot || c.Firmware == SetupMode // their variables are written by the firmware alone
	if guarded {
		machine = "q35,smm=on"
	}

	args := append([]string{"-name", c.Name, "-machine", machine}, c.Accel.Args()...)
	args = append(args,
		"-smp", fmt.Sprint(c.CPUs),
		"-m", fmt.Sprint(c.MiB),
		"-display", "none",
		"-monitor", "none",
		"-no-user-config", "-nodefaults", "-vga", "std",
		"-qmp", "unix:"+filepath.Join(c.Dir, qmpSocket)+",server=on,wait=off",
		"-chardev", "stdio,id=console,signal=off",
		"-serial", "chardev:console",
		"-device", "virtio-rng-pci")
	if c.Firmware != BIOS {
		if guarded {
			args = append(args, "-global", "driver=cfi.pflash01,property=secure,value=on")
		}
		args = append(args,
			"-drive", "if=pflash,format=raw,readonly=on,file="+escapeCommas(fw.Code),
			"-drive", "if=pflash,format=raw,file="+escapeCommas(fw.Vars))
	}

	buses := map[Bus]string{}
	for i, d := range c.Disks {
		cache := "writeback"
		if d.Quick {
			cache = "unsafe"
		}

		args = append(args, "-drive", fmt.Sprintf("if=none,id=drive%d,format=%s,cache=%s,discard=unmap,file=%s",
			i, drives[i].format, cache, escapeCommas(drives[i].path)))
		args = append(args, diskDevices(d, i, buses)...)
	}

	if c.CD != nil {
		args = append(args, cdArgs(*c.CD)...)
	}

	for i, n := range c.NICs {
		args = append(args, nicArgs(n, i)...)
	}

	if len(c.NICs) == 0 {
		args = append(args, "-nic", "none")
	}

	if c.Kernel != "" {
		args = append(args, "-kernel", c.Kernel, "-initrd", c.Initrd, "-append", c.Append)
	}

	return append(args, c.Extra...)
}

// diskDevices adds the disk and, once, the controller it hangs on.
func diskDevices(d Disk, i int, buses map[Bus]string) []string {
	var args []string
	controller := func(device string) string {
		id, ok := buses[d.Bus]
		if !ok {
			id = string(d.Bus)
			buses[d.Bus] = id
			args = append(args, "-device", device+",id="+id)
		}
		return id
	}
	tail := fmt.Sprintf("drive=drive%d,serial=%s,bootindex=%d", i, d.Serial, d.BootIx)
	switch d.Bus {
	case NVMe:
		return append(args, "-device", "nvme,"+tail)
	case Virtio:
		return append(args, "-device", "virtio-blk-pci,"+tail)
	case AHCI:
		return append(args, "-device", "ide-hd,"+tail) // q35 has the controller
	case SCSI:
		bus := controller("virtio-scsi-pci")
		return append(args, "-device", "scsi-hd,bus="+bus+".0,"+tail)
	case EHCI:
		bus := controller("usb-ehci")
		return append(args, "-device", "usb-storage,bus="+bus+".0,removable=on,"+tail)
	default:
		bus := controller("qemu-xhci")
		return append(args, "-device", "usb-storage,bus="+bus+".0,removable=on,"+tail)
	}
}

// cdDrive is the drive for discs, as QMP names it.
const cdDrive = "cd"

func cdArgs(c CD) []string {
	backend := "if=none,id=disc,media=cdrom,readonly=on"
	if c.Image != "" {
		backend += ",format=raw,file=" + escapeCommas(c.Image)
	}

	device := "ide-cd,id=" + cdDrive + ",drive=disc" // q35 has the controller
	if c.BootIx > 0 {
		device += fmt.Sprintf(",bootindex=%d", c.BootIx)
	}

	return []string{"-drive", backend, "-device", device}
}

// nicID names a card, by its place in the list.
func nicID(i int) string { return fmt.Sprintf("net%d", i) }

func nicArgs(n NIC, i int) []string {
	id := nicID(i)
	device := fmt.Sprintf("%s,mac=%s", n.Model, n.MAC)
	var args []string
	switch {
	case n.User:
		args = append(args, "-netdev", "user,id="+id)
		device += ",netdev=" + id
	case n.Port != "":
		args = append(
			args, "-netdev",
			fmt.Sprintf("stream,id=%s,server=off,addr.type=unix,addr.path=%s", id, escapeCommas(n.Port)),
		)
		device += ",netdev=" + id
	}

	if n.NoROM {
		device += ",romfile="
	}

	if n.BootIx > 0 {
		device += fmt.Sprintf(",bootindex=%d", n.BootIx)
	}

	if n.Slot > 0 {
		device += fmt.Sprintf(",addr=0x%x", n.Slot)
	}

	return append(args, "-device", device)
}

// escapeCommas doubles commas: QEMU splits its option strings at single ones.
func escapeCommas(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// shellLine is the command as a person can paste it.
func shellLine(name string, args []string) string {
	var b strings.Builder
	b.WriteString(name)
	for _, a := range args {
		b.WriteByte(' ')
		if a == "" || strings.ContainsAny(a, " '\"$&|;<>()*?!\\`") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
	}

	return b.String()
}
