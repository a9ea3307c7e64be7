package nodes_test

import (
	"crypto/ed25519"
	"encoding/pem"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// driveLabels is where Ignition looks for config drives in a sandbox, which has no udev.
const driveLabels = "/run/by-label"

// buildIgnition compiles the Ignition whose types the appliance uses, set up as Debian has things.
func buildIgnition(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/blkid/blkid.h"); err != nil && os.Getenv("CGO_CFLAGS") == "" {
		t.Skip("Ignition is compiled with libblkid-dev, minutes: scripts/deps e2e")
	}

	const module = "github.com/coreos/ignition/v2"
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ignition")
	set := []string{"-X " + module + "/internal/version.Raw=of-a-test"}
	for name, value := range map[string]string{
		"diskByLabelDir": driveLabels, "selinuxRelabel": "false", "writeAuthorizedKeysFragment": "false",
	} {
		set = append(set, "-X "+module+"/internal/distro."+name+"="+value)
	}
	build := exec.Command("go", "build", "-C", strings.TrimSpace(string(dir)), "-mod=readonly",
		"-ldflags", strings.Join(set, " "), "-o", file, "./internal")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// makeDrive is a config drive with user data. The kernel of a sandbox may know no ISO 9660: it is of ext4.
func makeDrive(t *testing.T, userData []byte) []byte {
	t.Helper()
	tree := t.TempDir()
	latest := filepath.Join(tree, "openstack", "latest")
	require.NoError(t, os.MkdirAll(latest, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(latest, "user_data"), userData, 0o644))
	file := filepath.Join(t.TempDir(), "drive")
	out, err := exec.Command("mkfs.ext4", "-q", "-L", "config-2", "-d", tree, file, "4M").CombinedOutput()
	require.NoError(t, err, "%s", out)
	drive, err := os.ReadFile(file)
	require.NoError(t, err)
	return drive
}

// fillHostKey is what the ramdisk makes of user data, and the host key as in authorized_keys.
func fillHostKey(t *testing.T, userData []byte) (filled []byte, hostKey string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	filled, had, err := hostkey.Fill(userData, pem.EncodeToMemory(block))
	require.NoError(t, err)
	require.True(t, had)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return filled, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// siteNode is the user data of a node of a site whose image reads Ignition.
func siteNode(t *testing.T, access string) []byte {
	t.Helper()
	s, problems := site.Load("site.yaml", []byte(`
name: rack-7
networks: {baremetal: {cidr: 10.10.110.0/24, gateway: 10.10.110.1, dns: [10.10.110.2]}}
nodes: [{name: told, macs: ["52:54:00:00:00:01"], os: {image: our-flatcar.raw, username: operator}}]
`))
	require.Empty(t, problems)
	s = s.WithDefaults()
	n, err := metal3.NewNodeObjects(s, s.Nodes[0], metal3.Appliance{
		Time:   []netip.Addr{nodes.Address.Addr()},
		Images: map[string]metal3.Image{"our-flatcar.raw": {URL: "x"}},
		Key:    access,
	})
	require.NoError(t, err)
	return n.User.Data["userData"]
}

// appliedNode is the user data of a host that someone applied with Ignition of his own.
func appliedNode(t *testing.T, access string) []byte {
	t.Helper()
	host := &metal3api.BareMetalHost{}
	host.Name, host.Namespace = "told", metal3.Namespace
	host.Spec.Image = &metal3api.Image{URL: "http://x/flatcar.img"}
	n, err := metal3.NewAppliedObjects(&site.Site{Name: "rack-7"}, metal3.AppliedHost{
		Host: host,
		UserData: []byte(`{"ignition": {"version": "3.1.0"}, "passwd": {"users": [{"name": "core"}]}, "storage": {"files": [
			{"path": "/etc/hostname", "overwrite": true, "mode": 420, "contents": {"source": "data:,own%0A"}}]}}`),
	}, metal3.Appliance{Key: access})
	require.NoError(t, err)
	require.NotNil(t, n.User, "its Ignition was not merged")
	return n.User.Data["userData"]
}

// TestIgnitionSetsUpNodes: systems of nodes, without cloud-init, get from their config drives what the real Ignition
// makes of them: the appliance logs in with its key and knows the host key.
func TestIgnitionSetsUpNodes(t *testing.T) {
	sandbox.RequireRoot(t)
	program := buildIgnition(t)
	b := newBench(t, "ignition", 2)
	access, err := b.Appliance.Run(b.ctx, "ssh-keygen", "-y", "-f", "/root/.ssh/id_rsa")
	require.NoError(t, err)
	binary, err := os.ReadFile(program)
	require.NoError(t, err)

	// setUp returns how the appliance runs a command on the server, as a user of it.
	setUp := func(s *nodes.Server, userData []byte, user string) func(command string) string {
		userData, hostKey := fillHostKey(t, userData)
		require.NoError(t, s.WriteFile("/usr/bin/ignition", binary, 0o755))
		require.NoError(t, s.WriteFile("/var/lib/drive", makeDrive(t, userData), 0o600))
		b.on(s, "rm -rf /usr/bin/cloud-init /root/.ssh; mkdir -p "+driveLabels+"; ln -s /var/lib/drive "+driveLabels+"/config-2")
		for _, stage := range []string{"fetch", "files"} {
			t.Log(b.on(s, "ignition -log-to-stdout -platform openstack -stage "+stage+" -root / 2>&1"))
		}
		b.on(s, "systemctl restart ssh")

		known := "/run/known-" + s.Label()
		require.NoError(t, b.Appliance.WriteFile(known, []byte("told "+hostKey+"\n"), 0o600))
		return func(command string) string {
			t.Helper()
			out, err := b.Appliance.Run(b.ctx, "ssh", "-i", "/root/.ssh/id_rsa", "-o", "HostKeyAlias=told",
				"-o", "UserKnownHostsFile="+known, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes",
				user+"@"+s.Addr.String(), command)
			require.NoError(t, err)
			return strings.TrimSpace(out)
		}
	}

	access = strings.TrimSpace(access)
	node := setUp(b.Servers[0], siteNode(t, access), "operator")
	assert.Equal(t, "operator", node("id -un"), "a group of Debian has the same name")
	assert.Equal(t, "root", node("sudo -n id -un"))
	assert.Equal(t, "told", node("cat /etc/hostname"))
	assert.Equal(t, "NTP="+nodes.Address.Addr().String(), node("grep NTP= /etc/systemd/timesyncd.conf.d/60-firstlight.conf"))
	assert.Contains(t, node("cat /etc/systemd/network/10-firstlight-link0.network"), "PermanentMACAddress=52:54:00:00:00:01")
	assert.Contains(t, node("sudo cat /etc/NetworkManager/system-connections/firstlight-link0.nmconnection"), "method=auto")
	assert.Contains(t, node("cat /etc/systemd/system-preset/20-ignition.preset"), "enable firstlight-way-out.service")
	assert.Equal(t, "600 root", node("stat -c '%a %U' /etc/ssh/ssh_host_ed25519_key"))
	assert.Equal(t, "no", node("sudo test -e /root/.ssh/authorized_keys && echo yes || echo no"), "root was given a key")

	applied := setUp(b.Servers[1], appliedNode(t, access), "root")
	assert.Equal(t, "root", applied("id -un"))
	assert.Equal(t, "own", applied("cat /etc/hostname"), "its own configuration does not count")
	assert.Contains(t, applied("getent passwd core"), "/home/core")
}
