package machines

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// leastMemory is what a guest has at least, in bytes: with less, its firmware does not start.
const leastMemory = 16 << 20

// mostSize is how long a spec may be as JSON: it becomes an annotation of a pod, which has 256 KiB for all of them.
const mostSize = 128 << 10

// CheckSpec returns what is wrong with a spec, each in a sentence that begins with the field. Most of it the API server
// refuses by the definition; what it lets through is in an older object, or is nothing that a schema says.
func CheckSpec(s v1.InstanceSpec) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, u := range s.Unknown {
		add("%s: it is not in the subset of KubeVirt's API that this cluster has; take it out", u)
	}
	if memory := launcher.GuestMemory(s.Domain); memory < leastMemory {
		add("domain.memory.guest: a guest has at least 16Mi; set it")
	}
	if b := bootloader(s); b != nil && b.EFI != nil && (b.EFI.SecureBoot == nil || *b.EFI.SecureBoot) {
		add("domain.firmware.bootloader.efi: there is no Secure Boot; set secureBoot: false")
	}
	if b := bootloader(s); b != nil && b.EFI != nil && b.BIOS != nil {
		add("domain.firmware.bootloader: it is bios or efi; take one out")
	}

	problems = append(problems, checkDisks(s)...)
	problems = append(problems, checkVolumes(s)...)
	problems = append(problems, checkNetworks(s)...)
	if text, err := json.Marshal(s); err == nil && len(text) > mostSize {
		add("spec: it is %d KiB long, and %d are possible; put user data into a Secret", len(text)>>10, mostSize>>10)
	}
	return problems
}

func bootloader(s v1.InstanceSpec) *v1.Bootloader {
	if s.Domain.Firmware == nil {
		return nil
	}
	return s.Domain.Firmware.Bootloader
}

// serial is what QEMU's disks take.
var serial = regexp.MustCompile(`^[A-Za-z0-9_.+-]{1,20}$`)

func checkDisks(s v1.InstanceSpec) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	sata, names, orders := 0, map[string]bool{}, map[uint]bool{}
	for _, d := range s.Domain.Devices.Disks {
		v, found := findVolume(s, d.Name)
		switch {
		case names[d.Name]:
			add("domain.devices.disks: two are called %s", d.Name)
		case !found:
			add("domain.devices.disks: %s has no volume of its name in volumes; add one", d.Name)
		case (d.Disk == nil) == (d.CDROM == nil):
			add("domain.devices.disks: %s has one of disk and cdrom", d.Name)
		case d.Disk != nil && !slices.Contains([]string{"", v1.BusSATA, v1.BusVirtio}, d.Disk.Bus):
			add("domain.devices.disks: %s has the bus %s; there are virtio and sata", d.Name, d.Disk.Bus)
		case d.CDROM != nil && d.CDROM.Bus != "" && d.CDROM.Bus != v1.BusSATA:
			add("domain.devices.disks: %s has the bus %s; a cdrom is at sata", d.Name, d.CDROM.Bus)
		case d.Disk != nil && launcher.Bus(d) == v1.BusSATA && isReadOnly(d, v):
			add("domain.devices.disks: %s can be read alone, which a disk at sata cannot; set bus: virtio, or make it a cdrom", d.Name)
		case d.BootOrder != nil && (*d.BootOrder == 0 || orders[*d.BootOrder]):
			add("domain.devices.disks: the bootOrder of %s is 0 or that of another disk", d.Name)
		case d.Serial != "" && !serial.MatchString(d.Serial):
			add("domain.devices.disks: the serial of %s has up to 20 letters, digits, dots, dashes and the like", d.Name)
		}
		names[d.Name] = true
		if d.BootOrder != nil {
			orders[*d.BootOrder] = true
		}
		if d.CDROM != nil || launcher.Bus(d) == v1.BusSATA {
			sata++
		}
	}
	if sata > launcher.SATAPorts {
		add("domain.devices.disks: %d are at sata, which has %d ports; set bus: virtio", sata, launcher.SATAPorts)
	}
	return problems
}

func isReadOnly(d v1.Disk, v v1.Volume) bool {
	return d.Disk.ReadOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
}

func findVolume(s v1.InstanceSpec, name string) (v1.Volume, bool) {
	n := slices.IndexFunc(s.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if n < 0 {
		return v1.Volume{}, false
	}
	return s.Volumes[n], true
}

var checksum = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func checkVolumes(s v1.InstanceSpec) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	names, claims, seeds := map[string]bool{}, map[string]bool{}, 0
	for _, v := range s.Volumes {
		if names[v.Name] {
			add("volumes: two are called %s", v.Name)
		}
		names[v.Name] = true
		if !slices.ContainsFunc(s.Domain.Devices.Disks, func(d v1.Disk) bool { return d.Name == v.Name }) {
			add("volumes: %s has no disk of its name in domain.devices.disks; add one", v.Name)
		}

		kinds := 0
		for _, is := range []bool{
			v.PersistentVolumeClaim != nil, v.CloudInitNoCloud != nil, v.EmptyDisk != nil, v.FirstlightImage != nil,
		} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			add("volumes: %s has one of persistentVolumeClaim, cloudInitNoCloud, emptyDisk and firstlightImage", v.Name)
		}
		if name := claimName(v); name != "" {
			if claims[name] {
				add("volumes: two are on the claim %s", name)
			}
			claims[name] = true
		}
		if c := v.CloudInitNoCloud; c != nil {
			if seeds++; seeds == 2 {
				add("volumes: %s is a second cloudInitNoCloud; cloud-init reads one", v.Name)
			}
			problems = append(problems, checkSeed(v.Name, c)...)
		}
		if v.EmptyDisk != nil && v.EmptyDisk.Capacity.Value() <= 0 {
			add("volumes: the emptyDisk %s has no capacity; set it", v.Name)
		}
		if i := v.FirstlightImage; i != nil {
			if u, err := url.Parse(i.URL); err != nil || u.Scheme != "http" || u.Host == "" {
				add("volumes: the image %s has a url that begins with http://", v.Name)
			}
			if i.Checksum != "" && !checksum.MatchString(i.Checksum) {
				add("volumes: the checksum of %s is sha256: and 64 digits, lower case", v.Name)
			}
			if i.Capacity != nil && i.Capacity.Value() <= 0 {
				add("volumes: the capacity of %s is above 0", v.Name)
			}
		}
	}
	return problems
}

func checkSeed(name string, c *v1.CloudInit) (problems []string) {
	count := func(is ...bool) (n int) {
		for _, i := range is {
			if i {
				n++
			}
		}
		return n
	}
	if count(c.UserData != "", c.UserDataBase64 != "", c.UserDataSecret != nil) > 1 {
		problems = append(problems, fmt.Sprintf("volumes: %s has one of userData, userDataBase64 and secretRef", name))
	}
	if count(c.NetworkData != "", c.NetworkDataBase64 != "", c.NetworkDataSecret != nil) > 1 {
		problems = append(problems, fmt.Sprintf(
			"volumes: %s has one of networkData, networkDataBase64 and networkDataSecretRef", name,
		))
	}
	return problems
}

// claimName is the claim that a volume is on; "" if it is on none.
func claimName(v v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.FirstlightImage != nil:
		return v.FirstlightImage.ClaimName
	}
	return ""
}

func checkNetworks(s v1.InstanceSpec) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	all := s.Domain.Devices.Interfaces
	if len(all) > 1 || len(s.Networks) > 1 {
		add("networks: there is one, that of pods; take the others out")
	}
	for _, i := range all {
		if !slices.ContainsFunc(s.Networks, func(n v1.Network) bool { return n.Name == i.Name }) {
			add("domain.devices.interfaces: %s has no network of its name in networks; add {name: %[1]s, pod: {}}", i.Name)
		}
		if i.Masquerade == nil {
			add("domain.devices.interfaces: %s is connected by masquerade alone; set masquerade: {}", i.Name)
		}
		if len(i.Ports) == 0 {
			add("domain.devices.interfaces: list the ports of %s: no others lead to the guest", i.Name)
		}
		if i.MACAddress != "" {
			if mac, err := net.ParseMAC(i.MACAddress); err != nil || len(mac) != 6 || mac[0]&1 != 0 {
				add("domain.devices.interfaces: the macAddress of %s is that of one Ethernet interface", i.Name)
			}
		}
		if !slices.Contains([]string{"", "virtio", "e1000", "e1000e", "rtl8139"}, i.Model) {
			add("domain.devices.interfaces: %s has the model %s; there are virtio, e1000, e1000e and rtl8139", i.Name, i.Model)
		}
		seen := map[v1.Port]bool{}
		for _, p := range i.Ports {
			key := v1.Port{Port: p.Port, Protocol: p.Protocol}
			if key.Protocol == "" {
				key.Protocol = string(corev1.ProtocolTCP)
			}
			switch {
			case key.Protocol != string(corev1.ProtocolTCP) && key.Protocol != string(corev1.ProtocolUDP):
				add("domain.devices.interfaces: port %d has the protocol %s; there are TCP and UDP", p.Port, p.Protocol)
			case p.Port < 1 || p.Port > 65535:
				add("domain.devices.interfaces: port %d is none", p.Port)
			case seen[key]:
				add("domain.devices.interfaces: port %d is there twice", p.Port)
			}
			seen[key] = true
		}
	}
	for _, n := range s.Networks {
		if !slices.ContainsFunc(all, func(i v1.Interface) bool { return i.Name == n.Name }) {
			add("networks: %s has no interface of its name in domain.devices.interfaces; add one", n.Name)
		}
		if n.Pod == nil {
			add("networks: %s is that of pods; set pod: {}", n.Name)
		}
	}
	return problems
}

// sentence is all problems as one.
func sentence(problems []string) string { return strings.Join(problems, "; ") }
