package launcher

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// Accelerator is what runs the guest's instructions.
type Accelerator string

// Accelerators. TCG translates them, which any processor can; a guest is then some ten times slower.
const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "tcg"
)

// TranslationCache is what TCG may use for translated code, in MiB. QEMU's own default is 1 GiB.
const TranslationCache = 128

// Format is how a file holds a disk, by QEMU's names.
type Format string

// Formats of disks.
const (
	Raw   Format = "raw"
	QCOW2 Format = "qcow2"
)

// File is a disk as it was prepared.
type File struct {
	Path   string
	Format Format
}

// Addresses of a guest and what it sees next to it, as KubeVirt's masquerade has them (vmNetworkCIDR 10.0.2.0/24).
const (
	guestNetwork = "10.0.2.0/24"
	guestGateway = "10.0.2.1"
	guestAddress = "10.0.2.2"
	guestDNS     = "10.0.2.3"
)

// Names of QEMU, of OVMF and of the sockets in RunDir.
const (
	program       = "/usr/bin/qemu-system-x86_64"
	firmwareCode  = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	firmwareVars  = "/usr/share/OVMF/OVMF_VARS_4M.fd"
	varsFile      = "vars.fd"
	serialSocket  = "serial.sock"  // QEMU connects to it
	monitorSocket = "monitor.sock" // likewise, QMP
	consoleSocket = "console.sock" // people connect to it
)

// Arguments are QEMU's command line for a machine whose volumes are the files, by name. search are the domains that
// names without a dot are looked up in.
func Arguments(m Machine, files map[string]File, with Accelerator, search []string) []string {
	domain := m.Spec.Domain
	args := []string{
		"-name", "guest=" + m.Name + ",process=qemu",
		"-nodefaults", "-no-user-config", "-display", "none", "-vga", "std",
		"-machine", "q35",
	}
	args = append(args, processor(domain, with)...)
	args = append(args, "-m", strconv.FormatInt(GuestMemory(domain)>>20, 10), "-rtc", "base=utc", "-boot", "strict=on")
	if IsEFI(domain) {
		args = append(args,
			"-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+firmwareCode,
			"-drive", "if=pflash,unit=1,format=raw,file="+filepath.Join(RunDir, varsFile))
	}

	args = append(args,
		"-chardev", "socket,id=serial,path="+filepath.Join(RunDir, serialSocket), "-serial", "chardev:serial",
		"-chardev", "socket,id=monitor,path="+filepath.Join(RunDir, monitorSocket), "-mon", "chardev=monitor,mode=control")
	args = append(args, disks(m.Spec, files)...)
	for n, i := range domain.Devices.Interfaces {
		args = append(args, network(m, n, i, search)...)
	}
	if domain.Devices.RNG != nil {
		args = append(args, "-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random")
	}

	// What libvirt denies QEMU as well: other programs, other users, other priorities.
	return append(args, "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")
}

func processor(domain v1.Domain, with Accelerator) []string {
	cores := strconv.Itoa(Cores(domain))
	if with == KVM {
		return []string{"-accel", "kvm", "-cpu", "host", "-smp", cores}
	}
	return []string{"-accel", fmt.Sprintf("tcg,tb-size=%d", TranslationCache), "-cpu", "max", "-smp", cores}
}

// Cores are the guest's.
func Cores(domain v1.Domain) int {
	if domain.CPU == nil || domain.CPU.Cores == 0 {
		return 1
	}
	return int(domain.CPU.Cores)
}

// GuestMemory is what the guest sees, in bytes; 0 if nothing says it. As upstream: memory.guest, else the pod's request,
// else its limit.
func GuestMemory(domain v1.Domain) int64 {
	if domain.Memory != nil && domain.Memory.Guest != nil {
		return domain.Memory.Guest.Value()
	}
	for _, list := range []corev1.ResourceList{domain.Resources.Requests, domain.Resources.Limits} {
		if q, ok := list[corev1.ResourceMemory]; ok {
			return q.Value()
		}
	}
	return 0
}

// IsEFI reports whether OVMF boots the guest.
func IsEFI(domain v1.Domain) bool {
	return domain.Firmware != nil && domain.Firmware.Bootloader != nil && domain.Firmware.Bootloader.EFI != nil
}

func disks(spec v1.InstanceSpec, files map[string]File) (args []string) {
	all := spec.Domain.Devices.Disks
	ordered := slices.ContainsFunc(all, func(d v1.Disk) bool { return d.BootOrder != nil })
	ports := 0 // of SATA that are taken
	for n, d := range all {
		file := files[d.Name]
		node := "disk" + strconv.Itoa(n)
		isReadOnly := d.CDROM != nil || d.Disk != nil && d.Disk.ReadOnly || isReadOnlyClaim(spec, d.Name)
		args = append(args, "-blockdev", blockNode(node, file, isReadOnly))

		device := "virtio-blk-pci,drive=" + node
		switch {
		case d.CDROM != nil:
			device = fmt.Sprintf("ide-cd,drive=%s,bus=ide.%d", node, ports)
			ports++
		case Bus(d) == v1.BusSATA:
			device = fmt.Sprintf("ide-hd,drive=%s,bus=ide.%d", node, ports)
			ports++
		}
		device += ",id=" + node + "-device"
		switch {
		case d.BootOrder != nil:
			device += fmt.Sprintf(",bootindex=%d", *d.BootOrder)
		case !ordered && n == 0:
			device += ",bootindex=1"
		}
		if d.Serial != "" {
			device += ",serial=" + escape(d.Serial)
		}
		args = append(args, "-device", device)
	}
	return args
}

// SATAPorts is how many disks a machine can have at SATA: q35 has one controller.
const SATAPorts = 6

// Bus is a disk's, with upstream's default.
func Bus(d v1.Disk) string {
	if d.Disk != nil && d.Disk.Bus != "" {
		return d.Disk.Bus
	}
	return v1.BusSATA
}

func isReadOnlyClaim(spec v1.InstanceSpec, volume string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool {
		return v.Name == volume && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	})
}

// blockNode is one of QEMU's block nodes, as JSON. Whatever a qcow2 file says of another file behind it is passed over.
func blockNode(name string, file File, isReadOnly bool) string {
	type driver struct {
		Driver   string `json:"driver"`
		Filename string `json:"filename"`
	}
	node := struct {
		Driver   Format `json:"driver"`
		Name     string `json:"node-name"`
		ReadOnly bool   `json:"read-only"`
		Discard  string `json:"discard"`
		File     driver `json:"file"`
	}{file.Format, name, isReadOnly, "unmap", driver{"file", file.Path}}

	text, _ := json.Marshal(node) // of strings alone
	if file.Format == QCOW2 {
		text = append(text[:len(text)-1], `,"backing":null}`...)
	}
	return string(text)
}

// models are QEMU's names of upstream's.
var models = map[string]string{
	"":        "virtio-net-pci",
	"virtio":  "virtio-net-pci",
	"e1000":   "e1000",
	"e1000e":  "e1000e",
	"rtl8139": "rtl8139",
}

// network is QEMU's own user-mode network: the guest's connections are the pod's, and the listed ports of the pod are
// the guest's.
func network(m Machine, n int, i v1.Interface, search []string) []string {
	id := "net" + strconv.Itoa(n)
	net := fmt.Sprintf("user,id=%s,net=%s,host=%s,dhcpstart=%s,dns=%s,ipv6=off,hostname=%s",
		id, guestNetwork, guestGateway, guestAddress, guestDNS, escape(m.Hostname()))
	for _, domain := range search {
		net += ",dnssearch=" + escape(domain)
	}
	for _, p := range i.Ports {
		protocol := "tcp"
		if p.Protocol == string(corev1.ProtocolUDP) {
			protocol = "udp"
		}
		net += fmt.Sprintf(",hostfwd=%s::%d-%s:%[2]d", protocol, p.Port, guestAddress)
	}
	// Nothing boots from it: the image has no programs for that.
	return []string{
		"-netdev", net,
		"-device", fmt.Sprintf("%s,netdev=%s,mac=%s,romfile=", models[i.Model], id, MAC(m.Namespace, m.Name, i)),
	}
}

// MAC is that of an interface: the one that is asked for, or one that stays the same for a machine's name.
func MAC(namespace, name string, i v1.Interface) string {
	if i.MACAddress != "" {
		return i.MACAddress
	}
	sum := sha256.Sum256([]byte(namespace + "/" + name + "/" + i.Name))
	return fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// escape writes a value as QEMU's lists of options have it.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
