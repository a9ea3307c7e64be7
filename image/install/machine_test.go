package install_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// machine is a Debian machine with systemd, in namespaces: the root of the image without what makes it the appliance.
// It has interfaces on networks of its own, and one that is its way out.
type machine struct {
	t        *testing.T
	system   *process.Child
	networks map[string]*netns.Bridge // by the machine's interface
	kills    int                      // commands that cut has killed
}

const machineCgroup = "firstlight-test-machine"

// prepareMachine makes the image's root a machine that has nothing of ours. /mnt is what the test brings, and /var/lib
// is on a disk.
const prepareMachine = `set -e
systemctl stop firstlightd.service
systemctl disable --quiet firstlightd.service 2>/dev/null || true
umount /run/firstlight/site /run/firstlight/root
rm -r /run/firstlight
mount --bind /var/lib/firstlight /mnt
mkdir /mnt/varlib
mount --bind /mnt/varlib /var/lib
mknod /dev/loop-control c 10 237
for n in $(seq 0 255); do mknod /dev/loop$n b 7 $n; done
`

// startMachine starts it. before are words before the command line of its first process.
func startMachine(t *testing.T, image, program string, before ...string) *machine {
	t.Helper()
	dir := t.TempDir()
	root, offset, err := container.FindRoot(image)
	require.NoError(t, err)
	noDaemon := filepath.Join(dir, "no-daemon")
	require.NoError(t, os.WriteFile(noDaemon, []byte("#!/bin/sh\nexec sleep infinity\n"), 0o755))
	for _, name := range []string{"data", "site"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, lab.LinkImage(image, filepath.Join(dir, "data/firstlight.img")))
	require.NoError(t, exec.CommandContext(t.Context(), "cp", program, filepath.Join(dir, "data/firstlight")).Run())

	log, err := os.Create(filepath.Join(dir, "console.log"))
	require.NoError(t, err)
	terminal, err := container.OpenTerminal(log)
	require.NoError(t, err)
	m := &machine{t: t, networks: map[string]*netns.Bridge{}}
	for _, nic := range []string{"eth0", "ens1", "ens2", "ens3"} {
		m.networks[nic], err = netns.NewBridge(t.Context())
		require.NoError(t, err)
		t.Cleanup(m.networks[nic].Close)
	}

	require.NoError(t, container.RemoveCgroups(machineCgroup))
	m.system, err = container.Start(container.Plan{
		Root:    root,
		Offset:  offset,
		Mount:   filepath.Join(dir, "mount"),
		Data:    filepath.Join(dir, "data"),
		Site:    filepath.Join(dir, "site"),
		Daemon:  noDaemon,
		Console: terminal.Path,
		Cgroup:  machineCgroup,
		Kind:    "firstlight-test",
	}, filepath.Join(dir, "container.json"), append(before, program, "installed", "first-process"), func(pid int) error {
		for nic, network := range m.networks {
			if err := network.Connect(t.Context(), pid, "machine", nic); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := container.Command(t.Context(), m.system.ID.PID, "journalctl", "-n", "60", "--no-pager").CombinedOutput()
			t.Logf("journal, its end:\n%s", out)
		}
		m.system.Kill()
		assert.NoError(t, terminal.Close())
		assert.NoError(t, container.RemoveCgroups(machineCgroup))
	})

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := container.Command(t.Context(), m.system.ID.PID, "systemctl", "is-active", "basic.target").CombinedOutput()
		require.NoError(c, err, string(out))
	}, 2*time.Minute, 100*time.Millisecond)
	m.must("sh", "-c", prepareMachine)
	m.must("ip", "address", "add", "192.0.2.7/24", "dev", "eth0")
	m.must("ip", "link", "set", "ens2", "down")
	m.must("ip", "link", "set", "ens3", "mtu", "1400")
	return m
}

func (m *machine) run(words ...string) (string, error) {
	m.t.Helper()
	out, err := container.Command(m.t.Context(), m.system.ID.PID, words...).CombinedOutput()
	return string(out), err
}

func (m *machine) must(words ...string) string {
	m.t.Helper()
	out, err := m.run(words...)
	require.NoError(m.t, err, "%s: %s", strings.Join(words, " "), out)
	return out
}

// firstlight runs the command as its owner does.
func (m *machine) firstlight(args ...string) (string, error) {
	m.t.Helper()
	out, err := m.run(append([]string{"/mnt/firstlight"}, args...)...)
	m.t.Logf("# firstlight %s\n%s", strings.Join(args, " "), out)
	return out, err
}

func (m *machine) mustFirstlight(args ...string) string {
	m.t.Helper()
	out, err := m.firstlight(args...)
	require.NoError(m.t, err, out)
	return out
}

// cut runs the command and kills it, with what it started, when it has printed a line that begins so. Where this test gets
// a processor late, the command is further by then, or done; TestAPowerCutAtAnyStep interrupts each step exactly.
func (m *machine) cut(line string, args ...string) {
	m.t.Helper()
	cmd := container.Command(m.t.Context(), m.system.ID.PID, append([]string{"/mnt/firstlight"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, cmd.Start())
	var printed []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		printed = append(printed, lines.Text())
		if strings.HasPrefix(lines.Text(), line) {
			require.NoError(m.t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		}
	}
	if cmd.Wait() != nil {
		m.kills++
	}
	m.t.Logf("to be killed: firstlight %s, at %q; it printed %q: %s", strings.Join(args, " "), line, printed, cmd.ProcessState)
}

// unstable are parameters of the kernel and lists that change while nothing is done.
var unstable = regexp.MustCompile(`(?m)^(fs\.(dentry-state|inode-nr|inode-state|file-nr|aio-nr|quota)|kernel\.(random|ns_last_pid|pty\.nr)|` +
	`net\.netfilter\.nf_conntrack_count).*\n`)

// everyFile lists all files of the machine that are on its disk.
const everyFile = `find / -xdev -printf '%p %y %m %l\n' | grep -v '^/run/\|^/var/log/\|^/var/cache/\|^/tmp/' | sort`

// parts is all that an installation might leave, by the command that lists it.
func (m *machine) parts() (map[string]string, error) {
	all := map[string]string{}
	for _, c := range []string{
		`find /etc /usr/local /opt /root -xdev -printf '%p %y %m %s %l\n' | sed 's/ d \([0-7]*\) [0-9]*/ d \1/' | sort`,
		`find /var/lib -printf '%p %m\n' | grep -v '^/var/lib/systemd' | sort`,
		`ip -oneline -details link | sed 's/^[0-9]*: //; s/qdisc [a-z_]*//; /^ifb/d' | sort`,
		`ip -oneline address | sed 's/^[0-9]*: //; s/valid_lft.*//; /inet6 fe80/d' | sort`,
		`ip rule; ip -6 rule`,
		`ip route show table all | grep -v fe80 | grep -v multicast | sort`,
		`nft list ruleset`,
		`sysctl -a 2>/dev/null`,
		`cut -d' ' -f4- /proc/self/mountinfo | sort`,
		`systemctl list-unit-files --no-legend --no-pager`,
		`ss -lntu | sort`,
		`losetup --list --noheadings --output BACK-FILE | grep /firstlight/root.img; true`,
		`find /sys/fs/cgroup -type d -name 'firstlight*' | grep -v firstlightd; true`,
		`ls /run`,
		`ps -e -o comm= | grep -i 'firstlight\|kube\|etcd\|containerd'; true`,
	} {
		out, err := m.run("sh", "-c", c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c, err, out)
		}
		all[c] = unstable.ReplaceAllString(out, "")
	}
	return all, nil
}

// stableParts are its parts as soon as they stay the same for a while: links of a machine that has just started get their
// carrier later.
func (m *machine) stableParts() (now map[string]string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		last := now
		var err error
		now, err = m.parts()
		require.NoError(c, err)
		assert.Equal(c, last, now)
	}, 10*time.Minute, 3*time.Second)
	return now
}

// isAsBefore waits until the machine is as it was: what was killed ends in its own time.
func (m *machine) isAsBefore(before map[string]string) {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		now, err := m.parts()
		require.NoError(c, err)
		for what, want := range before {
			assert.Equal(c, strings.Split(want, "\n"), strings.Split(now[what], "\n"), what)
		}
	}, 2*time.Minute, 100*time.Millisecond)
}

// requireImage skips the test unless it was asked for and can run, and builds the command.
func requireImage(t *testing.T) (image, program string) {
	t.Helper()
	image = sandbox.RequireRoot(t)
	if info, err := os.Stat(image); err != nil || info.IsDir() {
		t.Skip("needs an image, not a tree")
	}
	program, err := sandbox.Build(t.Context(), ".", "./cmd/firstlight", t.TempDir())
	require.NoError(t, err)
	return image, program
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	require.NoError(m.t, os.WriteFile(fmt.Sprintf("/proc/%d/root%s", m.system.ID.PID, path), []byte(text), 0o600))
}

// plugServers plugs simulated servers into the networks.
func (m *machine) plugServers(count int) *simulator.Simulator {
	m.t.Helper()
	provisioning, bmc := m.networks["ens1"], m.networks["ens2"]
	require.NoError(m.t, provisioning.IP(m.t.Context(), "route add 172.22.0.0/24 dev "+netns.BridgeName))
	var bmcs []string
	for n := range count {
		bmcs = append(bmcs, fmt.Sprintf("addr add 172.23.0.%d/24 dev %s", 101+n, netns.BridgeName))
	}
	require.NoError(m.t, bmc.IP(m.t.Context(), bmcs...))
	servers, err := simulator.Start(simulator.Config{
		Hosts:     count,
		Boot:      "http://172.22.0.1:6180",
		BMC:       netip.MustParseAddr("172.23.0.101"),
		Username:  "admin",
		Password:  "a-password",
		Namespace: bmc.Path(),
		Wire:      provisioning.Path(),
		NIC:       netns.BridgeName,
	})
	require.NoError(m.t, err)
	m.t.Cleanup(func() { assert.NoError(m.t, servers.Close()) })
	return servers
}

// listServers are the entries of simulated servers in a site.
func listServers(servers *simulator.Simulator) string {
	all := ""
	for _, server := range servers.Hosts() {
		all += "\n" + strings.TrimRight(server.SiteEntry(), "\n")
	}
	return all
}
