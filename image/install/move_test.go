package install_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/try"
)

// TestARackMovesBetweenStickAndMachine: an appliance of the stick has three servers in service, an installed one takes
// them over by an away copy, and a blank stick by a copy of that one. Nobody writes to a BMC or a disk meanwhile.
func TestARackMovesBetweenStickAndMachine(t *testing.T) {
	if !sandbox.HasKind("fleet") {
		t.Skip("makes three appliances one after the other; set FIRSTLIGHT_TEST=native,fleet")
	}
	image, program := requireImage(t)
	programs, err := sandbox.BuildPrograms(t.Context(), t.TempDir())
	require.NoError(t, err)
	m := startMachine(t, image, program)
	servers := m.plugServers(3)
	r := rack{t: t, servers: servers}
	site := fmt.Sprintf(siteText, "ens1", listServers(servers))
	m.write("/mnt/site.yaml", site)

	old := m.startStick(image, programs, t.TempDir(), site)
	r.awaitService(old.run)
	authority := old.must(readAuthority)
	said := old.must("firstlightd backup /run/rack.age")
	r.show("stick# firstlightd backup /run/rack.age", said)
	sealed := readFile(t, old.Path("/run/rack.age"))
	require.NoError(t, old.Close())
	assert.Equal(t, 3, servers.TotalCounters().DiskWrites, "they were not installed")
	servers.ResetCounters()

	m.mustFirstlight("install", "--image", "/mnt/firstlight.img", "--site", "/mnt/site.yaml")
	r.awaitHeld(m.runInside)
	r.isUntouched("held by the installed appliance")
	m.write("/mnt/rack.age", sealed)
	m.write("/mnt/rack.key", recoveryKey.FindString(said)+"\n")
	r.command(m, "firstlight installed shell sh -c 'umask 077; cat >/run/rack.key' <rack.key")
	r.command(m, "firstlight installed shell firstlightd restore - --key /run/rack.key <rack.age")
	began := time.Now()
	r.command(m, "systemctl restart firstlight")
	r.awaitService(m.runInside)
	t.Logf("in service of the installed appliance %.0f s after it was started with the away copy", time.Since(began).Seconds())
	r.staysUntouched(m.runInside, "restored onto the installed appliance")
	assert.Equal(t, authority, m.mustInside(readAuthority), "nodes trust another authority")
	r.command(m, "firstlight installed kubectl get bmh -A")
	m.write("/mnt/rack.age", sealed)
	out, err := m.run("sh", "-c", "cd /mnt && firstlight installed shell sh -c 'umask 077; cat >/run/rack.key' <rack.key && "+
		"firstlight installed shell firstlightd restore - --key /run/rack.key <rack.age")
	assert.Error(t, err)
	assert.Contains(t, out, "it has records of host node1, host node2, host node3, which would be lost")
	assert.Contains(t, out, "(firstlight uninstall, then firstlight install)")

	said = m.must("sh", "-c", "cd /mnt && firstlight installed shell firstlightd backup - 2>said >rack.age; cat said")
	r.show("machine# firstlight installed shell firstlightd backup - >rack.age", said)
	sealed = m.must("cat", "/mnt/rack.age")
	m.must("systemctl", "stop", "firstlight")
	dir := t.TempDir()
	blank := m.startStick(image, programs, dir, site)
	r.awaitHeld(blank.run)
	r.isUntouched("held by the blank stick")
	require.NoError(t, blank.WriteFile("/run/rack.age", []byte(sealed), 0o600))
	require.NoError(t, blank.WriteFile("/run/rack.key", []byte(recoveryKey.FindString(said)+"\n"), 0o600))
	const restore = "firstlightd restore /run/rack.age --key /run/rack.key"
	r.show("blank-stick# "+restore, blank.must(restore))

	require.NoError(t, blank.Close())
	began = time.Now()
	blank = m.startStick(image, programs, dir, site)
	r.awaitService(blank.run)
	t.Logf("in service of the stick %.0f s after it was started with the away copy", time.Since(began).Seconds())
	r.staysUntouched(blank.run, "restored onto the stick")
	assert.Equal(t, authority, blank.must(readAuthority), "nodes trust another authority")
	r.show("blank-stick# kubectl get bmh -A", blank.must("kubectl get bmh -A"))
	goldentest.WriteBlock(t, "../../docs/install.md", "move", r.transcript)
}

var recoveryKey = regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`)

const readAuthority = "cat /var/lib/firstlight/ca/ca.crt"

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// stick is an appliance of the stick, on the networks of a machine.
type stick struct {
	*sandbox.Sandbox
	t *testing.T
}

// startStick starts one whose DATA is in dir. Its interfaces have other names than the machine's.
func (m *machine) startStick(image string, programs sandbox.Programs, dir, site string) stick {
	m.t.Helper()
	s := stick{sandbox.StartAppliance(m.t, image, programs, "move-"+filepath.Base(dir), dir), m.t}
	nics := map[string]string{"ens1": "eth0", "ens2": "eth1", "ens3": "eth2"}
	for its, own := range nics {
		require.NoError(m.t, m.networks[its].Connect(m.t.Context(), s.PID(), "stick", own))
		site = strings.Replace(site, its, own, 1)
	}
	require.NoError(m.t, s.WriteSite(site))
	s.must("systemctl start firstlightd")
	return s
}

func (s stick) run(line string) (string, error) { return s.Run(s.t.Context(), "sh", "-c", line) }

func (s stick) must(line string) string {
	s.t.Helper()
	out, err := s.run(line)
	require.NoError(s.t, err)
	return out
}

// runInside runs a line of shell in the installed appliance.
func (m *machine) runInside(line string) (string, error) {
	return m.run("/mnt/firstlight", "installed", "shell", "sh", "-c", line)
}

func (m *machine) mustInside(line string) string {
	m.t.Helper()
	out, err := m.runInside(line)
	require.NoError(m.t, err, out)
	return out
}

// rack is the servers, whichever appliance they belong to, and what was typed there.
type rack struct {
	t          *testing.T
	servers    *simulator.Simulator
	transcript string
}

// show adds a command and what it said, without its key.
func (r *rack) show(line, said string) {
	text := line + "\n" + recoveryKey.ReplaceAllString(said, "AGE-SECRET-KEY-…")
	r.t.Log(text)
	r.transcript += text
}

// command runs a line of shell on the machine, as root in the folder of what was brought.
func (r *rack) command(m *machine, line string) {
	r.t.Helper()
	r.show("machine# "+line, m.must("sh", "-c", "cd /mnt && "+line))
}

// patience only ends a run that hangs.
const patience = 15 * time.Minute

// awaitHeld waits until all servers are held, because the appliance does not know them.
func (r *rack) awaitHeld(run func(string) (string, error)) {
	r.t.Helper()
	said := ""
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		d := readStatus(c, run)
		if now := try.Describe(d); now != said {
			said = now
			r.t.Log(now)
		}
		require.Len(c, d.Nodes, len(r.servers.Hosts()))
		for _, n := range d.Nodes {
			assert.Contains(c, n.Why, "it runs, and this appliance has no record of it: its BMC says that it is on")
		}
	}, patience, time.Second)
}

func readStatus(c *assert.CollectT, run func(string) (string, error)) (d status.Document) {
	out, err := run("firstlightd status -o json 2>/dev/null")
	require.NoError(c, err)
	require.NoError(c, json.Unmarshal([]byte(out), &d))
	return d
}

// askIronic lists Ironic's nodes by its API.
const askIronic = `kubectl get --raw /v1/nodes --kubeconfig /dev/null --server https://172.22.0.1:6385 \
	--certificate-authority /var/lib/firstlight/ca/ca.crt --username firstlight \
	--password "$(head -n 1 /var/lib/firstlight/secret/ironic.credentials)"`

// awaitService waits until all servers have their image and run, for Metal3 and for Ironic.
func (r *rack) awaitService(run func(string) (string, error)) {
	r.t.Helper()
	said := ""
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		if now := try.Describe(readStatus(c, run)); now != said {
			said = now
			r.t.Log(now)
		}
		out, err := run("kubectl get bmh -n metal3 -o json 2>/dev/null")
		require.NoError(c, err)
		var hosts metal3api.BareMetalHostList
		require.NoError(c, json.Unmarshal([]byte(out), &hosts))
		require.Len(c, hosts.Items, len(r.servers.Hosts()))
		for _, h := range hosts.Items {
			assert.Equal(c, metal3api.StateProvisioned, h.Status.Provisioning.State)
			assert.Equal(c, metal3api.OperationalStatusOK, h.Status.OperationalStatus)
			assert.NotContains(c, h.Annotations, metal3api.PausedAnnotation)
		}

		out, err = run(askIronic)
		require.NoError(c, err)
		var ironic struct {
			Nodes []struct {
				State string `json:"provision_state"`
				Power string `json:"power_state"`
			} `json:"nodes"`
		}
		require.NoError(c, json.Unmarshal([]byte(out), &ironic))
		require.Len(c, ironic.Nodes, len(r.servers.Hosts()))
		for _, n := range ironic.Nodes {
			assert.Equal(c, "active power on", n.State+" "+n.Power)
		}
		for _, h := range r.servers.Hosts() {
			assert.Equal(c, simulator.OnDisk, h.State(), h.Name)
		}
	}, patience, time.Second)
}

// soak is longer than Ironic's look at the power of all nodes, and the operator's at hosts.
const soak = 60 * time.Second

func (r *rack) staysUntouched(run func(string) (string, error), when string) {
	r.t.Helper()
	time.Sleep(soak)
	r.awaitService(run)
	r.isUntouched(when)
}

// isUntouched checks that nobody has written to a BMC or a disk, or started a server, since the first appliance ended.
func (r *rack) isUntouched(when string) {
	r.t.Helper()
	total := r.servers.TotalCounters()
	r.t.Logf("%s: BMC writes %d, disk writes %d, boots %d, BMC reads %d", when, total.BMCWrites, total.DiskWrites,
		total.Boots, total.BMCReads)
	assert.Zero(r.t, total.BMCWrites)
	assert.Zero(r.t, total.DiskWrites)
	assert.Zero(r.t, total.Boots)
	assert.Positive(r.t, total.BMCReads, "nobody has looked")
}
