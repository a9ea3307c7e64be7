package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// patience only ends a test that hangs.
const patience = 20 * time.Minute

// owner has a Kubernetes, and root on its node.
type owner struct {
	t    *testing.T
	ctx  context.Context
	node *nodes.Server
	told strings.Builder // what was typed and printed
}

// run types a line on the node and returns what it printed, on both streams.
func (o *owner) run(line string) string {
	o.t.Helper()
	began := time.Now()
	out, err := o.node.Command(o.ctx, "env", "--chdir=/root", "sh", "-euc", line).CombinedOutput()
	o.t.Logf("%.1f s\n# %s\n%s", time.Since(began).Seconds(), line, out)
	require.NoError(o.t, err)
	return string(out)
}

// show types a line that a page has.
func (o *owner) show(line string) string {
	o.t.Helper()
	out := o.run(line)
	fmt.Fprintf(&o.told, "$ %s\n%s", line, out)
	return out
}

// until asks until what is printed has some text.
func (o *owner) until(line, want string) {
	o.t.Helper()
	began, said := time.Now(), ""
	for ; o.ctx.Err() == nil; time.Sleep(time.Second) {
		out, _ := o.node.Command(o.ctx, "env", "--chdir=/root", "sh", "-euc", line).CombinedOutput()
		if strings.Contains(string(out), want) {
			o.t.Logf("%.0f s until %s says %s", time.Since(began).Seconds(), line, want)
			return
		}
		if now := string(out); now != said {
			said = now
			o.t.Logf("%4.0f s  %s", time.Since(began).Seconds(), said)
		}
	}
	require.NoError(o.t, o.ctx.Err(), "%s: %s", line, said)
}

const inDaemon = "kubectl -n firstlight exec deploy/firstlight -c firstlightd -- "

// tell logs what there is for who reads why the test failed.
func (o *owner) tell() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), time.Minute)
	defer cancel()
	for _, line := range []string{
		"kubectl get pods -A -o wide",
		"kubectl get events -A --sort-by=.lastTimestamp | tail -n 30",
		inDaemon + "firstlightd status",
		"kubectl -n firstlight logs deploy/firstlight -c firstlightd --tail=60",
	} {
		out, err := o.node.Command(ctx, "env", "--chdir=/root", "sh", "-c", line).CombinedOutput()
		o.t.Logf("# %s (%v)\n%s", line, err, out)
	}
}

const site = `name: rack
networks:
  provisioning: {interface: eth1, cidr: 172.22.0.0/24, address: 172.22.0.1}
  bmc: {interface: eth2, cidr: 172.23.0.0/24, address: 172.23.0.1}
  baremetal: {interface: eth0, cidr: 10.10.110.0/24, address: 10.10.110.11}
clusters: []
nodes:
`

func TestAGuestOnAKubernetesThatIsThere(t *testing.T) {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	firstlight, err := sandbox.Build(ctx, ".", "./cmd/firstlight", t.TempDir())
	require.NoError(t, err)

	// A Kubernetes is there.
	rack, err := nodes.New(ctx, nodes.Config{
		Name: "guest", Root: root, Dir: t.TempDir(), Beside: true, Programs: programs, Log: t.Output(),
	}, 2)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rack.Close()) })
	o := &owner{t: t, ctx: ctx, node: rack.Servers[0]}
	t.Cleanup(func() {
		if t.Failed() {
			o.tell()
		}
	})
	began := time.Now()
	require.NoError(t, rack.Inventory("there", 1, o.node))
	out, err := rack.Installer(ctx, "there").CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("cluster: %s", time.Since(began))
	require.NoError(t, rack.CutAppliance())
	o.run("mkdir -p /root/.kube && cp /etc/kubernetes/admin.conf /root/.kube/config")
	o.run("kubectl get nodes,pods -A -o wide; kubectl describe nodes | grep -i taint")

	// Networks.
	wire, err := netns.NewBridge(ctx)
	require.NoError(t, err)
	t.Cleanup(wire.Close)
	require.NoError(t, wire.IP(ctx, "route add 172.22.0.0/24 dev "+netns.BridgeName))
	require.NoError(t, wire.Connect(ctx, o.node.PID(), "guest", "eth1"))
	bmcs, err := netns.NewBridge(ctx)
	require.NoError(t, err)
	t.Cleanup(bmcs.Close)
	require.NoError(t, bmcs.IP(ctx, "addr add 172.23.0.101/24 dev "+netns.BridgeName))
	require.NoError(t, bmcs.Connect(ctx, o.node.PID(), "guest", "eth2"))
	o.run("ip addr add 172.22.0.1/24 dev eth1; ip addr add 172.23.0.1/24 dev eth2; ip -br addr")
	servers, err := simulator.Start(simulator.Config{
		Hosts: 1, Boot: "http://172.22.0.1:6180", BMC: netip.MustParseAddr("172.23.0.101"), Namespace: bmcs.Path(),
		Wire: wire.Path(), NIC: netns.BridgeName,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, servers.Close()) })

	// Images.
	archive := filepath.Join(t.TempDir(), "images.tar")
	began = time.Now()
	out, err = exec.CommandContext(ctx, firstlight, "guest", "images", "--image", root, archive).CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("archive: %s\n%s", time.Since(began), out)
	began = time.Now()
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	cmd := o.node.Command(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	cmd.Stdin = f
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.Remove(archive))
	t.Logf("import: %s\n%s", time.Since(began), out)

	// Manifests.
	program, err := os.ReadFile(firstlight)
	require.NoError(t, err)
	require.NoError(t, o.node.WriteFile("/usr/local/bin/firstlight", program, 0o755))
	var text bytes.Buffer
	text.WriteString(site)
	for _, s := range servers.Hosts() {
		text.WriteString(s.SiteEntry())
	}
	require.NoError(t, o.node.WriteFile("/root/site.yaml", text.Bytes(), 0o600))
	o.show("firstlight guest manifests --site site.yaml rack")
	o.show("kubectl label node --all firstlight.dev/appliance=")
	o.show("kubectl apply -k rack")
	o.run("kubectl -n firstlight rollout status deploy/firstlight --timeout=10m")
	o.until(inDaemon+"firstlightd status", "Ready")
	o.show(inDaemon + "firstlightd status")
	o.until("kubectl get bmh -A --no-headers", " provisioned ")
	o.show(inDaemon + "firstlightd status")
	o.run("kubectl get pods,bmh -A -o wide")
}
