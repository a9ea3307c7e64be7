package testrack_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/redfish"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// node is a server that the site names: the first is node1.
type node struct {
	number int
	mode   string // firmware, as in site.yaml
	extra  string // further lines in site.yaml, indented
	scheme string // of its BMC's address; "": ipmi
	roomy  bool   // its disk has room for the images of a cluster
	text   string // all of it in site.yaml, in place of what follows from the above; "": that
}

// disk is the size of its disk, in bytes.
func (n node) disk() int64 {
	if n.roomy {
		return 8 << 30
	}
	return 4 << 30
}

func (n node) name() string    { return fmt.Sprintf("node%d", n.number) }
func (n node) mac() string     { return fmt.Sprintf("52:54:00:00:00:%02x", n.number) }
func (n node) port() int       { return 6229 + n.number } // of its BMC
func (n node) address() string { return fmt.Sprintf("172.22.0.%d", 149+n.number) }

// bmc is the address of its BMC in site.yaml.
func (n node) bmc() string {
	if n.scheme == "" {
		return fmt.Sprintf("ipmi://%s:%d", testrack.BMCAddr, n.port())
	}
	return fmt.Sprintf("%s://%s:%d%s", n.scheme, testrack.BMCAddr, n.port(), redfish.SystemPath)
}

// entry is the node's in site.yaml: known by its MAC and its BMC.
func (n node) entry() string {
	if n.text != "" {
		return n.text
	}
	return fmt.Sprintf(`  - name: %s
    macs: [%q]
    bootMode: %s
    bmc: {address: %q, username: %s, password: %s}
%s    links: [{network: provisioning, mac: %q, address: %s/24}]
`, n.name(), n.mac(), n.mode, n.bmc(), testrack.User, testrack.Password, n.extra, n.mac(), n.address())
}

func need(t *testing.T, kind string) {
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ","+kind+",") {
		t.Skip("runs servers in QEMU; set FIRSTLIGHT_TEST=native," + kind)
	}
}

// room is a rack with its appliance, which may be cut off and started again.
type room struct {
	t         *testing.T
	ctx       context.Context
	root      string
	dir       string // the appliance's DATA
	programs  sandbox.Programs
	rack      *testrack.Rack
	appliance *sandbox.Sandbox
	nodes     []*node
	clusters  string // as in site.yaml
	settings  string // further ones of the provisioning network, as in site.yaml
}

// newRoom makes a rack for nodes with these firmwares; racks of several tests may live at once. patience
// ends a test that hangs.
func newRoom(t *testing.T, patience time.Duration, modes ...string) *room {
	root := sandbox.RequireRoot(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &room{t: t, ctx: ctx, root: root, dir: t.TempDir(), clusters: "[]"}
	for i, mode := range modes {
		r.nodes = append(r.nodes, &node{number: i + 1, mode: mode})
	}
	var err error
	r.programs, err = sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	r.rack, err = testrack.New(ctx)
	require.NoError(t, err)
	t.Log(r.rack.Accelerator())
	t.Cleanup(func() { assert.NoError(t, r.rack.Close()) })
	return r
}

// plug adds a server. Its console is in the log of a test that failed.
func (r *room) plug(s testrack.ServerConfig) *testrack.Server {
	r.t.Helper()
	s.Dir = r.t.TempDir()
	box, err := r.rack.Plug(r.ctx, s)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, box.Unplug()) })
	r.t.Cleanup(func() {
		if text := box.Console(); r.t.Failed() {
			r.t.Logf("the end of the console of %s:\n%s", s.Name, text[max(0, len(text)-8000):])
			r.t.Logf("what its BMC was told: %s", strings.Join(box.Writes(), ", "))
		}
	})
	return box
}

// node1 plugs in the first server that the site names, with the file of a second disk or "".
func (r *room) node1(data string) *testrack.Server {
	r.t.Helper()
	return r.plugNode(r.nodes[0], data)
}

func (r *room) plugNode(n *node, data string) *testrack.Server {
	r.t.Helper()
	return r.plug(n.server(data))
}

// server is what the node is made of, with the file of a second disk or "".
func (n node) server(data string) testrack.ServerConfig {
	s := testrack.ServerConfig{Name: n.name(), MAC: n.mac(), Port: n.port(), Disk: n.disk(), Data: data, MiB: 2048, Redfish: n.scheme != ""}
	if n.mode == "UEFI" {
		s.Firmware = lab.UEFI
	}
	return s
}

// power starts the appliance on its DATA and waits until the site is handed over.
func (r *room) power() {
	r.t.Helper()
	r.switchOn()
	began := time.Now()
	_, err := r.appliance.AwaitStage(r.ctx, "site-handed-over", r.t.Output())
	require.NoError(r.t, err)
	r.t.Logf("site handed over after %s", time.Since(began).Round(time.Second))
}

// switchOn starts the appliance on its DATA.
func (r *room) switchOn() {
	r.t.Helper()
	r.appliance = sandbox.StartAppliance(r.t, r.root, r.programs, r.rack.Name(), r.dir)
	require.NoError(r.t, r.rack.Connect(r.ctx, r.appliance))
	r.site()
	r.run("systemctl", "start", "firstlightd")
}

// cut ends the appliance at once. The servers go on.
func (r *room) cut() { require.NoError(r.t, r.appliance.Close()) }

// site writes site.yaml.
func (r *room) site() {
	r.t.Helper()
	text := "name: rack\nnetworks: {provisioning: {interface: eth0" + r.settings + "}}\n"
	if len(r.nodes) > 0 {
		text += "nodes:\n"
	}
	for _, n := range r.nodes {
		text += n.entry()
	}
	text += "clusters: " + r.clusters + "\n"
	require.NoError(r.t, r.appliance.WriteSite(text))
}

func (r *room) run(name string, args ...string) string {
	r.t.Helper()
	out, err := r.appliance.Run(r.ctx, name, args...)
	require.NoError(r.t, err)
	return out
}

// host is one field of node1 as the API has it; "" while it cannot be asked.
func (r *room) host(field string) string {
	out, err := r.appliance.Run(r.ctx, "kubectl", "-n", "metal3", "get", "bmh", "node1", "-o", "jsonpath={."+field+"}")
	if err != nil {
		return ""
	}
	return out
}

// until asks until something is so, and logs what it answers whenever that changes.
func (r *room) until(what string, ask func() string, so func(string) bool) string {
	r.t.Helper()
	began := time.Now()
	for was := "?"; ; time.Sleep(time.Second) {
		is := ask()
		if is != was {
			r.t.Logf("%s %5s %s: %s", time.Now().Format("15:04:05"), time.Since(began).Round(time.Second), what, is)
		}
		was = is
		if so(is) {
			return is
		}
		require.NoError(r.t, r.ctx.Err(), "%s is still %s", what, is)
	}
}

// provisioned waits until node1 is in service.
func (r *room) provisioned() {
	r.t.Helper()
	ask := func() string {
		return strings.TrimSpace(r.host("status.provisioning.state") + " " + r.host("status.errorMessage"))
	}
	r.until("node1", ask, func(s string) bool { return s == "provisioned" })
}

// status is what the daemon says of node1.
func (r *room) status() string {
	d, err := r.appliance.Status(r.ctx)
	if err != nil {
		return err.Error()
	}
	for _, n := range d.Nodes {
		if n.Name == "node1" {
			return n.State + ": " + n.Error
		}
	}
	return "not there"
}

// ssh runs a command on node1.
func (r *room) ssh(command string) string {
	r.t.Helper()
	return r.sshTo(r.nodes[0], command)
}

// sshTo runs a command on a node as soon as it lets the appliance in, and trusts no other host key
// than the one that its ramdisk told.
func (r *room) sshTo(n *node, command string) string {
	r.t.Helper()
	const script = `set -e
dir=/var/lib/firstlight/ssh
printf '%s %s\n' "$1" "$(cat $dir/known/$1.pub)" >/tmp/known-$1
exec ssh -i $dir/id_ed25519 -o UserKnownHostsFile=/tmp/known-$1 -o HostKeyAlias=$1 -o StrictHostKeyChecking=yes \
	-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 firstlight@$2 "$0"`
	for {
		out, err := r.appliance.Run(r.ctx, "sh", "-c", script, command, n.name(), n.address())
		if err == nil {
			return out
		}
		require.NoError(r.t, r.ctx.Err(), "%s", err)
		time.Sleep(3 * time.Second)
	}
}

// bootID names one run of node1's system.
func (r *room) bootID() string { return r.ssh("cat /proc/sys/kernel/random/boot_id") }

// agree checks that Metal3 and Ironic say the same of every node, and shows both.
func (r *room) agree() {
	r.t.Helper()
	bmh, nodes := r.run("kubectl", "get", "bmh", "-A"), r.run("baremetal", "node", "list")
	r.t.Logf("\n%s\n%s", bmh, nodes)
	for _, n := range r.nodes {
		assert.Regexp(r.t, `(?m)^metal3 +`+n.name()+` +provisioned +([a-z]+ +)?true`, bmh)
		assert.Regexp(r.t, `(?m)^\| [0-9a-f-]{36} \| metal3~`+n.name()+` \| .* \| power on +\| active +\| False +\|$`, nodes)
		id := r.run("kubectl", "-n", "metal3", "get", "bmh", n.name(), "-o", "jsonpath={.status.provisioning.ID}")
		assert.Equal(r.t, id, strings.TrimSpace(r.run("baremetal", "node", "show", "metal3~"+n.name(), "-f", "value", "-c", "uuid")))
	}
}

// sum is the sha256 of a file: a disk, an image.
func sum(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// written is how many bytes of a server's disk hold data.
func written(t *testing.T, box *testrack.Server) int64 {
	t.Helper()
	out, err := exec.Command("du", "--block-size=1", box.DiskFile()).Output()
	require.NoError(t, err)
	var n int64
	_, err = fmt.Fscan(bytes.NewReader(out), &n)
	require.NoError(t, err)
	return n
}

// mebibytes prints a size in steps of 64 MiB.
func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>26<<6) }
