package try_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/try"
)

// user runs the command as a person does.
type user struct {
	t       *testing.T
	program string
	dir     string
	prefix  []string // command line by which his commands are run; none: as they are
}

func (u user) run(args ...string) (string, error) {
	u.t.Helper()
	words := append([]string{"try", "--dir", u.dir}, args...)
	if len(args) > 0 && args[0] == "kubectl" { // all that follows is kubectl's
		words = append([]string{"try", "kubectl", "--dir", u.dir}, args[1:]...)
	}
	line := append(append(slices.Clone(u.prefix), u.program), words...)
	out, err := exec.CommandContext(u.t.Context(), line[0], line[1:]...).CombinedOutput()
	u.t.Logf("# firstlight %s\n%s", strings.Join(words, " "), out)
	return string(out), err
}

func (u user) must(args ...string) string {
	u.t.Helper()
	out, err := u.run(args...)
	require.NoError(u.t, err, out)
	return out
}

// logEnds logs the ends of the rack's logs.
func (u user) logEnds() {
	for _, file := range []string{"supervisor.log", "console.log"} {
		text, _ := os.ReadFile(filepath.Join(u.dir, file))
		u.t.Logf("%s, its end:\n%s", file, text[max(0, len(text)-4000):])
	}
}

// processes is what the rack consists of.
func (u user) processes() try.Processes {
	u.t.Helper()
	now, err := try.Rack{Dir: u.dir}.Processes()
	require.NoError(u.t, err)
	return now
}

// TestARackIsTried: the command brings an appliance up and three servers into service, survives the death of its
// supervisor, and gives back all that it took.
func TestARackIsTried(t *testing.T) {
	image := sandbox.RequireRoot(t)
	programs := t.TempDir()
	program, err := sandbox.Build(t.Context(), ".", "./cmd/firstlight", programs)
	require.NoError(t, err)
	daemon, err := sandbox.Build(t.Context(), ".", "./cmd/firstlightd", programs)
	require.NoError(t, err)
	machine := newMachineMounts(t)
	u := user{t, program, filepath.Join(t.TempDir(), "rack"), machine.prefix()}
	t.Cleanup(func() {
		if t.Failed() {
			u.logEnds()
		}
		_, err := try.Rack{Dir: u.dir}.TearDown()
		assert.NoError(t, err)
	})

	before := machine.look(t)
	began := time.Now()
	up := []string{"--image", image, "--daemon", daemon, "--servers", "3", "--timeout", "8m"}
	out := u.must(up...)
	t.Logf("from the command to three provisioned servers: %.0f s", time.Since(began).Seconds())
	u.writePage(out)
	assert.Contains(t, out, "an appliance in namespaces and 3 simulated servers")
	assert.Contains(t, out, "no system to log in to")
	assert.Equal(t, 3, strings.Count(u.must("kubectl", "get", "bmh", "-A", "--no-headers"), " provisioned "))
	assert.Contains(t, u.must("why", "node1"), "node1")
	assert.Equal(t, 3, strings.Count(u.must("status"), "its server: disk"))
	assert.Equal(t, "systemd\n", u.must("shell", "ps", "-o", "comm=", "-p", "1"))
	assert.Equal(t, "/\n", u.must("shell", "pwd"))
	u.seesPage()
	u.leavesKernelAlone()
	u.takesPrograms()
	u.hasNoRights()
	during := machine.look(t)
	assert.Equal(t, before, during, "nothing of the rack is among this machine's own mounts and links")
	_, err = user{t, program, filepath.Join(t.TempDir(), "other"), u.prefix}.run("--image", image)
	assert.Error(t, err, "one rack at a time")

	// Killed, its supervisor takes all with it; the next start continues.
	now := u.processes()
	inside := namespacesOf(t, now.Appliance.PID)
	require.NoError(t, now.Supervisor.Signal(syscall.SIGKILL))
	u.leavesNothing(machine, before, inside)
	require.NotEmpty(t, container.FindCgroups("firstlight-try"), "nobody was there to remove them")
	began = time.Now()
	u.must("--timeout", "5m")
	t.Logf("from the command to the same servers, again: %.0f s", time.Since(began).Seconds())
	for _, server := range u.writes() {
		assert.Equal(t, 1, server, "a server in service was written to again")
	}

	inside = namespacesOf(t, u.processes().Appliance.PID)
	u.must("down", "--remove")
	assert.NoDirExists(t, u.dir)
	u.leavesNothing(machine, before, inside)
	assert.Empty(t, container.FindCgroups("firstlight-try"))
}

// TestARackIsTriedByIPv6: nothing on the provisioning network has an address of IPv4. Servers lease theirs by DHCPv6, load
// by HTTP, and are inspected and provisioned; the appliance's own Kubernetes is at an address that only it has.
func TestARackIsTriedByIPv6(t *testing.T) {
	image := sandbox.RequireRoot(t)
	programs := t.TempDir()
	program, err := sandbox.Build(t.Context(), ".", "./cmd/firstlight", programs)
	require.NoError(t, err)
	daemon, err := sandbox.Build(t.Context(), ".", "./cmd/firstlightd", programs)
	require.NoError(t, err)
	u := user{t, program, filepath.Join(t.TempDir(), "rack"), newMachineMounts(t).prefix()}
	t.Cleanup(func() {
		if t.Failed() {
			u.logEnds()
		}
		_, err := try.Rack{Dir: u.dir}.TearDown()
		assert.NoError(t, err)
	})

	began := time.Now()
	u.must("--image", image, "--daemon", daemon, "--servers", "3", "--ipv6", "--timeout", "10m")
	t.Logf("from the command to three provisioned servers by IPv6: %.0f s", time.Since(began).Seconds())
	assert.Equal(t, 3, strings.Count(u.must("kubectl", "get", "bmh", "-A", "--no-headers"), " provisioned "))
	assert.Contains(t, u.must("kubectl", "get", "nodes", "-o", "wide"), " 192.0.0.1 ")
	addresses := u.must("shell", "ip", "-o", "address", "show", "dev", "provisioning", "scope", "global")
	assert.Contains(t, addresses, "inet6 fd00:22::1/64")
	assert.Equal(t, 1, strings.Count(addresses, "inet "), "IPv4 but for the appliance itself")
	assert.Contains(t, addresses, "inet 192.0.0.1/32")
	assert.NotContains(t, u.must("status"), "192.0.0.1", "people are told an address that no one reaches")
	leases := u.must("shell", "cat", "/run/firstlight/dhcp/dhcpd.leases")
	assert.Equal(t, 3, strings.Count(leases, "lease fd00:22::"))
	network := u.must("kubectl", "-n", "metal3", "get", "secret", "node1-network-data", "-o", "jsonpath={.data.networkData}")
	text, err := base64.StdEncoding.DecodeString(network)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"ipv6_dhcp"`)

	// As after a power cut.
	require.NoError(t, u.processes().Supervisor.Signal(syscall.SIGKILL))
	u.must("--timeout", "10m")
	for _, server := range u.writes() {
		assert.Equal(t, 1, server, "a server in service was written to again")
	}
}

// inTree is what the command printed as who has the tree as his directory sees it. Its directory is / here, so that paths
// below it are relative.
func (u user) inTree(printed string) string {
	return strings.NewReplacer(" --dir "+u.dir, "", u.program, "bin/firstlight", u.program[1:], "bin/firstlight",
		u.dir, "build/try", u.dir[1:], "build/try").Replace(printed)
}

// writePage writes what the command printed into the walk-through.
func (u user) writePage(out string) {
	u.t.Helper()
	hosts := u.must("kubectl", "get", "bmh", "-A")
	goldentest.WriteBlock(u.t, "../../../docs/try.md", "try",
		"$ sudo bin/firstlight try\n"+u.inTree(out)+"$ sudo bin/firstlight try kubectl get bmh -A\n"+hosts)
}

// seesPage asks for the page by the port of loopback that leads to it.
func (u user) seesPage() {
	u.t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // by an authority that was just made
	}}
	response, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/", u.processes().Page))
	require.NoError(u.t, err)
	defer response.Body.Close()
	assert.Less(u.t, response.StatusCode, 500)
}

// leavesKernelAlone tries, as root of the appliance, to change what is this machine's.
func (u user) leavesKernelAlone() {
	u.t.Helper()
	u.must("shell", "sh", "-c", "echo 77 >/proc/sys/kernel/panic") // a file of the appliance's own
	after, err := os.ReadFile("/proc/sys/kernel/panic")
	require.NoError(u.t, err)
	assert.NotEqual(u.t, "77\n", string(after))

	for _, command := range []string{
		"max=$(cat /proc/sys/kernel/pid_max); echo $max >/proc/sys/kernel/pid_max", "echo 1 >/proc/sys/vm/drop_caches",
		"echo add >/sys/class/net/lo/uevent",
	} {
		_, err := u.run("shell", "sh", "-c", command)
		assert.Error(u.t, err, command)
	}
	u.must("shell", "sh", "-c", "cat /proc/sys/net/ipv4/ip_forward >/proc/sys/net/ipv4/ip_forward") // its own
}

// hasNoRights tells that root of the appliance has given up the machine's clock and modules. Whether the clock can be set
// is not tried.
func (u user) hasNoRights() {
	u.t.Helper()
	var capabilities uint64
	_, err := fmt.Sscanf(u.must("shell", "grep", "CapEff", "/proc/self/status"), "CapEff: %x", &capabilities)
	require.NoError(u.t, err)
	assert.NotZero(u.t, capabilities&(1<<unix.CAP_NET_ADMIN))
	assert.Zero(u.t, capabilities&(1<<unix.CAP_SYS_TIME|1<<unix.CAP_SYS_MODULE))
}

// writes are how often each server's disk was written to.
func (u user) writes() []int {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.dir, "servers.json"))
	require.NoError(u.t, err)
	var kept struct {
		Servers map[string]struct{ Disks []struct{ Writes int } }
	}
	require.NoError(u.t, json.Unmarshal(text, &kept))
	require.Len(u.t, kept.Servers, 3)
	var all []int
	for _, s := range kept.Servers {
		all = append(all, s.Disks[0].Writes)
	}
	return all
}

// leavesNothing waits until nothing of the rack is left: no process in one of its namespaces, no mount, link or loop
// device. The kernel ends mounts a little later than the processes that had them.
func (u user) leavesNothing(machine machineMounts, before machineParts, inside map[string]bool) {
	u.t.Helper()
	require.EventuallyWithT(u.t, func(c *assert.CollectT) {
		assert.Empty(c, processesIn(inside, u.dir))
		assert.Equal(c, before, machine.look(u.t))
		assert.Empty(c, loopsOf(u.dir))
	}, 2*time.Minute, 100*time.Millisecond, "the rack left something")
}

// loopsOf are the loop devices of files in a directory that nobody has mounted any more. One that is mounted while no
// process of the rack lives is another program's: mount(8) takes a loop device that is there for the same file.
func loopsOf(dir string) []string {
	var found []string
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		name := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
		backing, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(backing), dir+"/") && !isMounted(name) {
			found = append(found, name)
		}
	}
	return found
}

// isMounted reports whether some process of this machine sees the device mounted.
func isMounted(device string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, file := range all {
		mounts, _ := os.ReadFile(file)
		if strings.Contains(string(mounts), " "+device+" ") {
			return true
		}
	}
	return false
}

// machineMounts is a mount namespace like this machine's own, in which the rack is started: nobody else mounts there.
type machineMounts struct{ pid int }

// newMachineMounts makes it, without what other programs mount for a while: loop devices and named network namespaces, a
// mount of which ends here too when its file is deleted. As on a machine, what is mounted in namespaces that were made
// from it would be seen there, but for who makes his mounts private.
func newMachineMounts(t *testing.T) machineMounts {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`awk '$5 != "/" && (/ \/dev\/loop/ || / nsfs /) {print $5}' /proc/self/mountinfo | xargs --no-run-if-empty umount --lazy  # others'
		mount --make-rshared / && echo && exec sleep infinity`)
	ready, err := cmd.StdoutPipe()
	require.NoError(t, err)
	holder, err := process.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(holder.Kill)
	_, err = ready.Read(make([]byte, 1))
	require.NoError(t, err)
	return machineMounts{holder.ID.PID}
}

// prefix is the command line by which a command runs there.
func (m machineMounts) prefix() []string {
	return []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", m.pid), "--"}
}

// machineParts are mounts and links of the machine that a rack runs on, a line each.
type machineParts struct{ mounts, links []string }

// look reads them; of the links those that have names of a rack's, since the network is also others'.
func (m machineMounts) look(t *testing.T) machineParts {
	t.Helper()
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", m.pid))
	require.NoError(t, err)
	links, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "-brief", "link").CombinedOutput()
	require.NoError(t, err, string(links))

	seen := machineParts{mounts: strings.Split(string(mounts), "\n")}
	for line := range strings.Lines(string(links)) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "@")
		if slices.Contains([]string{netns.BridgeName, "appliance", "eth0", "eth1", "eth2", "lo"}, name) {
			seen.links = append(seen.links, line)
		}
	}
	return seen
}

// namespacesOf are those of a process which are not this one's.
func namespacesOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	own := map[string]bool{}
	for _, kind := range []string{"mnt", "net", "pid", "uts", "ipc", "cgroup"} {
		here, err := os.Readlink("/proc/self/ns/" + kind)
		require.NoError(t, err)
		there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		require.NoError(t, err)
		assert.NotEqual(t, here, there, "the appliance has this machine's namespace")
		own[there] = true
	}
	return own
}

// processesIn are the processes in one of the namespaces, and those whose command line names the directory.
func processesIn(namespaces map[string]bool, dir string) []string {
	var found []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		words, _ := os.ReadFile(p + "/cmdline")
		if strings.Contains(string(words), dir) {
			found = append(found, p)
			continue
		}
		links, _ := filepath.Glob(p + "/ns/*")
		for _, link := range links {
			if name, err := os.Readlink(link); err == nil && namespaces[name] {
				found = append(found, p)
				break
			}
		}
	}
	return found
}
