package virtualrack

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab"
)

// nobody is the user that a rack is run as when the test is root: it needs no rights at all.
const nobody = 65534

// command is the firstlight command as a person without rights calls it.
type command struct {
	t    *testing.T
	path string
	dir  string // the rack's
}

// buildCommand builds the command, if tests of this kind are asked for: chain, which is one server from power
// on to a cluster, or qemu-all, which take an hour and more.
func buildCommand(t *testing.T, kind string) command {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), kind) {
		t.Skipf("runs a rack in QEMU, a quarter of an hour and more; run with FIRSTLIGHT_TEST=%s", kind)
	}
	tmp := t.TempDir()
	c := command{t: t, path: filepath.Join(tmp, "firstlight"), dir: filepath.Join(tmp, "rack")}
	build := exec.Command("go", "build", "-o", c.path, "../../../cmd/firstlight")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // another system may run it, with another libc
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(tmp, nobody, nobody))
		require.NoError(t, os.Chmod(filepath.Dir(tmp), 0o711)) // the test's own, which is its user's alone
	}
	return c
}

// newCommand is the command, and with the test the end of the rack that it makes.
func newCommand(t *testing.T, kind string) command {
	c := buildCommand(t, kind)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("why:\n" + c.try("why"))
			for _, m := range []string{"appliance", "node-1", "node-2"} {
				text := c.try("console", m)
				t.Logf("the end of %s:\n%s", m, text[max(0, len(text)-5000):])
			}
			log, _ := os.ReadFile(filepath.Join(c.dir, supervisorLog))
			t.Logf("the end of %s:\n%s", supervisorLog, log[max(0, len(log)-5000):])
		}
		_, err := TearDown(c.dir)
		assert.NoError(t, err)
	})
	return c
}

func (c command) exec(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, append([]string{"lab", "--dir", c.dir}, args...)...)
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

func (c command) try(args ...string) string {
	out, err := c.exec(context.Background(), args...).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

func (c command) run(args ...string) string {
	c.t.Helper()
	cmd := c.exec(c.t.Context(), args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	require.NoError(c.t, err, "firstlight lab %s: %s%s", strings.Join(args, " "), out, complaints.String())
	return string(out)
}

// image is the stick's image under a name that nobody can read, too.
func (c command) image() string {
	c.t.Helper()
	image := os.Getenv("FIRSTLIGHT_IMAGE")
	if image == "" {
		image = "../../../build/firstlight.img"
	}
	near := filepath.Join(filepath.Dir(c.path), "stick.img")
	if _, err := os.Stat(near); err == nil || os.Link(image, near) == nil {
		return near
	}
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", image, near).CombinedOutput()
	require.NoError(c.t, err, string(out))
	return near
}

// up waits until the rack has come to its end, and returns what was printed, which goes to the test's log, too. The
// deadline only ends a hung run.
func (c command) up(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 100*time.Minute)
	defer cancel()
	var printed bytes.Buffer
	cmd := c.exec(ctx, append([]string{"up", "--image", c.image(), "--wait"}, args...)...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&printed, c.t.Output()), c.t.Output()
	require.NoError(c.t, cmd.Run())
	return printed.String()
}

func (c command) status() Status {
	var s Status
	require.NoError(c.t, json.Unmarshal([]byte(c.run("status", "-o", "json")), &s))
	return s
}

// processes are those of the rack; none of them is root's.
func (c command) processes() []startedProcess {
	c.t.Helper()
	var r runningFileDoc
	require.NoError(c.t, readJSON(filepath.Join(c.dir, runningFile), &r))
	all := append(r.Children, startedProcess{"supervisor", r.Supervisor})
	for _, p := range all {
		info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.PID)))
		require.NoError(c.t, err)
		assert.NotZero(c.t, info.Sys().(*syscall.Stat_t).Uid, "%s runs as root", p.Name)
	}
	return all
}

// remove ends the rack; nothing of it is left.
func (c command) remove(all []startedProcess) {
	c.t.Helper()
	c.t.Log(c.run("down", "--remove"))
	for _, p := range all {
		assert.False(c.t, p.Alive(), "%s is left", p.Name)
	}
	assert.NoDirExists(c.t, c.dir)
}

// askBMC has the appliance ask node-1's BMC how to log in to it: Get Channel Authentication
// Capabilities (IPMI 2.0, 22.13), with which every login begins, and prints the answer's octets.
const askBMC = `timeout 60 bash -c 'exec 3<>/dev/udp/172.23.0.101/623 && printf "\x06\x00\xff\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x20\x18\xc8\x81\x00\x38\x8e\x04\xb5" >&3 && ` +
	`dd bs=64 count=1 <&3 2>/dev/null | od -An -tx1 -v -w64'`

// TestOneServerBecomesACluster is the whole product on the smallest rack, as a person without rights tries it:
// power on, and a blank server becomes a verified cluster. Then the rack goes without a trace.
func TestOneServerBecomesACluster(t *testing.T) {
	c := newCommand(t, "chain")
	out := c.run("up", "--image", c.image(), "--nodes", "1")
	assert.Contains(t, out, "The rack is on: an appliance and 1 node, in ")
	assert.Contains(t, c.run("up"), "The rack was on already")

	// The appliance itself is asked, through the endpoint: stages are known from its own words only.
	var s Status
	begun := time.Now()
	for {
		s = c.status()
		require.Empty(t, s.Faults)
		if len(s.Machines[0].Stages) > 0 {
			break
		}
		require.Less(t, time.Since(begun), lab.BootDeadline, "the appliance is %s", s.Machines[0].Phase)
		time.Sleep(time.Second)
	}
	t.Logf("asked after %s: %s", time.Since(begun).Round(time.Second), s.Machines[0].Phase)
	require.Len(t, s.Machines, 2)
	assert.True(t, s.Machines[0].On)
	assert.NotEmpty(t, s.Machines[0].Why)
	assert.False(t, s.Machines[1].On, "a node is switched on by the appliance, and not so early")
	assert.Equal(t, PhaseWaiting, s.Machines[1].Phase)
	assert.False(t, s.Over, s.Text)
	why := c.run("why")
	assert.Contains(t, why, "appliance: ")
	assert.Contains(t, why, "node-1: "+PhaseWaiting)
	c.run("ssh", Appliance, "true")
	assert.Contains(t, c.run("ssh", Appliance, askBMC), "10 81 1c 63 20 00 38 00 ", "the answer is another one")

	c.up()
	c.installed("node-1")
	assert.Contains(t, c.run("kubectl", "get", "bmh", "-A"), "provisioned")
	for _, m := range []string{"appliance", "node-1"} {
		assert.Empty(t, c.run("ssh", m, "ip", "route", "show", "default"), "%s has a way out", m)
	}
	assert.Equal(t, 1, strings.Count(c.nodesReady(), " condition met\n"))
	assert.Equal(t, "True", strings.TrimSpace(c.run("ssh", Appliance,
		`kubectl get bpa -o jsonpath='{.items[*].status.conditions[?(@.type=="Verified")].status}'`)))
	s = c.status()
	assert.True(t, s.Over && !s.Failed, s.Text)
	assert.Empty(t, s.Faults)

	all := c.processes()
	require.Len(t, all, 4) // two machines, one BMC, the supervisor
	c.remove(all)
}

// TestTwoNodes installs a BIOS and a UEFI server at once, and makes a cluster of them, as make demo does with N=2.
func TestTwoNodes(t *testing.T) {
	c := newCommand(t, "qemu-all")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	screens := make(chan string, 1)
	go func() { screens <- c.watchInstallation(ctx) }()
	printed := c.up("--nodes", "2", "--firmware", "mixed")
	stop()
	screen := <-screens
	assert.NotEmpty(t, screen, "no cluster was being installed")
	if goldentest.IsUpdating() {
		require.NoError(t, os.WriteFile("../../../docs/lab-screen.svg", []byte(drawScreen(screen)), 0o644))
		goldentest.WriteBlock(t, "../../../README.md", "make demo", chooseLines(printed))
		goldentest.WriteBlock(t, "../../../docs/performance.md", "phases of make demo", phaseLines(printed))
	}
	c.installed("node-1", "node-2")
	assert.Contains(t, c.run("ssh", "node-2", "ls", "/sys/firmware"), "efi")
	assert.NotContains(t, c.run("ssh", "node-1", "ls", "/sys/firmware"), "efi")
	assert.Equal(t, 2, strings.Count(c.nodesReady(), " condition met\n"))
}

// nodesReady waits until the nodes of the workload cluster are ready, a line each.
func (c command) nodesReady() string {
	c.t.Helper()
	return c.run("ssh", Appliance, "kubectl --kubeconfig /opt/kud/multi-cluster/"+clusterName+"/artifacts/admin.conf wait --for=condition=Ready nodes --all --timeout=10m")
}

// installed asks the nodes themselves.
func (c command) installed(nodes ...string) {
	c.t.Helper()
	for _, n := range nodes {
		assert.Equal(c.t, n+"\n", c.run("ssh", n, "hostname"))
	}
	assert.Empty(c.t, c.status().Outside, "frames were addressed to the world outside")
}
