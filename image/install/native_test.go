package install_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/try"
)

// installSteps and uninstallSteps are how the lines of each step begin.
var (
	installSteps = []string{
		"make ", "copy the root ", "copy site.yaml ", "copy this program ", "write the unit ", "enable and start",
	}
	uninstallSteps = []string{
		"stop and disable ", "remove /etc/systemd/system/firstlight.service", "have systemd ",
		"remove /var/lib/firstlight/mount", "remove /var/lib/firstlight/root.img", "remove /var/lib/firstlight/data", "remove /usr/local/bin/firstlight",
		"remove /var/lib/firstlight/install.json",
	}
)

// TestAnApplianceIsInstalled on a machine with systemd although that is interrupted, inspects a server although it is
// killed, and leaves nothing when it is uninstalled, which is interrupted at every step. What comes after the
// inspection is in TestARackIsTried.
func TestAnApplianceIsInstalled(t *testing.T) {
	image, program := requireImage(t)
	m := startMachine(t, image, program)
	server := listServers(m.plugServers(1))
	m.write("/mnt/site.yaml", fmt.Sprintf(siteText, "ens1", server))
	order := []string{"install", "--image", "/mnt/firstlight.img", "--site", "/mnt/site.yaml"}

	m.must("nft", firewallText)
	before := m.stableParts()
	files := m.must("sh", "-c", everyFile)
	out := m.mustFirstlight(append(order, "--dry-run")...)
	goldentest.WriteBlock(t, "../../docs/install.md", "install", "$ sudo firstlight install --image firstlight.img "+
		"--site site.yaml --dry-run\n"+out)
	for _, line := range installSteps {
		assert.Contains(t, out, "\n  "+line)
	}
	m.write("/mnt/own.yaml", fmt.Sprintf(siteText, "eth0", server))
	out, err := m.firstlight("install", "--image", "/mnt/firstlight.img", "--site", "/mnt/own.yaml")
	assert.Error(t, err)
	assert.Contains(t, out, "eth0 has 192.0.2.7/24: this machine uses it itself")
	m.isAsBefore(before)

	// What is left after each step is compared by TestAPowerCutAtAnyStep.
	m.cut("enable and start", order...)
	m.mustFirstlight("uninstall")
	m.isAsBefore(before)
	m.cut("copy the root ", order...)
	m.cut("enable and start", order...)
	m.mustFirstlight(order...)
	began := time.Now()
	assert.Contains(t, m.mustFirstlight(append(order, "--dry-run")...), "nothing would be done")
	m.await(try.IsReady)
	t.Logf("from the unit's start to Ready: %.0f s", time.Since(began).Seconds())
	m.lendsNothingElse(before)

	// The process of the unit is killed: systemd starts it again, and the appliance continues with its server.
	identity := m.mustFirstlight("installed", "shell", "cat", "/etc/machine-id")
	pid := m.must("systemctl", "show", "--value", "--property", "MainPID", "firstlight.service")
	m.must("kill", "-KILL", strings.TrimSpace(pid))
	m.await(func(d status.Document) bool { return try.IsReady(d) && slices.Contains(inspected, d.Nodes[0].State) })
	assert.Equal(t, identity, m.mustFirstlight("installed", "shell", "cat", "/etc/machine-id"))
	assert.NotEqual(t, pid, m.must("systemctl", "show", "--value", "--property", "MainPID", "firstlight.service"))
	assert.Contains(t, m.mustFirstlight("installed", "kubectl", "get", "bmh", "-n", "metal3", "-o", "name"), "/node1\n")
	assert.Contains(t, m.mustFirstlight("installed", "why", "node1"), "node1")

	m.isUpdated()
	m.leavesInterfacesInUse()

	for _, line := range uninstallSteps {
		m.cut(line, "uninstall")
	}
	assert.Positive(t, m.kills, "every command was done before it was killed")
	m.mustFirstlight("uninstall")
	m.isAsBefore(before)
	assert.Equal(t, strings.Split(files, "\n"), strings.Split(m.must("sh", "-c", everyFile), "\n"))
	assert.Contains(t, m.mustFirstlight("uninstall"), "No appliance is installed")
}

// firewallText is a packet filter of the machine that drops what nobody allowed.
const firewallText = `table inet filter {
	chain input { type filter hook input priority filter; policy drop; ct state established accept; iifname "lo" accept; }
	chain forward { type filter hook forward priority filter; policy drop; }
	chain output { type filter hook output priority filter; policy drop; oifname "lo" accept; }
}`

// isUpdated: another root takes the place of the one that is installed. What is installed is said to be another one, so
// that the same image is new to it.
func (m *machine) isUpdated() {
	m.t.Helper()
	const other = `sed -i 's/"version": "[^"]*"/"version": "0.0.9"/; s/"rootHash": "[^"]*"/"rootHash": "0000"/' ` +
		"/var/lib/firstlight/install.json"
	update := []string{"install", "--image", "/mnt/firstlight.img"}

	// Killed on trial, it takes the root before. The command says so.
	m.must("sh", "-c", other)
	go func() {
		const kill = `until [ -e /var/lib/firstlight/root.previous.img ] &&
				systemctl is-active --quiet firstlight.service; do sleep 0.1; done
			systemctl kill --kill-whom=main --signal=KILL firstlight.service`
		_, _ = m.run("sh", "-c", kill)
	}()
	out, err := m.firstlight(update...)
	assert.Error(m.t, err)
	assert.Contains(m.t, out, "restart the appliance, which tries it\n")
	assert.Contains(m.t, out, "was tried and does not stay: its start ended before it was ready")
	assert.Contains(m.t, out, "version 0.0.9 runs again")
	m.must("sh", "-c", "! ls /var/lib/firstlight/root.*.img")

	identity := m.must("cat", "/var/lib/firstlight/data/machine-id")
	out = m.mustFirstlight(update...)
	assert.Contains(m.t, out, "The appliance is ready with version ")
	m.await(try.IsReady)
	m.must("sh", "-c", "! ls /var/lib/firstlight/root.*.img")
	assert.NotContains(m.t, m.must("cat", "/var/lib/firstlight/install.json"), "0.0.9")
	assert.Equal(m.t, identity, m.must("cat", "/var/lib/firstlight/data/machine-id"))
}

// leavesInterfacesInUse: this machine has begun to use one of them while the appliance did not run. The unit says so.
func (m *machine) leavesInterfacesInUse() {
	m.t.Helper()
	for _, command := range []string{"run", "give-back"} {
		out, err := m.firstlight("installed", command)
		assert.Error(m.t, err)
		assert.Contains(m.t, out, "a command of the unit alone")
	}
	m.must("systemctl", "stop", "firstlight.service")
	m.must("ip", "address", "add", "192.0.2.9/24", "dev", "ens3")
	_, err := m.run("systemctl", "start", "firstlight.service")
	assert.Error(m.t, err)
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		assert.Contains(c, m.must("systemctl", "show", "--property", "StatusText", "firstlight.service"), "ens3 has 192.0.2.9/24")
	}, 10*time.Minute, 100*time.Millisecond)
	assert.Contains(m.t, m.must("ip", "-brief", "address", "show", "dev", "ens3"), "192.0.2.9/24", "it was taken")
	m.must("ip", "address", "del", "192.0.2.9/24", "dev", "ens3")
}

// onlyVersion2 shows a process nothing but the tree of version 2 of control groups. Where version 1 is mounted as well,
// that has the controllers, and the kubelet cannot run.
const onlyVersion2 = `set -e
mount --make-rprivate /
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$@"
`

// TestTheUnitHasItsOwnGroups where there are control groups of version 2 alone: systemd owns the tree, and the
// appliance is below the group that was delegated to its unit.
func TestTheUnitHasItsOwnGroups(t *testing.T) {
	image, program := requireImage(t)
	takeBackControllers(t)
	m := startMachine(t, image, program, "sh", "-c", onlyVersion2, "sh")
	m.write("/mnt/site.yaml", fmt.Sprintf(siteText, "ens1", "[]"))
	before := m.stableParts()
	require.Equal(t, "cgroup2fs\n", m.must("stat", "--file-system", "--format", "%T", "/sys/fs/cgroup"))
	m.mustFirstlight("install", "--image", "/mnt/firstlight.img", "--site", "/mnt/site.yaml")

	const unit = "/sys/fs/cgroup/system.slice/firstlight.service/"
	assert.Equal(t, "", m.must("cat", unit+"cgroup.procs"))
	assert.NotEmpty(t, m.must("cat", unit+"supervisor/cgroup.procs"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := m.run("/mnt/firstlight", "installed", "status")
		require.NoError(c, err, out)
	}, 10*time.Minute, 100*time.Millisecond)
	assert.Contains(t, m.must("/mnt/firstlight", "installed", "shell", "cat", "/proc/1/cgroup"), "0::/init.scope")
	assert.NotEmpty(t, m.must("cat", unit+"appliance/init.scope/cgroup.procs"))

	// Killed, it starts again in the same groups.
	pid := m.must("systemctl", "show", "--value", "--property", "MainPID", "firstlight.service")
	m.must("kill", "-KILL", strings.TrimSpace(pid))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		out, err := m.run("/mnt/firstlight", "installed", "shell", "systemctl", "is-active", "firstlightd")
		require.NoError(c, err, out)
	}, 10*time.Minute, 100*time.Millisecond)
	m.mustFirstlight("uninstall")
	m.isAsBefore(before)
}

// takeBackControllers has the tree of version 2 hand down what it does now when the test has ended. Beside trees of version
// 1, runc starts nothing while it hands down anything ("hybrid mode").
func takeBackControllers(t *testing.T) {
	const path = container.CgroupRoot + "/unified/cgroup.subtree_control"
	before, err := os.ReadFile(path)
	if err != nil {
		return // it is the only tree
	}
	t.Cleanup(func() {
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, name := range strings.Fields(string(after)) {
			if !slices.Contains(strings.Fields(string(before)), name) {
				assert.NoError(t, os.WriteFile(path, []byte("-"+name), 0))
			}
		}
	})
}

// siteText is a site with the interface of provisioning and the entry of a server.
const siteText = `name: site
networks:
  provisioning: {interface: %s, cidr: 172.22.0.0/24}
  bmc: {interface: ens2, cidr: 172.23.0.0/24, address: 172.23.0.1}
  baremetal: {interface: ens3, cidr: 172.24.0.0/24, address: 172.24.0.1}
nodes: %s
`

// inspected are the states of a BareMetalHost from the end of its inspection on (metal3.io/v1alpha1).
var inspected = []string{"available", "provisioning", "provisioned"}

// await waits until the appliance is so.
func (m *machine) await(isSo func(status.Document) bool) {
	m.t.Helper()
	said := ""
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		words := []string{"/mnt/firstlight", "installed", "status", "-o", "json"}
		out, err := container.Command(m.t.Context(), m.system.ID.PID, words...).Output()
		require.NoError(c, err)
		var d status.Document
		require.NoError(c, json.Unmarshal(out, &d))
		if now := try.Describe(d); now != said {
			said = now
			m.t.Log(now)
		}
		assert.True(c, isSo(d))
	}, 10*time.Minute, time.Second)
}

// lendsNothingElse compares what the machine has while the appliance runs: its own network and parameters are as
// before, but for the interfaces that it lent.
func (m *machine) lendsNothingElse(before map[string]string) {
	m.t.Helper()
	during, err := m.parts()
	require.NoError(m.t, err)
	for what, want := range before {
		for _, list := range []string{"ip ", "nft ", "sysctl ", "ss "} {
			if strings.HasPrefix(what, list) {
				own := slices.DeleteFunc(strings.Split(want, "\n"), lent.MatchString)
				assert.Equal(m.t, own, strings.Split(during[what], "\n"), what)
			}
		}
	}
}

// lent are lines about the interfaces that the appliance has.
var lent = regexp.MustCompile(`\bens[123]\b`)
