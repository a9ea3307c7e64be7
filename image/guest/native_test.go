package guest_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/guest"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/machines"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// patience only ends a test that hangs.
const patience = 40 * time.Minute

// owner has a Kubernetes, and root on its node.
type owner struct {
	t          *testing.T
	ctx        context.Context
	root       string // of the stick's image
	firstlight string // the program
	daemon     string // the daemon's program
	node       *nodes.Server
	servers    *simulator.Simulator
	machines   *machines.Machines // systems of the servers
	told       strings.Builder    // what was typed and printed
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
	o.untilThat(line, want, func(out []byte) bool { return strings.Contains(string(out), want) })
}

// awaitStages waits until these stages of the appliance hold.
func (o *owner) awaitStages(names ...string) {
	o.t.Helper()
	for _, name := range names {
		o.untilThat(statusCommand+" -o json", name, func(out []byte) bool {
			var d status.Document
			return json.Unmarshal(out, &d) == nil && slices.ContainsFunc(d.Stages, func(s status.Stage) bool {
				return s.Name == name && s.State == status.StateReady
			})
		})
	}
}

// untilThat asks until holds is true of what is printed; what is that, for the log.
func (o *owner) untilThat(line, what string, holds func([]byte) bool) {
	o.t.Helper()
	began, said := time.Now(), ""
	for ; o.ctx.Err() == nil; time.Sleep(time.Second) {
		if o.machines != nil {
			require.NoError(o.t, o.machines.Follow(o.ctx))
		}
		out, _ := o.node.Command(o.ctx, "env", "--chdir=/root", "sh", "-euc", line).CombinedOutput()
		if holds(out) {
			o.t.Logf("%.0f s until %s says %s", time.Since(began).Seconds(), line, what)
			return
		}
		if now := string(out); now != said {
			said = now
			o.t.Logf("%4.0f s  …%s", time.Since(began).Seconds(), said[max(0, len(said)-400):])
		}
	}
	require.NoError(o.t, o.ctx.Err(), "%s: %s", line, said)
}

// inDaemon begins a command in the appliance's pod, statusCommand is the one that is typed most.
const (
	inDaemon      = "kubectl -n firstlight exec deploy/firstlight -c firstlightd -- "
	statusCommand = inDaemon + "firstlightd status"
)

// tell logs what there is for who reads why the test failed.
func (o *owner) tell() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.ctx), time.Minute)
	defer cancel()
	for _, line := range []string{
		"kubectl get pods -A -o wide",
		"kubectl get events -A --sort-by=.lastTimestamp | tail -n 30",
		statusCommand,
		"kubectl -n firstlight logs deploy/firstlight -c firstlightd --tail=60",
	} {
		out, err := o.node.Command(ctx, "env", "--chdir=/root", "sh", "-c", line).CombinedOutput()
		o.t.Logf("# %s (%v)\n%s", line, err, out)
	}
}

// site is the rack's: an interface of each network is the node's.
const site = `name: rack
networks:
  provisioning: {interface: eth1, cidr: 172.22.0.0/24, address: 172.22.0.1}
  bmc: {interface: eth2, cidr: 172.23.0.0/24, address: 172.23.0.1}
  baremetal: {interface: eth0, cidr: 10.10.110.0/24, address: 10.10.110.11}
clusters: []
nodes:
`

// everything lists all objects of all kinds but events, by kind, namespace and name, and what nodes are labelled.
const everything = `for kind in $(kubectl api-resources --verbs=list -o name | grep -v -e '^events' -e '^componentstatuses' | sort); do
  kubectl get "$kind" -A --ignore-not-found -o 'jsonpath={range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{"\n"}{end}' 2>/dev/null | sort
done
kubectl get nodes -o 'jsonpath={.items[*].metadata.labels}'`

// TestAGuestOnAKubernetesThatIsThere: a Kubernetes of kubeadm, with one node, gets the appliance by kubectl alone. The
// appliance installs a simulated server, the system on it lets the appliance in, one of ICN's samples makes it a cluster,
// and a package comes by the REST API. Then all of it is removed, and the Kubernetes has what it had before.
func TestAGuestOnAKubernetesThatIsThere(t *testing.T) {
	o := newOwner(t)
	before := o.run(everything)
	o.loadImages()
	o.applyManifests()
	o.until("kubectl get bmh -A --show-labels", "firstlight.dev/verified=true")
	o.show("kubectl get bmh -A")
	o.applyHost()
	assert.NotContains(t, o.run(inDaemon+"firstlightd secrets"), "are not listed")
	o.collectBundle()
	o.upload()
	o.provision()
	o.awaitStages("kpa-ready", "cluster-api-ready", "cluster-class-ready")
	o.show(statusCommand)
	o.show("kubectl get pods -A | grep -v ^kube-system")
	goldentest.WriteBlock(t, "../../docs/install.md", "guest", o.told.String())

	o.told.Reset()
	o.run("kubectl delete namespace alpha") // its owner's
	lines := strings.SplitAfter(o.run("sh rack/remove.sh"), "\n")
	fmt.Fprintf(&o.told, "$ sh rack/remove.sh\n…\n%s", strings.Join(lines[max(0, len(lines)-5):], ""))
	assert.Equal(t, before, o.run(everything))
	o.run("sh rack/remove.sh") // as after an interruption
	goldentest.WriteBlock(t, "../../docs/install.md", "guest removed", o.told.String())
}

// newOwner makes a Kubernetes by kubeadm, which is not ours once it is there, and servers beside it.
func newOwner(t *testing.T) *owner {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	firstlight, err := sandbox.Build(ctx, ".", "./cmd/firstlight", t.TempDir())
	require.NoError(t, err)

	rack, err := nodes.New(ctx, nodes.Config{
		Name: "guest", Root: root, Dir: t.TempDir(), Beside: true, Programs: programs, Log: t.Output(),
	}, 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rack.Close()) })
	o := &owner{t: t, ctx: ctx, root: root, firstlight: firstlight, daemon: programs.Daemon, node: rack.Servers[0]}
	require.NoError(t, rack.Inventory("there", 1, o.node))
	out, err := rack.Installer(ctx, "there").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, rack.CutAppliance())
	o.run("mkdir -p /root/.kube && cp /etc/kubernetes/admin.conf /root/.kube/config")
	o.until("kubectl get namespaces | grep -c verify || true", "0\n") // what looked whether it works

	wire, bmcs := o.connect("eth1", "172.22.0.1/24"), o.connect("eth2", "172.23.0.1/24")
	require.NoError(t, wire.IP(ctx, "route add 172.22.0.0/24 dev "+netns.BridgeName))
	require.NoError(t, bmcs.IP(ctx, "addr add 172.23.0.101/24 dev "+netns.BridgeName))
	o.servers, err = simulator.Start(simulator.Config{
		Hosts: 1, Boot: "http://172.22.0.1:6180", BMC: netip.MustParseAddr("172.23.0.101"), Namespace: bmcs.Path(),
		Wire: wire.Path(), NIC: netns.BridgeName,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, o.servers.Close()) })
	o.machines = machines.NewOn(machines.Rack{
		Name: "guest", System: filepath.Join(rack.Dir, "system.raw"), Manager: programs.Manager, Servers: o.servers, Wire: wire,
	}, machines.Config{Root: root, Dir: t.TempDir(), Log: t.Output()})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(o.machines.Logs("node1"))
		}
		assert.NoError(t, o.machines.Close())
	})
	t.Cleanup(func() {
		if t.Failed() {
			o.tell()
		}
	})
	return o
}

// connect gives the node an interface on a network of its own.
func (o *owner) connect(nic, address string) *netns.Bridge {
	o.t.Helper()
	bridge, err := netns.NewBridge(o.ctx)
	require.NoError(o.t, err)
	o.t.Cleanup(bridge.Close)
	require.NoError(o.t, bridge.Connect(o.ctx, o.node.PID(), "node", nic))
	require.NoError(o.t, netns.IP(o.ctx, o.node.PID(), "addr add "+address+" dev "+nic))
	return bridge
}

// archiveImages writes the archive of the root's images, with the daemon of the sources at hand.
func (o *owner) archiveImages(archive string) {
	o.t.Helper()
	began := time.Now()
	own, all := o.t.TempDir(), o.t.TempDir()
	require.NoError(o.t, os.MkdirAll(filepath.Join(own, "usr/bin"), 0o755))
	require.NoError(o.t, os.Link(o.daemon, filepath.Join(own, "usr/bin/firstlightd")))
	require.NoError(o.t, guest.WithRoot(o.root, func(root string) error {
		if err := unix.Mount("overlay", all, "overlay", unix.MS_RDONLY, "lowerdir="+own+":"+root); err != nil {
			return err
		}
		out, err := exec.CommandContext(o.ctx, o.firstlight, "guest", "images", "--image", all, archive).CombinedOutput()
		o.t.Logf("archive: %s\n%s", time.Since(began), out)
		return errors.Join(err, unix.Unmount(all, 0))
	}))
}

// loadImages brings the images to the node.
func (o *owner) loadImages() {
	o.t.Helper()
	archive := filepath.Join(o.t.TempDir(), "images.tar")
	o.archiveImages(archive)
	began := time.Now()
	file, err := os.Open(archive)
	require.NoError(o.t, err)
	defer file.Close()
	load := o.node.Command(o.ctx, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	load.Stdin = file
	out, err := load.CombinedOutput()
	require.NoError(o.t, err, string(out))
	require.NoError(o.t, os.Remove(archive))
	o.t.Logf("import: %s\n%s", time.Since(began), out)
}

// applyManifests has kubectl apply what the command wrote.
func (o *owner) applyManifests() {
	o.t.Helper()
	program, err := os.ReadFile(o.firstlight)
	require.NoError(o.t, err)
	require.NoError(o.t, o.node.WriteFile("/usr/local/bin/firstlight", program, 0o755))
	var text strings.Builder
	text.WriteString(site)
	for i, s := range o.servers.Hosts() {
		text.WriteString(s.SiteEntry(fmt.Sprintf("links: [{network: provisioning, mac: %q, address: %s}]", s.MAC, machines.Address(i))))
	}
	require.NoError(o.t, o.node.WriteFile("/root/site.yaml", []byte(text.String()), 0o600))
	o.show("firstlight guest manifests --site site.yaml rack")
	o.show("kubectl label node --all firstlight.dev/appliance=")
	o.show("kubectl apply -k rack")
	o.run("kubectl -n firstlight rollout status deploy/firstlight --timeout=10m")
}

// collectBundle has the daemon collect a support bundle, with what the cluster's API has.
func (o *owner) collectBundle() {
	o.t.Helper()
	o.run(inDaemon + "firstlightd bundle - >bundle.tar.gz")
	list := o.run("tar -tzf bundle.tar.gz")
	for _, name := range []string{"/resources/baremetalhosts.metal3.io.yaml", "/resources/secrets.yaml", "/ironic.json"} {
		assert.Contains(o.t, list, name+"\n")
	}
}

// upload brings a file by the REST API, with this machine's curl on the node's network.
func (o *owner) upload() {
	o.t.Helper()
	access := o.run(inDaemon + "firstlightd uploader alpha --server https://172.22.0.1:9015")
	dir := o.t.TempDir()
	const content = "a package of alpha's\n"
	record := fmt.Sprintf(`{"owner": "alpha", "cluster_name": "edge", "type": "binary", "image_name": "sample", "image_offset": 0,
"image_length": %d, "upload_complete": false, "sha256": "%x"}`, len(content), sha256.Sum256([]byte(content)))
	for name, text := range map[string]string{"sample": content, "sample.json": record} {
		require.NoError(o.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}

	curl := func(line string) string {
		cmd := exec.CommandContext(o.ctx, "nsenter", "--net="+netns.PathOf(o.node.PID()), "sh", "-euc",
			`eval "$ACCESS"; curl --silent --show-error --fail-with-body --cacert "$FIRSTLIGHT_CA" \
				--header "Authorization: Bearer $FIRSTLIGHT_TOKEN" `+line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ACCESS="+access)
		out, err := cmd.CombinedOutput()
		require.NoError(o.t, err, string(out))
		fmt.Fprintf(&o.told, "$ api %s\n%s\n", line, strings.TrimSpace(string(out)))
		return string(out)
	}
	const url = "https://172.22.0.1:9015/v1/baremetalcluster/alpha/edge/binary_images"
	curl("--output /dev/null --write-out '%{http_code}' --form 'metadata=<sample.json;type=application/json' --form file=@sample.json " + url)
	curl("--write-out '%{http_code}' --request PATCH --header 'Upload-Offset: 0' --upload-file sample " + url + "/sample")
	assert.Contains(o.t, curl(url+"/sample"), `"upload_complete":true`)
	assert.Equal(o.t, content, curl(url+"/sample/content"))
}

// provision applies one of ICN's samples, with the server's MAC.
func (o *owner) provision() {
	o.t.Helper()
	text, err := os.ReadFile("../../daemon/clusters/bpa/testdata/icn-provisionings.yaml")
	require.NoError(o.t, err)
	_, sample, found := strings.Cut(string(text), "# bpa_v1alpha1_provisioning_cr_sample_single.yaml, the last\n")
	require.True(o.t, found)
	sample, _, _ = strings.Cut(sample, "---\n")
	sample = strings.ReplaceAll(sample, "52:54:00:00:00:01", o.servers.Hosts()[0].MAC)
	require.NoError(o.t, o.node.WriteFile("/root/provisioning.yaml", []byte(sample), 0o644))
	o.show("cat provisioning.yaml")
	o.show("kubectl apply -f provisioning.yaml")
	o.until("kubectl get bpa", " Ready ")
	o.show("kubectl get bpa")

	const condition = `-o 'jsonpath={.items[*].status.conditions[?(@.type=="Verified")].status}'`
	assert.Equal(o.t, "True", o.run("kubectl get bpa "+condition))
	o.show(inDaemon + "firstlightd kubeconfig cluster-single-last >edge.conf")
	o.show("kubectl --kubeconfig edge.conf get nodes")
}
