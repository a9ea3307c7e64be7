package rack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/rack"
)

// What happens beside a server in service: it boots from the network, everything on the appliance
// starts again, both databases are lost. Its system and its BMC do not notice.
func TestServerInServiceStaysInService(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, "legacy", 60*time.Minute)
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
	r.run("kubectl", "delete", "pods", "--all-namespaces", "--all", "--wait=false")
	for _, part := range []string{"etcd", "kube-apiserver", "kube-controller", "kube-scheduler"} {
		r.run("pkill", "-KILL", "-f", "^"+part)
	}
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
	require.NoError(t, os.RemoveAll(r.bed.Kept("/var/lib/etcd")))
	require.NoError(t, os.RemoveAll(r.bed.Kept("/var/lib/ironic")))
	r.power()
	r.served()
	t.Log("the databases of Kubernetes and of Ironic were lost")
	r.agree()
	assert.Equal(t, was, r.bootID(), "the server was started again")
	assert.Equal(t, told, box.BMC().Writes(), "the BMC was told something")
}

// served waits until node1 is known as in service, by Ironic too.
func (r *room) served() {
	r.t.Helper()
	_, err := r.bed.Await(r.ctx, "site-handed-over", r.t.Output())
	require.NoError(r.t, err)
	r.provisioned()
	ask := func() string {
		out, err := r.bed.Run(r.ctx, "baremetal", "node", "show", "metal3~node1", "-f", "value", "-c", "provision_state", "-c", "power_state")
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
	r := newRoom(t, "legacy", 30*time.Minute)
	box := r.plug(rack.Server{Name: "stranger", MAC: "52:54:00:00:00:77", Port: 6277, Disk: 256 << 20, MiB: 2048})
	data := []byte(strings.Repeat("somebody's data ", 1<<20))
	require.NoError(t, os.WriteFile(box.DiskFile(), data, 0o644))
	before := sum(t, box.DiskFile())
	r.power()
	require.NoError(t, box.BMC().Press("boot", "pxe"))
	require.NoError(t, box.BMC().Press("power", "1"))
	r.until("the stranger's agent", func() string { return last(box.Console(), "inspect") }, func(s string) bool { return strings.Contains(s, "404") })
	time.Sleep(20 * time.Second) // whatever an agent does next that nobody answered
	require.True(t, box.On(), "it was switched off")
	require.NoError(t, box.BMC().Press("power", "0"))
	assert.Equal(t, before, sum(t, box.DiskFile()))
	assert.NotContains(t, r.run("baremetal", "node", "list"), "52:54:00:00:00:77")
	assert.Contains(t, r.run("kubectl", "get", "bmh", "-A"), "node1")
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
	r := newRoom(t, "legacy", 80*time.Minute)
	box := r.node1("")
	r.power()
	r.until("bytes on the disk", func() string { return mebibytes(written(t, box)) }, func(string) bool { return written(t, box) > 100<<20 })
	require.NoError(t, box.BMC().Press("power", "0"))
	require.NotEqual(t, "provisioned", r.host("status.provisioning.state"))
	t.Logf("power cut with %s on the disk", mebibytes(written(t, box)))
	r.installed(box)
	logs, err := filepath.Glob(r.bed.Kept("/var/lib/ironic/log/deploy/*"))
	require.NoError(t, err)
	t.Logf("deploy logs: %q", logs)
}
