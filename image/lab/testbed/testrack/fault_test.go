package testrack_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// Images that must not boot, one after the other on one server: what is read then. Each is mended
// in the site; the last one is an ordinary qcow2 image, and the server runs it.
func TestImagesThatAreNotWhatTheSiteSays(t *testing.T) {
	need(t, "rack-all")
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("needs qemu-img: ", err)
	}
	r := newRoom(t, 60*time.Minute, "legacy")
	box := r.node1("")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	random, err := os.Open("/dev/urandom")
	require.NoError(t, err)
	defer random.Close()
	noise, err := io.ReadAll(io.LimitReader(random, 32<<20))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at("noise.raw"), noise, 0o644))
	r.offer(at("noise.raw"), "raw", strings.Repeat("0", 64))
	r.power()
	r.publish(at("noise.raw"))
	r.fails("checksum")

	// A backing file is a path on whatever machine opens the image: the appliance does not offer it.
	r.make("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", at("noise.raw"), at("backed.qcow2"))
	r.publish(at("backed.qcow2"))
	r.offer(at("backed.qcow2"), "qcow2", sum(t, at("backed.qcow2")))
	r.site()
	r.run("firstlightd", "reload")
	r.until("node1's pre-flight", r.imageCheck, func(s string) bool { return strings.Contains(s, "it needs another file") })

	system := at("system.raw")
	require.NoError(t, r.appliance.Assemble(nodes.System, system))
	r.make("qemu-img", "convert", "-f", "raw", "-O", "qcow2", system, at("system.qcow2"))
	r.publish(at("system.qcow2"))
	r.offer(at("system.qcow2"), "qcow2", sum(t, at("system.qcow2")))
	r.site()
	r.run("firstlightd", "reload")
	r.installed(box)

	logs, err := filepath.Glob(r.appliance.DataPath("/var/lib/ironic/log/deploy/*.tar.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, logs, "no logs of the deployments that failed")
	kept := r.make("tar", "-tzf", logs[0])
	t.Logf("%d deploy logs, in %s:\n%s", len(logs), filepath.Base(logs[0]), kept)
	assert.Contains(t, kept, "ironic-python-agent.log")
	read := &fact.RamdiskLogs{Dir: filepath.Dir(logs[0])}
	times := read.Times("node1")
	require.Len(t, times, len(logs), "the page of the node shows them all")
	text, err := read.Text("node1", times[0])
	require.NoError(t, err)
	_, last, _ := strings.Cut(string(text), "ironic-python-agent.log\n")
	assert.Contains(t, last, "ironic_python_agent")
	assert.NotContains(t, last, "\n== ", "the agent's own log is the last")
}

// fails waits until node1 cannot be installed for a reason that holds a word. At no time is it
// called provisioned.
func (r *room) fails(word string) {
	r.t.Helper()
	ask := func() string { return r.host("status.provisioning.state") + ": " + r.host("status.errorMessage") }
	said := r.until("node1", ask, func(s string) bool {
		require.NotContains(r.t, s, "provisioned:")
		return strings.Contains(s, word)
	})
	r.t.Logf("it fails: %s", said)
}

// imageCheck is what the pre-flight says of node1's image.
func (r *room) imageCheck() string {
	d, err := r.appliance.Status(r.ctx)
	if err != nil {
		return err.Error()
	}
	for _, n := range d.Nodes {
		for _, c := range n.Preflight {
			if c.Name == "image" {
				return string(c.State) + ": " + c.Text
			}
		}
	}
	return "not asked"
}

// offer makes the site name an image.
func (r *room) offer(file, format, sha string) {
	r.nodes[0].extra = fmt.Sprintf("    os: {url: \"http://172.22.0.1:6180/test/%s\", sha256: %q, format: %s}\n", filepath.Base(file), sha, format)
}

// publish puts a file where the appliance serves it.
func (r *room) publish(file string) {
	r.t.Helper()
	http := r.appliance.Path("/var/lib/firstlight/http/test")
	require.NoError(r.t, os.MkdirAll(http, 0o755))
	r.make("cp", file, http)
}

// make runs a program of this machine.
func (r *room) make(name string, args ...string) string {
	r.t.Helper()
	out, err := exec.CommandContext(r.ctx, name, args...).CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	return string(out)
}
