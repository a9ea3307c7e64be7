package rack_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	"firstlight.dev/firstlight/image/lab/native"
	"firstlight.dev/firstlight/image/lab/rack"
)

// document is the site of the tests: one server, named by its MAC and its BMC.
const document = `name: rack
networks: {provisioning: {interface: eth0}}
nodes:
  - name: node1
    macs: ["52:54:00:00:00:01"]
    bootMode: %s
    bmc: {address: "ipmi://%s:6230", username: %s, password: %s}
%s    links: [{network: provisioning, mac: "52:54:00:00:00:01", address: 172.22.0.150/24}]
`

func need(t *testing.T, kind string) {
	if !strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ","+kind+",") {
		t.Skip("installs a server in QEMU for minutes; set FIRSTLIGHT_TEST=native," + kind)
	}
}

// room is a rack with its appliance, which may be cut off and started again.
type room struct {
	t        *testing.T
	ctx      context.Context
	root     string
	dir      string // the appliance's DATA
	programs native.Programs
	rack     *rack.Rack
	bed      *native.Bed
	mode     string // firmware of node1, as in site.yaml
	extra    string // further lines of node1 in site.yaml, indented
}

// newRoom makes a rack. patience ends a test that hangs.
func newRoom(t *testing.T, mode string, patience time.Duration) *room {
	root := native.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &room{t: t, ctx: ctx, root: root, dir: t.TempDir(), mode: mode}
	var err error
	r.programs, err = native.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	r.rack, err = rack.New(ctx)
	require.NoError(t, err)
	t.Cleanup(r.rack.Close)
	return r
}

// plug adds a server. Its console is in the log of a test that failed.
func (r *room) plug(s rack.Server) *rack.Box {
	r.t.Helper()
	s.Dir = r.t.TempDir()
	box, err := r.rack.Plug(r.ctx, s)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, box.Unplug()) })
	r.t.Cleanup(func() {
		if text := box.Console(); r.t.Failed() {
			r.t.Logf("the end of the console of %s:\n%s", s.Name, text[max(0, len(text)-8000):])
			r.t.Logf("what its BMC was told: %s", strings.Join(box.BMC().Writes(), ", "))
		}
	})
	return box
}

// node1 plugs in the server that the site names, with the file of a second disk or "".
func (r *room) node1(data string) *rack.Box {
	s := rack.Server{Name: "node1", MAC: "52:54:00:00:00:01", Port: 6230, Disk: 4 << 30, Data: data, MiB: 2048}
	if r.mode == "UEFI" {
		s.Code, s.Vars = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
	}
	return r.plug(s)
}

// power starts the appliance on its DATA and waits until the site is handed over.
func (r *room) power() {
	r.t.Helper()
	r.bed = native.Appliance(r.t, r.root, r.programs, "rack", r.dir)
	require.NoError(r.t, r.rack.Connect(r.ctx, r.bed))
	r.site()
	began := time.Now()
	r.run("systemctl", "start", "firstlightd")
	_, err := r.bed.Await(r.ctx, "site-handed-over", r.t.Output())
	require.NoError(r.t, err)
	r.t.Logf("site handed over after %s", time.Since(began).Round(time.Second))
}

// cut ends the appliance at once. The servers go on.
func (r *room) cut() { require.NoError(r.t, r.bed.Close()) }

// site writes site.yaml.
func (r *room) site() {
	r.t.Helper()
	dir := r.bed.Path("/run/firstlight/site")
	require.NoError(r.t, os.MkdirAll(dir, 0o755))
	text := fmt.Sprintf(document, r.mode, rack.BMCAddr, rack.User, rack.Password, r.extra+r.system())
	require.NoError(r.t, os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(text), 0o644))
}

// system is node1's os: nothing, for the system on the stick, or the raw image that
// $FIRSTLIGHT_NODE_IMAGE names, served by the appliance.
func (r *room) system() string {
	r.t.Helper()
	file := os.Getenv("FIRSTLIGHT_NODE_IMAGE")
	if file == "" {
		return ""
	}
	image, err := os.ReadFile(file)
	require.NoError(r.t, err)
	http := r.bed.Path("/var/lib/firstlight/http")
	require.NoError(r.t, os.MkdirAll(http, 0o755))
	require.NoError(r.t, os.WriteFile(filepath.Join(http, "node.raw"), image, 0o644))
	return fmt.Sprintf("    os: {url: \"http://172.22.0.1:6180/node.raw\", sha256: %x, format: raw}\n", sha256.Sum256(image))
}

func (r *room) run(name string, args ...string) string {
	r.t.Helper()
	out, err := r.bed.Run(r.ctx, name, args...)
	require.NoError(r.t, err)
	return out
}

// host is one field of node1 as the API has it; "" while it cannot be asked.
func (r *room) host(field string) string {
	out, err := r.bed.Run(r.ctx, "kubectl", "-n", "metal3", "get", "bmh", "node1", "-o", "jsonpath={."+field+"}")
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
	d, err := r.bed.Status(r.ctx)
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

// ssh runs a command on node1 as soon as it lets the appliance in, and trusts no other host key
// than the one that was minted for it.
func (r *room) ssh(command string) string {
	r.t.Helper()
	const script = `set -e
dir=/var/lib/firstlight/ssh
printf 'node1 %s\n' "$(ssh-keygen -y -f $dir/hosts/node1)" >/tmp/known
exec ssh -i $dir/id_ed25519 -o UserKnownHostsFile=/tmp/known -o HostKeyAlias=node1 -o StrictHostKeyChecking=yes \
	-o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 firstlight@172.22.0.150 "$0"`
	for {
		out, err := r.bed.Run(r.ctx, "sh", "-c", script, command)
		if err == nil {
			return out
		}
		require.NoError(r.t, r.ctx.Err(), "%s", err)
		time.Sleep(3 * time.Second)
	}
}

// bootID names one run of node1's system.
func (r *room) bootID() string { return r.ssh("cat /proc/sys/kernel/random/boot_id") }

// agree checks that Metal3 and Ironic say the same of node1, and shows both.
func (r *room) agree() {
	r.t.Helper()
	bmh, nodes := r.run("kubectl", "get", "bmh", "-A"), r.run("baremetal", "node", "list")
	r.t.Logf("\n%s\n%s", bmh, nodes)
	assert.Regexp(r.t, `(?m)^metal3 +node1 +provisioned +true`, bmh)
	assert.Regexp(r.t, `(?m)^\| [0-9a-f-]{36} \| metal3~node1 \| .* \| power on +\| active +\| False +\|$`, nodes)
	assert.Equal(r.t, r.host("status.provisioning.ID"), strings.TrimSpace(r.run("baremetal", "node", "show", "metal3~node1", "-f", "value", "-c", "uuid")))
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
func written(t *testing.T, box *rack.Box) int64 {
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
