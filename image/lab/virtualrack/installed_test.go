package virtualrack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServersAreInstalledByADebianMachine: cloud-init of a plain Debian machine, with control groups of version 2 alone,
// runs firstlight install. The appliance comes up and a blank server is installed and verified; the machine restarts,
// and the appliance with it. Its own network is as before all the time, and everything else is when the appliance is
// uninstalled.
func TestServersAreInstalledByADebianMachine(t *testing.T) {
	for _, m := range []debianMachine{
		{
			name: "trixie with AppArmor", suite: "trixie", kernel: "linux-image-cloud-amd64", nic: "virtio-net-pci",
			packages: "apparmor", restricts: "aa-enabled", says: "Yes\n",
		},
		{
			name: "trixie with SELinux", suite: "trixie", kernel: "linux-image-cloud-amd64", nic: "virtio-net-pci",
			packages: "selinux-policy-default,policycoreutils", hook: "testdata/label-root",
			restricts: "getenforce", says: "Enforcing\n", relax: "setenforce 0; systemctl daemon-reload",
		},
		{
			name: "bookworm without IPv6, with AppArmor and a firewall", suite: "bookworm", kernel: "linux-image-amd64",
			nic: "e1000e", packages: "apparmor", hook: "testdata/drop-by-default",
			restricts: "aa-enabled; nft list ruleset | grep --count 'policy drop'; test -e /proc/net/if_inet6 || echo no IPv6",
			says:      "Yes\n2\nno IPv6\n",
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			c := newCommand(t, "qemu-all")
			c.up("--system", c.debianDisk(m), "--appliance-nic", m.nic, "--nodes", "1", "--cluster=false")
			t.Log("\n" + c.run("status", "--phases"))
			c.installed("node-1")
			assert.Equal(t, "cgroup2fs\n", c.onSystem("stat --file-system --format %T /sys/fs/cgroup"))
			before := c.onSystem("cat " + listedBefore)
			c.lendsTheSitesInterfaces(before)

			boot := c.onSystem("cat /proc/sys/kernel/random/boot_id")
			c.run("power", Appliance, "reset")
			c.until(Appliance, PhaseReady)
			c.until("node-1", PhaseVerified)
			assert.NotEqual(t, boot, c.onSystem("cat /proc/sys/kernel/random/boot_id"))
			c.lendsTheSitesInterfaces(before)
			assert.Equal(t, m.says, c.onSystem(m.restricts))

			out := c.onSystem("firstlight uninstall")
			t.Log("\n" + out)
			assert.Contains(t, out, "The appliance is uninstalled.")
			if m.relax != "" {
				c.onSystem(m.relax)
			}
			assert.Empty(t, differences(before, c.listSystem(), isUnstable))
			c.remove(c.processes())
		})
	}
}

// debianMachine is a plain Debian machine that restricts its programs.
type debianMachine struct {
	name, suite, kernel, nic string
	packages, hook           string // of mmdebstrap
	mib                      int    // of its disk; 0: what scripts/debian-disk says
	restricts, says          string // a command there, and its output while it does
	relax                    string // has the machine's own generators do what its policy denies them
}

// listedBefore is the list of what the machine had before anything was installed on it.
const listedBefore = "/var/log/before"

// debianDisk is the disk of a plain Debian machine, which lists what it has before anything is installed.
func (c command) debianDisk(m debianMachine) string {
	c.t.Helper()
	if os.Getuid() != 0 {
		c.t.Skip("makes a root file system of Debian's packages, for which it needs root")
	}
	hooks := filepath.Join(c.t.TempDir(), "hooks")
	require.NoError(c.t, os.Mkdir(hooks, 0o755))
	list := filepath.Join(hooks, "list")
	// Where netplan is a generator of systemd, it enables what cloud-init configured at the first reload by anyone.
	const script = "#!/bin/sh\nsystemctl daemon-reload\nsh /root/list-machine >" + listedBefore + "\n"
	require.NoError(c.t, os.WriteFile(list, []byte(script), 0o755))
	listing, err := filepath.Abs("testdata/list-machine")
	require.NoError(c.t, err)

	// What cloud-init finds there it runs before what the rack's user data says.
	disk := filepath.Join(filepath.Dir(c.path), m.suite+".raw")
	words := []string{
		m.suite, disk, m.kernel, "--include=" + m.packages,
		"--customize-hook=mkdir -p $1/var/lib/cloud/scripts/per-once",
		"--customize-hook=upload " + list + " /var/lib/cloud/scripts/per-once/list",
		"--customize-hook=chmod 755 $1/var/lib/cloud/scripts/per-once/list",
		"--customize-hook=upload " + listing + " /root/list-machine",
	}
	if m.hook != "" {
		hook, err := filepath.Abs(m.hook)
		require.NoError(c.t, err)
		words = append(words, "--customize-hook="+hook)
	}
	cmd := exec.CommandContext(c.t.Context(), "../../../scripts/debian-disk", words...)
	if m.mib > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("MIB=%d", m.mib))
	}
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, string(out))
	require.NoError(c.t, os.Chmod(disk, 0o644))
	return disk
}

// onSystem runs a command on the machine that the appliance is installed on, by its own network.
func (c command) onSystem(command string) string {
	c.t.Helper()
	return c.run("ssh", System, command)
}

func (c command) listSystem() string {
	c.t.Helper()
	return c.onSystem("sh /root/list-machine")
}

// lendsTheSitesInterfaces: but for those, the machine has the network that it had.
func (c command) lendsTheSitesInterfaces(before string) {
	c.t.Helper()
	links := strings.Split(strings.TrimSpace(c.onSystem("ls /sys/class/net")), "\n")
	assert.Len(c.t, slices.DeleteFunc(links, func(l string) bool { return l == "lo" || l == "bonding_masters" }), 1)
	own := func(list string) (lines []string) {
		for what, part := range sections(list) {
			if strings.HasPrefix(what, "ip ") || strings.HasPrefix(what, "nft ") || strings.HasPrefix(what, "ss ") {
				lines = append(lines, part...)
			}
		}
		slices.Sort(lines)
		return lines
	}
	lent := func(line string) bool {
		return strings.Contains(line, "52:54:00:f1:00:01") || strings.Contains(line, "52:54:00:f1:00:02")
	}
	assert.Equal(c.t, slices.DeleteFunc(own(before), lent), own(c.listSystem()))
}

// sections are the lines of each command of testdata/list-machine.
func sections(list string) map[string][]string {
	all, what := map[string][]string{}, ""
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		if name, begins := strings.CutPrefix(line, "# "); begins {
			what = name
			continue
		}
		all[what] = append(all[what], line)
	}
	return all
}

// differences are the lines that only one of two lists has, but for those that may.
func differences(before, after string, may func(line string) bool) (all []string) {
	a, b := sections(before), sections(after)
	for what := range a {
		for _, line := range a[what] {
			if !slices.Contains(b[what], line) && !may(line) {
				all = append(all, "- "+line)
			}
		}
		for _, line := range b[what] {
			if !slices.Contains(a[what], line) && !may(line) {
				all = append(all, "+ "+line)
			}
		}
	}
	slices.Sort(all)
	return all
}

// unstable are parameters of the kernel of which docs/install.md says that they stay until the machine restarts: limits
// of inotify by both their names, and those of modules.
var unstable = regexp.MustCompile(`^(fs\.inotify\.|user\.max_inotify_|net\.bridge\.|net\.nf_conntrack_max|net\.ipv4\.tcp_available_ulp)`)

func isUnstable(line string) bool { return unstable.MatchString(line) }
