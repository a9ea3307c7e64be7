package install

import (
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/container"
)

// What an appliance needs besides its root: it keeps some 1.5 GiB in memory, and writes as much to its DATA before
// anything is uploaded or collected.
const (
	leastMemoryMiB = 3 << 10
	leastDiskMiB   = 4 << 10
)

// Machine is what matters of the machine that an appliance shall be installed on.
type Machine struct {
	container.Host
	Architecture string   // as GOARCH has it
	Systemd      bool     // it runs as process 1
	Programs     []string // that are missing
	FileSystem   string   // below Dir: ext4 and so on; "" for one without a name here
	LateMounts   []string // mount points that we need and that wait for the machine's network at boot
	Cluster      string   // what there is of another Kubernetes; "" for nothing
	Try          string   // directory of a rack of firstlight try that runs; "" for none
	InDir        string   // something in Dir that no installation made; "" for nothing
	Unit         bool     // there is a unit of our name that no installation made
	OtherProgram bool     // what is at ProgramPath is another program than this one
	Links        []Link
}

// Link is a network interface of the machine.
type Link struct {
	Name      string
	MAC       string   // the hardware's own, lower case, with colons
	PCI       string   // 0000:3b:00.0; "" if it is not a PCI device
	Kind      string   // of the kernel: device, veth, bridge and so on
	Wireless  bool     // it cannot be moved
	Addresses []string // ADDRESS/BITS, without those of IPv6 that each link has
	Master    string   // the bridge or bond that it is a port of; "" for none
	Above     []string // links that are made on it, such as VLANs
	Functions int      // virtual functions that it has, by SR-IOV
}

// overlayFileSystems are those that the layers of containers can be on.
var overlayFileSystems = []string{"btrfs", "ext2/ext3/ext4", "xfs"}

// refusals are all reasons against an installation on the machine, each with what to do; none if there is no reason.
// installed are the NICs of one that was begun there, which needs nothing more.
func refusals(m Machine, s *site.Site, rootMiB int, installed []NIC) (all []string) {
	refuse := func(isSo bool, format string, args ...any) {
		if isSo {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}

	refuse(!m.Root, "root is needed, for units, namespaces and mounts: sudo firstlight install")
	refuse(m.Architecture != "amd64", "this machine is %s; the image is for amd64", m.Architecture)
	refuse(!m.Systemd, "systemd is not process 1 of this machine; the appliance is a unit of systemd")
	refuse(len(m.Namespaces) > 0, "the kernel has no %s namespaces", strings.Join(m.Namespaces, ", no "))
	refuse(!m.Cgroups, "no control groups are mounted below /sys/fs/cgroup; systemd mounts them at boot")
	for _, fs := range []string{"overlay", "squashfs"} {
		refuse(!m.HasFileSystem(fs), "the kernel has no %s, not even as a module; install the modules of this kernel "+
			"(linux-modules-extra, kernel-modules)", fs)
	}
	for _, program := range m.Programs {
		refuse(true, "%s is not installed; install util-linux and kmod", program)
	}
	refuse(m.Cluster != "", "this machine is a node of another Kubernetes: %s; the two would both count its memory as "+
		"theirs", m.Cluster)
	refuse(m.Try != "", "a rack of firstlight try runs in %s; end it: firstlight try --dir %[1]s down", m.Try)

	if installed == nil {
		refuse(m.MemoryMiB < leastMemoryMiB, "%d MiB of memory are available, %d are needed", m.MemoryMiB, leastMemoryMiB)
		refuse(m.DiskMiB < leastDiskMiB+rootMiB, "%d MiB are free below %s, %d are needed", m.DiskMiB, Dir,
			leastDiskMiB+rootMiB)
		refuse(!slices.Contains(overlayFileSystems, m.FileSystem), "%s is on %s, which containers cannot be on; mount "+
			"ext4, xfs or btrfs there", Dir, orUnknown(m.FileSystem))
		for _, point := range m.LateMounts {
			refuse(true, "%s is mounted when the network is up (/etc/fstab), and the appliance, which needs it, starts before "+
				"that; have a disk of this machine there", point)
		}
		refuse(m.InDir != "", "%s was there before; move it away", m.InDir)
		refuse(m.Unit, "there is a unit %s that was not installed by this program; remove it", UnitName)
		refuse(m.OtherProgram, "%s is another version or another program; remove it, or run that one", ProgramPath)
		refuse(s.Appliance.Seal.Require != "", "site.yaml has appliance.seal.require: %s, and DATA is a folder here, which "+
			"nothing of the appliance encrypts; have an encrypted disk at %s if that is needed, and remove the line",
			s.Appliance.Seal.Require, Dir)
	}

	_, reasons := findNICs(m.Links, s, installed)
	return append(all, reasons...)
}

// spareMiB is what stays free beside a second root.
const spareMiB = 512

// updateRefusals are the reasons against another root for an installation besides those of refusals; none once it is on
// trial. What an interrupted update has copied counts as free.
func updateRefusals(m Machine, r Receipt, o Order) (all []string) {
	if r.Trial != nil {
		return nil
	}

	if err := stick.CheckUpgrade(r.Version, o.Root.Version); err != nil && !o.Downgrade {
		all = append(all, err.Error())
	}
	rootMiB := int(o.Root.Bytes >> 20)
	if m.DiskMiB < rootMiB+spareMiB {
		all = append(all, fmt.Sprintf("%d MiB are free below %s, %d are needed for a second root",
			m.DiskMiB, Dir, rootMiB+spareMiB))
	}
	return all
}

func orUnknown(fileSystem string) string {
	if fileSystem == "" {
		return "a file system"
	}
	return fileSystem
}

// findNICs are the NICs that the site names, in its order, and the reasons why the appliance may not have them. Those
// of installed are the appliance's already while they are not among links. When it does not run, this machine may use
// them again.
func findNICs(links []Link, s *site.Site, installed []NIC) (nics []NIC, reasons []string) {
	named := namedInterfaces(s)
	if len(named) == 0 || !strings.HasPrefix(named[0].setting, "networks.provisioning.") {
		return nil, []string{"site.yaml names no interface in networks.provisioning; nothing is detected on a machine " +
			"that others use"}
	}

	for _, n := range named {
		k := slices.IndexFunc(installed, func(has NIC) bool { return n.is(has.Name, has.MAC, has.PCI) })
		if k >= 0 && !slices.ContainsFunc(links, installed[k].isOf) {
			nics = append(nics, installed[k])
			continue
		}

		k = slices.IndexFunc(links, func(l Link) bool { return n.is(l.Name, l.MAC, l.PCI) })
		if k < 0 {
			reasons = append(reasons, fmt.Sprintf("%s: no interface of this machine is %s; there are %s", n.setting, n,
				listLinks(links)))
			continue
		}
		if why := links[k].refusal(); why != "" {
			reasons = append(reasons, fmt.Sprintf("%s: %s", n.setting, why))
			continue
		}
		nic := NIC{Name: links[k].Name, MAC: links[k].MAC, PCI: links[k].PCI}
		if !slices.Contains(nics, nic) { // several VLANs of one
			nics = append(nics, nic)
		}
	}

	return nics, reasons
}

func (n NIC) isOf(l Link) bool { return n.Name == l.Name && n.MAC == l.MAC }

func (n namedInterface) is(name, mac, pci string) bool {
	switch {
	case n.MAC != "":
		return n.MAC.String() == mac
	case n.PCI != "":
		return n.PCI == pci
	}
	return n.Name == name
}

// refusal says why the appliance may not have the interface; "" if it may. One that has no address is not the machine's
// own way to anywhere.
func (l Link) refusal() string {
	switch {
	case l.Kind != "device" && l.Kind != "veth":
		return fmt.Sprintf("%s is a %s; name a NIC, and its vlan or bond in site.yaml", l.Name, l.Kind)
	case l.Wireless:
		return l.Name + " is wireless, which servers are not installed by"
	case l.Master != "":
		return fmt.Sprintf("%s is a port of %s on this machine; take it out of there", l.Name, l.Master)
	case len(l.Above) > 0:
		return fmt.Sprintf("%s carries %s on this machine; remove that", l.Name, strings.Join(l.Above, ", "))
	case l.Functions > 0:
		return fmt.Sprintf("%s has virtual functions (SR-IOV), %d: this machine or a virtual machine may be reached by one, "+
			"which loses its link when %[1]s moves; remove them, or name one", l.Name, l.Functions)
	case len(l.Addresses) > 0:
		return fmt.Sprintf("%s has %s: this machine uses it itself. The appliance has its interfaces alone; have this "+
			"machine's network configuration leave it without an address", l.Name, strings.Join(l.Addresses, ", "))
	}
	return ""
}

func listLinks(links []Link) string {
	var names []string
	for _, l := range links {
		if l.Kind == "device" || l.Kind == "veth" {
			names = append(names, strings.TrimSpace(l.Name+" "+l.MAC+" "+l.PCI))
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
