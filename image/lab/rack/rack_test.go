package rack_test

import (
	"context"
	"crypto/sha256"
	"fmt"
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

// document is the site of the test: one server, named by its MAC and its BMC.
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

func TestBlankServerGetsItsSystemBIOS(t *testing.T) {
	need(t, "rack")
	install(t, rack.Server{Name: "node1"}, "legacy")
}

func TestBlankServerGetsItsSystemUEFI(t *testing.T) {
	need(t, "rack")
	install(t, rack.Server{Name: "node1", Code: "/usr/share/OVMF/OVMF_CODE_4M.fd", Vars: "/usr/share/OVMF/OVMF_VARS_4M.fd"}, "UEFI")
}

// install brings up the appliance, plugs in a blank server and waits until its installed
// system answers on SSH with the host key that the appliance minted for it.
func install(t *testing.T, s rack.Server, mode string) {
	root := native.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	t.Cleanup(cancel)
	programs, err := native.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	bed := native.Appliance(t, root, programs, "rack", t.TempDir())
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := bed.Run(ctx, name, args...)
		require.NoError(t, err)
		return out
	}
	require.NoError(t, rack.Cable(ctx, bed))
	s.Dir, s.MAC, s.Port, s.Disk, s.MiB = t.TempDir(), "52:54:00:00:00:01", 6230, 4<<30, 2048
	box, err := rack.Plug(ctx, bed, s)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, box.Unplug()) })
	t.Cleanup(func() {
		if text := box.Console(); t.Failed() {
			t.Logf("the end of the server's console:\n%s", text[max(0, len(text)-6000):])
		}
	})
	site := bed.Path("/run/firstlight/site")
	require.NoError(t, os.MkdirAll(site, 0o755))
	text := fmt.Sprintf(document, mode, rack.BMCAddr, rack.User, rack.Password, system(t, bed))
	require.NoError(t, os.WriteFile(filepath.Join(site, "site.yaml"), []byte(text), 0o644))

	began := time.Now()
	run("systemctl", "start", "firstlightd")
	_, err = bed.Await(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	t.Logf("site handed over after %s", time.Since(began).Round(time.Second))

	begun := time.Now()
	for was := ""; was != "provisioned"; time.Sleep(2 * time.Second) {
		require.NoError(t, ctx.Err(), "host node1 is still %s", was)
		state, err := bed.Run(ctx, "kubectl", "-n", "metal3", "get", "bmh", "node1", "-o", "jsonpath={.status.provisioning.state}")
		if err == nil && state != was {
			t.Logf("%s %q after %s", time.Now().Format("15:04:05"), state, time.Since(begun).Round(time.Second))
			was = state
		}
	}
	t.Log("\n" + run("kubectl", "get", "bmh", "-A"))
	// A bed's root is a chroot: kubectl exec would not land in the pod. The command that it
	// would run is run there instead.
	client := func(args string) string {
		return run("sh", "-c", "cd /; exec nsenter --target $(pgrep -of '/usr/bin/ironic --config') --all --root --wd=/ /usr/lib/firstlight/client "+args)
	}
	t.Log("\n" + client("baremetal node list"))
	assert.Contains(t, client("openstack baremetal node list"), "active")
	assert.Contains(t, client("baremetal node show metal3~node1 -f json -c parent_node"), "null", "a PATCH made the node its own parent")

	log := login(t, ctx, bed)
	t.Logf("logged in after %s:\n%s", time.Since(begun).Round(time.Second), log)
	assert.Contains(t, log, "node1")

	code := func(url string) string {
		out, _ := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", bed.PID()), "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
			"--cacert", bed.Path("/var/lib/firstlight/ca/ca.crt"), url).Output()
		return string(out)
	}
	assert.Equal(t, "401", code("https://172.22.0.1:6385/v1/nodes"), "Ironic answers without a password")
	assert.Equal(t, "000", code("http://172.22.0.1:6385/v1/nodes"), "Ironic answers without TLS")
}

// system is the site's os: nothing, for the system on the stick, or the raw image that
// $FIRSTLIGHT_NODE_IMAGE names, served by the appliance.
func system(t *testing.T, bed *native.Bed) string {
	t.Helper()
	file := os.Getenv("FIRSTLIGHT_NODE_IMAGE")
	if file == "" {
		return ""
	}
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	http := bed.Path("/var/lib/firstlight/http")
	require.NoError(t, os.MkdirAll(http, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(http, "node.raw"), image, 0o644))
	return fmt.Sprintf("    os: {url: \"http://172.22.0.1:6180/node.raw\", sha256: %x, format: raw}\n", sha256.Sum256(image))
}

// login waits until the server lets the appliance in, and trusts no other host key than the
// one that was minted for it.
func login(t *testing.T, ctx context.Context, bed *native.Bed) string {
	t.Helper()
	const ssh = `set -e
dir=/var/lib/firstlight/ssh
printf 'node1 %s\n' "$(ssh-keygen -y -f $dir/hosts/node1)" >/tmp/known
exec ssh -i $dir/id_ed25519 -o UserKnownHostsFile=/tmp/known -o HostKeyAlias=node1 -o StrictHostKeyChecking=yes \
	-o BatchMode=yes -o ConnectTimeout=20 firstlight@172.22.0.150 'hostname; uname -r; cloud-init status --wait; ip -br addr; df -h /'`
	var last error
	for ctx.Err() == nil {
		out, err := bed.Run(ctx, "sh", "-c", ssh)
		if err == nil {
			return out
		}
		last = err
		time.Sleep(3 * time.Second)
	}
	require.NoError(t, last)
	return ""
}
