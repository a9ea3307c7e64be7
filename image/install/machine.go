package install

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/try"
)

// ReadMachine reads what this machine is. It changes nothing, but has the kernel load modules of file systems. program
// is the path of this program.
func (i Installation) ReadMachine(program string) (m Machine, err error) {
	if m.Host, err = container.ReadHost(i.path(Dir)); err != nil {
		return m, err
	}

	m.Architecture = runtime.GOARCH
	m.Systemd = exists("/run/systemd/system") // sd_booted(3)
	for _, name := range []string{"nsenter", "modprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			m.Programs = append(m.Programs, name)
		}
	}

	if m.FileSystem, err = fileSystemOf(i.path(Dir)); err != nil {
		return m, err
	}
	fstab, err := os.ReadFile(i.path("/etc/fstab"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return m, err
	}
	for _, path := range []string{Dir, ProgramPath} {
		if point := findLateMount(string(fstab), path); point != "" && !slices.Contains(m.LateMounts, point) {
			m.LateMounts = append(m.LateMounts, point)
		}
	}
	m.Cluster = findCluster(i.Prefix)
	m.Try = try.RunningDir()
	m.InDir = i.findForeign()
	m.Unit = exists(i.path(unitPath))
	if m.OtherProgram, err = differs(i.path(ProgramPath), program); err != nil {
		return m, err
	}
	m.Links, err = readLinks()
	return m, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// fileSystems are names of file systems by the number that statfs(2) has for them.
var fileSystems = map[int64]string{
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.EXT4_SUPER_MAGIC:      "ext2/ext3/ext4",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.XFS_SUPER_MAGIC:       "xfs",
}

// fileSystemOf is that of dir, or of the nearest directory above it that is there.
func fileSystemOf(dir string) (string, error) {
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
	}

	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("look for the file system of %s: %w", dir, err)
	}
	return fileSystems[fs.Type], nil
}

// findCluster is what there is of a Kubernetes below root: configuration of the kubelet, or a process.
func findCluster(root string) string {
	for _, file := range []string{
		"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/admin.conf", "/var/lib/kubelet/config.yaml",
		"/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml",
	} {
		if exists(filepath.Join(root, file)) {
			return file + " is there"
		}
	}

	processes, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, p := range processes {
		name, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		switch strings.TrimSpace(string(name)) {
		case "kubelet", "k3s-server", "k3s-agent":
			if isOfThisSystem(filepath.Dir(p)) {
				return strings.TrimSpace(string(name)) + " runs"
			}
		}
	}
	return ""
}

// isOfThisSystem reports whether a process sees the same processes as this one: those of a container, such as an
// appliance that is installed, do not.
func isOfThisSystem(process string) bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	its, err2 := os.Readlink(filepath.Join(process, "ns/pid"))
	return err == nil && err2 == nil && own == its
}

// findForeign is something in Dir that neither an installation made nor an uninstallation left; "" if there is nothing.
func (i Installation) findForeign() string {
	entries, err := os.ReadDir(i.path(Dir))
	if err != nil {
		return "" // it is not there
	}
	for _, e := range entries {
		switch e.Name() {
		case dataDir, siteDir: // what uninstall --keep-data leaves
		case temporary(receiptName): // nothing was made yet
		case "lost+found": // a disk of its own is mounted there
		default:
			return filepath.Join(i.path(Dir), e.Name())
		}
	}
	return ""
}

// differs reports whether there is a file at path that has other bytes than program.
func differs(path, program string) (bool, error) {
	have, err := fileDigest(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	want, err := fileDigest(program)
	return !bytes.Equal(have, want), err
}

func fileDigest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

// readLinks reads the network interfaces of this machine.
func readLinks() ([]Link, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}

	names := map[int]string{}
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	above := map[int][]string{}
	for _, l := range all {
		if _, isVeth := l.(*netlink.Veth); !isVeth && l.Attrs().ParentIndex != 0 {
			above[l.Attrs().ParentIndex] = append(above[l.Attrs().ParentIndex], l.Attrs().Name)
		}
	}

	var links []Link
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.EncapType != "ether" {
			continue
		}

		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses of %s: %w", a.Name, err)
		}
		one := Link{
			Name:      a.Name,
			MAC:       hardwareMAC(a),
			PCI:       pciAddress(a.Name),
			Kind:      l.Type(),
			Wireless:  exists(filepath.Join("/sys/class/net", a.Name, "phy80211")),
			Master:    names[a.MasterIndex],
			Above:     above[a.Index],
			Functions: countFunctions(filepath.Join("/sys/class/net", a.Name, "device")),
		}
		for _, address := range addresses {
			if !address.IP.IsLinkLocalUnicast() || address.IP.To4() != nil {
				one.Addresses = append(one.Addresses, address.IPNet.String())
			}
		}
		links = append(links, one)
	}

	return links, nil
}

// countFunctions is how many virtual functions a PCI device has by SR-IOV.
func countFunctions(device string) int {
	text, err := os.ReadFile(filepath.Join(device, "sriov_numvfs"))
	if err != nil {
		return 0 // it cannot have any
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// hardwareMAC is the MAC that a link was made with: a port of a bond has the bond's for a while.
func hardwareMAC(a *netlink.LinkAttrs) string {
	return cmp.Or(permanentMAC(a), a.HardwareAddr.String())
}

// permanentMAC is the hardware's own MAC; "" if it has none, as a veth.
func permanentMAC(a *netlink.LinkAttrs) string {
	if len(a.PermHWAddr) == 6 && !bytes.Equal(a.PermHWAddr, make([]byte, 6)) {
		return a.PermHWAddr.String()
	}
	return ""
}

// pciAddress is the PCI function a NIC is on, "" if none. A NIC of virtio is a device on one.
func pciAddress(name string) string {
	device, err := filepath.EvalSymlinks(filepath.Join("/sys/class/net", name, "device"))
	if err != nil {
		return ""
	}
	for _, path := range []string{device, filepath.Dir(device)} {
		if base := filepath.Base(path); strings.Count(base, ":") == 2 && strings.Contains(base, ".") {
			return base
		}
	}
	return ""
}
