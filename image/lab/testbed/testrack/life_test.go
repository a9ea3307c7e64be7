package testrack_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// What happens beside a server in service: it boots from the network, everything on the appliance
// starts again, both databases are lost. Its system and its BMC do not notice.
func TestServerInServiceStaysInService(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 60*time.Minute, "legacy")
	box := r.node1("")
	r.power()
	r.installed(box)

	was := r.bootID()
	require.NoError(t, box.BMC().Press("boot", "pxe"))
	require.NoError(t, box.BMC().Press("reset", "1"))
	r.until("boot of node1", r.bootID, func(s string) bool { return s != was })
	assert.Contains(t, r.ssh("findmnt -no SOURCE /"), "/dev/vda", "it runs from its disk")
	r.agree()

	told, was := box.BMC().Writes(), r.bootID()
	r.guarded()
	r.run("kubectl", "delete", "pods", "--all-namespaces", "--all", "--wait=false")
	// Pods of the node itself are not ended by that.
	r.run("sh", "-c", "pkill -KILL -x etcd; pkill -KILL -f '^kube-(apiserver|controller-manager|scheduler)'")
	r.run("systemctl", "restart", "firstlightd")
	r.served()
	t.Log("every pod and the daemon were started again")
	r.agree()

	r.cut()
	r.power()
	r.served()
	t.Log("the appliance was cut off and started again")
	r.agree()

	r.cut()
	require.NoError(t, os.RemoveAll(r.appliance.DataPath("/var/lib/etcd")))
	require.NoError(t, os.RemoveAll(r.appliance.DataPath("/var/lib/ironic")))
	r.power()
	r.served()
	t.Log("the databases of Kubernetes and of Ironic were lost")
	r.agree()
	assert.Equal(t, was, r.bootID(), "the server was started again")
	assert.Equal(t, told, box.BMC().Writes(), "the BMC was told something")
}

// guarded tries what would erase node1 or switch it off: by the API, and by the site.
func (r *room) guarded() {
	r.t.Helper()
	for _, c := range []struct{ what, command string }{
		{"deleting it would switch it off", "kubectl -n metal3 delete bmh node1"},
		{"changing or removing its image would erase its disk", `kubectl -n metal3 patch bmh node1 --type=json -p [{"op":"remove","path":"/spec/image"}]`},
		{"changing or removing its image would erase its disk", `kubectl -n metal3 patch bmh node1 --type=merge -p {"spec":{"image":{"url":"http://172.22.0.1:6180/images/other.raw"}}}`},
		{"changing externallyProvisioned would erase its disk", `kubectl -n metal3 patch bmh node1 --type=merge -p {"spec":{"externallyProvisioned":true}}`},
	} {
		words := strings.Fields(c.command)
		_, err := r.appliance.Run(r.ctx, words[0], words[1:]...)
		if assert.Error(r.t, err, c.command) {
			r.t.Logf("refused: %s", err)
			assert.ErrorContains(r.t, err, c.what)
			assert.ErrorContains(r.t, err, "the annotation firstlight.dev/allow-wipe")
		}
	}
	was := r.nodes[0].extra
	r.nodes[0].extra = "    os: {url: \"http://172.22.0.1:6180/images/other.raw\", sha256: \"" + strings.Repeat("0", 64) + "\", format: raw}\n"
	r.site()
	r.run("firstlightd", "reload")
	r.until("node1", r.status, func(s string) bool { return strings.Contains(s, "site.yaml names") })
	r.nodes[0].extra = was
	r.site()
	r.run("firstlightd", "reload")
	r.until("node1", r.status, func(s string) bool { return !strings.Contains(s, "site.yaml names") })
}

// served waits until node1 is known as in service, by Ironic too.
func (r *room) served() {
	r.t.Helper()
	_, err := r.appliance.AwaitStage(r.ctx, "site-handed-over", r.t.Output())
	require.NoError(r.t, err)
	r.provisioned()
	ask := func() string {
		out, err := r.appliance.Run(r.ctx, "baremetal", "node", "show", "metal3~node1", "-f", "value", "-c", "provision_state", "-c", "power_state")
		if err != nil {
			return "no answer"
		}
		return strings.Join(strings.Fields(out), " ")
	}
	r.until("Ironic's node1", ask, func(s string) bool { return s == "power on active" || s == "active power on" })
}

// A machine that nobody named is looked at, and not a byte of its disk changes.
func TestUnknownMachineIsInspectedAtMost(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 30*time.Minute, "legacy")
	box := r.plug(testrack.ServerConfig{Name: "stranger", MAC: "52:54:00:00:00:77", Port: 6277, Disk: 256 << 20, MiB: 2048})
	data := []byte(strings.Repeat("somebody's data ", 1<<20))
	require.NoError(t, os.WriteFile(box.DiskFile(), data, 0o644))
	before := sum(t, box.DiskFile())
	r.power()
	require.NoError(t, box.BMC().Press("boot", "pxe"))
	require.NoError(t, box.BMC().Press("power", "1"))
	r.until("the stranger's agent", func() string { return last(box.Console(), "/continue_inspection") }, func(s string) bool { return strings.Contains(s, "error 404") })
	// Its agent goes on and listens, without TLS, but it was told no token: it takes no orders, from nobody.
	at := regexp.MustCompile(`addresses: \S+ \S+ ([0-9.]+)/`).FindStringSubmatch(box.Console())
	require.NotEmpty(t, at, "the stranger has no address")
	order := func() string {
		return r.curl("-k", "-H", "Content-Type: application/json", "-d", `{"name": "standby.power_off", "params": {}}`, "http://"+at[1]+":9999/v1/commands/")
	}
	said := r.until("the stranger's agent", order, func(s string) bool { return strings.Contains(s, "HTTP/") })
	assert.Contains(t, said, " 401 ")
	require.True(t, box.IsOn(), "it was switched off")
	require.NoError(t, box.BMC().Press("power", "0"))
	assert.Equal(t, before, sum(t, box.DiskFile()))
	assert.NotContains(t, r.run("baremetal", "node", "list"), "52:54:00:00:00:77")
	assert.Empty(t, strings.TrimSpace(r.run("kubectl", "get", "bmh", "-A", "-o", "name")), "a host was made: node1 is not plugged in, and nobody named the stranger")
}

// last is the last line of a console that holds a word.
func last(console, word string) string {
	lines := strings.Split(console, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], word) {
			return strings.TrimSpace(lines[i])
		}
	}
	return "silent"
}

// The server loses power while its disk is written. It is never called provisioned before it is,
// and is installed again when the deployment has been given up.
func TestPowerCutWhileTheDiskIsWritten(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 80*time.Minute, "legacy")
	box := r.node1("")
	r.power()
	r.until("bytes on the disk", func() string { return mebibytes(written(t, box)) }, func(string) bool { return written(t, box) > 100<<20 })
	require.NoError(t, box.BMC().Press("power", "0"))
	require.NotEqual(t, "provisioned", r.host("status.provisioning.state"))
	t.Logf("power cut with %s on the disk", mebibytes(written(t, box)))
	r.installed(box)
	logs, err := filepath.Glob(r.appliance.DataPath("/var/lib/ironic/log/deploy/*"))
	require.NoError(t, err)
	t.Logf("deploy logs: %q", logs)
}
