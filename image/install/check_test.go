package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/container"
)

// readSite is the site of a text.
func readSite(t *testing.T, text string) *site.Site {
	t.Helper()
	s, problems := site.Load(siteName, []byte(text))
	require.NoError(t, problems.Err())
	return s
}

const rootMiB = 500

// sound is a machine without a reason against an installation.
func sound() Machine {
	return Machine{
		Host: container.Host{
			Root:        true,
			Cgroups:     true,
			MemoryMiB:   leastMemoryMiB,
			DiskMiB:     leastDiskMiB + rootMiB,
			FileSystems: "nodev\toverlay\n\tsquashfs\n",
		},
		Architecture: "amd64",
		Systemd:      true,
		FileSystem:   "xfs",
		Links: []Link{
			{Name: "eno1", MAC: "52:54:00:00:00:01", PCI: "0000:00:03.0", Kind: "device"},
			{Name: "eno2", MAC: "52:54:00:00:00:02", PCI: "0000:00:04.0", Kind: "device"},
			{Name: "br0", MAC: "52:54:00:00:00:09", Kind: "bridge"},
		},
	}
}

// TestWhatWouldHarmIsRefused: each reason in one line, with what to do.
func TestWhatWouldHarmIsRefused(t *testing.T) {
	s := readSite(t, "networks:\n  provisioning: {interface: eno2}\n")
	assert.Empty(t, refusals(sound(), s, rootMiB, nil))
	for want, change := range map[string]func(*Machine){
		"root is needed, for units, namespaces and mounts: sudo firstlight install":                   func(m *Machine) { m.Root = false },
		"this machine is arm64; the image is for amd64":                                               func(m *Machine) { m.Architecture = "arm64" },
		"systemd is not process 1 of this machine; the appliance is a unit of systemd":                func(m *Machine) { m.Systemd = false },
		"the kernel has no pid namespaces":                                                            func(m *Machine) { m.Namespaces = []string{"pid"} },
		"no control groups are mounted below /sys/fs/cgroup; systemd mounts them at boot":             func(m *Machine) { m.Cgroups = false },
		"modprobe is not installed; install util-linux and kmod":                                      func(m *Machine) { m.Programs = []string{"modprobe"} },
		"a rack of firstlight try runs in /x; end it: firstlight try --dir /x down":                   func(m *Machine) { m.Try = "/x" },
		"3071 MiB of memory are available, 3072 are needed":                                           func(m *Machine) { m.MemoryMiB-- },
		"4595 MiB are free below /var/lib/firstlight, 4596 are needed":                                func(m *Machine) { m.DiskMiB-- },
		"/var/lib/firstlight/thesis.txt was there before; move it away":                               func(m *Machine) { m.InDir = Dir + "/thesis.txt" },
		"there is a unit firstlight.service that was not installed by this program; remove it":        func(m *Machine) { m.Unit = true },
		"/usr/local/bin/firstlight is another version or another program; remove it, or run that one": func(m *Machine) { m.OtherProgram = true },
		"the kernel has no squashfs, not even as a module; install the modules of this kernel " +
			"(linux-modules-extra, kernel-modules)": func(m *Machine) { m.FileSystems = "nodev\toverlay\n" },
		"this machine is a node of another Kubernetes: kubelet runs; the two would both count its memory as " +
			"theirs": func(m *Machine) { m.Cluster = "kubelet runs" },
		"/usr/local is mounted when the network is up (/etc/fstab), and the appliance, which needs it, starts before " +
			"that; have a disk of this machine there": func(m *Machine) { m.LateMounts = []string{"/usr/local"} },
		"/var/lib/firstlight is on nfs, which containers cannot be on; mount ext4, xfs or btrfs " +
			"there": func(m *Machine) { m.FileSystem = "nfs" },
	} {
		m := sound()
		change(&m)
		assert.Equal(t, []string{want}, refusals(m, s, rootMiB, nil))
	}

	sealed := readSite(t, "appliance: {seal: {require: tpm}}\nnetworks:\n  provisioning: {interface: eno2}\n")
	assert.Equal(t, []string{"site.yaml has appliance.seal.require: tpm, and DATA is a folder here, which nothing of the " +
		"appliance encrypts; have an encrypted disk at /var/lib/firstlight if that is needed, and remove the line"},
		refusals(sound(), sealed, rootMiB, nil))
	assert.Empty(t, refusals(sound(), sealed, rootMiB, []NIC{{Name: "eno2", MAC: "52:54:00:00:00:02", PCI: "0000:00:04.0"}}),
		"what is installed is updated")

	// All at once.
	assert.Len(t, refusals(Machine{}, s, rootMiB, nil), 10)
}

// TestNICsAreTheSites: the appliance gets those that the site names, and none that the machine uses.
func TestNICsAreTheSites(t *testing.T) {
	eno1 := NIC{"eno1", "52:54:00:00:00:01", "0000:00:03.0"}
	eno2 := NIC{"eno2", "52:54:00:00:00:02", "0000:00:04.0"}
	taken := NIC{"eth9", "52:54:00:00:00:03", "0000:00:05.0"} // the appliance runs and has it
	for _, c := range []struct {
		site      string
		change    func([]Link)
		installed []NIC
		want      []NIC
		reason    string
	}{
		{site: "provisioning: {interface: eno2}", want: []NIC{eno2}},
		{site: "provisioning: {interface: '52:54:00:00:00:02'}", want: []NIC{eno2}},
		{site: "provisioning: {interface: '0000:00:04.0'}\n  baremetal: {interface: eno1}", want: []NIC{eno2, eno1}},
		{site: "provisioning: {bond: {interfaces: [eno1, eno2]}}", want: []NIC{eno1, eno2}},
		{site: "provisioning: {interface: eno1}\n  baremetal: {interface: eno1, vlan: 5}", want: []NIC{eno1}},
		{site: "provisioning: {cidr: 172.22.0.0/24}", reason: "site.yaml names no interface in networks.provisioning"},
		{site: "baremetal: {interface: eno1}", reason: "site.yaml names no interface in networks.provisioning"},
		{
			site: "provisioning: {interface: eth9}",
			reason: "networks.provisioning.interface: no interface of this machine is eth9; there are eno1 52:54:00:00:00:01 " +
				"0000:00:03.0, eno2 52:54:00:00:00:02 0000:00:04.0",
		},
		{site: "provisioning: {interface: eth9}", installed: []NIC{taken}, want: []NIC{taken}},
		{site: "provisioning: {interface: '52:54:00:00:00:03'}", installed: []NIC{taken}, want: []NIC{taken}},
		{site: "provisioning: {interface: '0000:00:05.0'}", installed: []NIC{taken}, want: []NIC{taken}},
		{site: "provisioning: {interface: eno2}", installed: []NIC{eno2}, want: []NIC{eno2}},
		{
			site:      "provisioning: {interface: eno2}",
			change:    func(l []Link) { l[1].Addresses = []string{"10.0.0.7/24"} },
			installed: []NIC{eno2},
			reason:    "networks.provisioning.interface: eno2 has 10.0.0.7/24: this machine uses it itself",
		},
		{site: "provisioning: {interface: br0}", reason: "networks.provisioning.interface: br0 is a bridge"},
		{
			site:   "provisioning: {interface: eno2}",
			change: func(l []Link) { l[1].Addresses = []string{"10.0.0.7/24"} },
			reason: "networks.provisioning.interface: eno2 has 10.0.0.7/24: this machine uses it itself",
		},
		{
			site:   "provisioning: {interface: eno2}",
			change: func(l []Link) { l[1].Master = "br0" },
			reason: "networks.provisioning.interface: eno2 is a port of br0",
		},
		{
			site:   "provisioning: {interface: eno2}",
			change: func(l []Link) { l[1].Above = []string{"eno2.7"} },
			reason: "networks.provisioning.interface: eno2 carries eno2.7",
		},
		{
			site:   "provisioning: {interface: eno2}",
			change: func(l []Link) { l[1].Functions = 4 },
			reason: "networks.provisioning.interface: eno2 has virtual functions (SR-IOV), 4: this machine or a virtual machine " +
				"may be reached by one, which loses its link when eno2 moves",
		},
		{
			site:   "provisioning: {interface: eno2}",
			change: func(l []Link) { l[1].Wireless = true },
			reason: "networks.provisioning.interface: eno2 is wireless",
		},
	} {
		links := sound().Links
		if c.change != nil {
			c.change(links)
		}
		nics, reasons := findNICs(links, readSite(t, "networks:\n  "+c.site+"\n"), c.installed)
		if c.reason == "" {
			assert.Empty(t, reasons, c.site)
			assert.Equal(t, c.want, nics, c.site)
			continue
		}
		require.Len(t, reasons, 1, c.site)
		assert.True(t, strings.HasPrefix(reasons[0], c.reason), "%s: %s", c.site, reasons[0])
	}
}

// TestTheUnitsGroupIsFound from each process of the unit, in the one tree of version 2.
func TestTheUnitsGroupIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/firstlight.service\n":                     "system.slice/firstlight.service",
		"0::/system.slice/firstlight.service/supervisor\n":          "system.slice/firstlight.service",
		"0::/system.slice/firstlight.service/.control\n":            "system.slice/firstlight.service",
		"1:name=systemd:/x\n0::/system.slice/f.service/appliance\n": "system.slice/f.service",
		"1:name=systemd:/x\n":                                       "",
	} {
		assert.Equal(t, want, parseUnitGroup(text), text)
	}
}

func TestVirtualFunctionsAreCounted(t *testing.T) {
	device := t.TempDir()
	assert.Zero(t, countFunctions(device))
	require.NoError(t, os.WriteFile(filepath.Join(device, "sriov_numvfs"), []byte("4\n"), 0o600))
	assert.Equal(t, 4, countFunctions(device))
}
