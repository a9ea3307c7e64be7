package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// foreignImage is an installer that nothing of this project is in: this machine's shell with a
// few commands, and a script that keeps to docs/kud.md. At its first run it fails.
const (
	foreignImage  = "example.org/foreign/installer:1"
	foreignScript = `#!/bin/sh
dir=/opt/kud/multi-cluster/$2
echo "called as: $*"
echo "asked to $KUD_ACTION: $KUD_NODES, with $CONTAINER_RUNTIME"
cat /root/.ssh/id_rsa.pub
mkdir -p $dir/artifacts $dir/log
if [ ! -e $dir/log/foreign.log ]; then
	cp $dir/hosts.ini $dir/log/foreign.log
	echo "no route to host this time" >&2
	exit 7
fi
cat $dir/hosts.ini
echo '{"percent": 50, "doing": "being foreign"}' >$dir/progress.json
{ echo "# kubeconfig by a foreign installer"; cat $dir/hosts.ini; } >$dir/artifacts/admin.conf
`
)

// foreign writes that image as an archive for ctr.
func foreign(t *testing.T, file string) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	put := func(path string, mode int64, text []byte) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: mode, Size: int64(len(text))}))
		_, err := w.Write(text)
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	add := func(path, as string) {
		if seen[as] {
			return
		}
		seen[as] = true
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		put(as, 0o755, text)
	}
	library := regexp.MustCompile(`/\S+`)
	for _, program := range []string{"sh", "cp", "chmod", "cat", "mkdir"} {
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		add(path, "/bin/"+program)
		out, err := exec.CommandContext(t.Context(), "ldd", path).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			if lib := library.FindString(line); lib != "" {
				add(lib, lib)
			}
		}
	}
	put("/installer", 0o755, []byte(foreignScript))
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "root/", Mode: 0o700, Typeflag: tar.TypeDir}))
	require.NoError(t, w.Close())
	require.NoError(t, sandbox.WriteImage(file, foreignImage, layer.Bytes(), v1.Config{WorkingDir: "/", Env: []string{"PATH=/bin"}}))
}

// rack is an appliance in a sandbox with hosts that are said to be in service.
type rack struct {
	t         *testing.T
	ctx       context.Context
	appliance *sandbox.Sandbox
}

func newRack(t *testing.T, hosts int) *rack {
	root := sandbox.RequireRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	programs, err := sandbox.BuildPrograms(ctx, t.TempDir())
	require.NoError(t, err)
	r := &rack{t: t, ctx: ctx, appliance: sandbox.StartAppliance(t, root, programs, "clusters", t.TempDir())}
	for _, args := range []string{"link add eth0 type veth peer name far0", "link set far0 up", "link set eth0 up"} {
		r.run("ip", strings.Fields(args)...)
	}
	r.begin("[]")
	for n := 1; n <= hosts; n++ {
		r.apply(fmt.Sprintf("{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: node-%d, namespace: metal3, "+
			"annotations: {baremetalhost.metal3.io/paused: test}}, spec: {online: true, bootMACAddress: '52:54:00:00:00:0%d'}}", n, n))
		r.run("kubectl", "-n", "metal3", "patch", "bmh", fmt.Sprintf("node-%d", n), "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"errorMessage":"","errorCount":0,"operationalStatus":"OK","poweredOn":true,"hardwareProfile":"unknown","provisioning":{"state":"provisioned","ID":""},`+
				`"hardware":{"cpu":{"count":8},"ramMebibytes":16384,"nics":[{"name":"eno1","mac":"52:54:00:00:00:0%d","ip":"172.22.0.1%d"}]}}}`, n, n))
	}
	// Last: the daemon takes this label from a host that is not in service.
	r.run("kubectl", "-n", "metal3", "label", "bmh", "--all", "firstlight.dev/verified=true")
	return r
}

// begin starts the daemon anew with these clusters in the site document, and waits until it has
// come to the end of its plan. It returns how often the stages of the operator had to act.
func (r *rack) begin(clusters string) (attempts map[string]int) {
	r.t.Helper()
	require.NoError(r.t, r.appliance.WriteSite("name: sandbox\nappliance: {installerImages: ["+foreignImage+"]}\nnetworks: {provisioning: {interface: eth0}}\nclusters: "+clusters+"\n"))
	r.run("systemctl", "restart", "firstlightd")
	_, err := r.appliance.AwaitStage(r.ctx, lastOfAll, r.t.Output())
	require.NoError(r.t, err)
	d, err := r.appliance.Status(r.ctx)
	require.NoError(r.t, err)
	require.Equal(r.t, lastOfAll, d.Stages[len(d.Stages)-1].Name, "another stage is the last one")
	attempts = map[string]int{}
	for _, s := range d.Stages {
		attempts[s.Name] = s.Attempts
	}
	return attempts
}

// lastOfAll is the plan's last stage, handedOver the one after which the site's clusters are Provisionings.
const (
	lastOfAll  = "site-clusters-applied"
	handedOver = "clusters-handed-over"
)

func (r *rack) run(name string, args ...string) string {
	r.t.Helper()
	out, err := r.appliance.Run(r.ctx, name, args...)
	require.NoError(r.t, err)
	return out
}

func (r *rack) apply(text string) {
	r.t.Helper()
	require.NoError(r.t, r.appliance.Apply(r.ctx, text))
}

// until waits until a cluster is ready as it is asked for now.
func (r *rack) until(cluster string) {
	r.t.Helper()
	var p struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Phase, Message     string
			ObservedGeneration int64
		}
	}
	for said := ""; r.ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		out, err := r.appliance.Run(r.ctx, "kubectl", "get", "bpa", cluster, "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &p) != nil {
			continue
		}
		if now := p.Status.Phase + ": " + p.Status.Message; now != said {
			said = now
			r.t.Log(said)
		}
		if p.Status.Phase == "Ready" && p.Status.ObservedGeneration == p.Metadata.Generation {
			return
		}
	}
	require.NoError(r.t, r.ctx.Err())
}

func (r *rack) provisioning(workers string) {
	r.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge}},
spec: {installerImage: "` + foreignImage + `", PodSubnet: 10.244.64.0/18, masters: [{master-1: {mac-address: "52:54:00:00:00:01"}}], workers: [` + workers + `]}}`)
}

// TestAForeignInstaller: the operator's own pod, a real Job with an image that knows nothing of
// this project: it fails once, installs, adds a worker with the operator killed meanwhile, takes
// one out, and all ends with the Provisioning.
func TestAForeignInstaller(t *testing.T) {
	r := newRack(t, 3)
	archive := filepath.Join(t.TempDir(), "foreign.tar")
	foreign(t, archive)
	f, err := os.Open(archive)
	require.NoError(t, err)
	defer f.Close()
	load := r.appliance.Command(r.ctx, "ctr", "-n", "k8s.io", "images", "import", "-")
	load.Stdin = f
	out, err := load.CombinedOutput()
	require.NoError(t, err, "%s", out)

	t.Log("\n" + r.run("kubectl", "-n", "bpa", "get", "pods", "-o", "wide"))
	r.provisioning("{worker-1: {cpu: 8}}")
	r.until("edge")
	config := r.run("firstlightd", "kubeconfig", "edge")
	t.Log("\n" + config)
	assert.Contains(t, config, "# kubeconfig by a foreign installer")
	assert.Contains(t, config, "master-1  ansible_ssh_host=172.22.0.11 ansible_ssh_port=22\nworker-1  ansible_ssh_host=172.22.0.12 ansible_ssh_port=22\n")
	assert.Equal(t, config, r.run("kubectl", "get", "secret", "edge-kubeconfig", "-o", "go-template={{base64decode .data.value}}"))
	assert.Equal(t, "172.22.0.11", r.run("kubectl", "get", "configmap", "edge-configmap", "-o", "jsonpath={.data.MASTER_master-1}"))
	logs := r.run("sh", "-c", "cd /opt/kud/multi-cluster/edge/log && tail -n +1 kud-*.log")
	t.Log("\n" + logs)
	assert.Contains(t, logs, "no route to host this time")
	assert.Contains(t, logs, "called as: --cluster edge --network 10.244.64.0/18")
	assert.Contains(t, logs, "asked to install: , with docker")
	assert.Contains(t, logs, "ssh-ed25519 ", "the log-in to nodes did not reach it")

	r.provisioning("{worker-1: {cpu: 8}}, {worker-2: {cpu: 8}}")
	r.run("pkill", "-KILL", "-f", "^/usr/bin/firstlightd bpa")
	r.until("edge")
	assert.Contains(t, r.run("sh", "-c", "cat /opt/kud/multi-cluster/edge/log/kud-*-add-1.log"), "asked to add: worker-2")
	r.provisioning("{worker-2: {cpu: 8}}")
	r.until("edge")
	assert.Contains(t, r.run("sh", "-c", "cat /opt/kud/multi-cluster/edge/log/kud-*-remove-1.log"), "called as: --cluster edge --remove worker-1")
	t.Log("\n" + r.run("kubectl", "get", "bpa,sw", "-A", "-o", "wide"))
	t.Log("\n" + r.run("kubectl", "get", "bmh", "-A"))
	t.Log("\n" + r.run("kubectl", "describe", "bpa", "edge"))
	t.Log("\n" + r.run("firstlightd", "status"))
	t.Log("memory of the operator: " + r.run("sh", "-c", "grep VmRSS /proc/$(pgrep -f '^/usr/bin/firstlightd bpa')/status"))

	r.run("kubectl", "delete", "bpa", "edge", "--timeout=120s")
	assert.Empty(t, r.run("kubectl", "get", "jobs,pods,secrets", "-n", "bpa", "-l", "cluster=edge", "-o", "name"))
	assert.Empty(t, r.run("kubectl", "get", "bmh", "-n", "metal3", "-o", "jsonpath={.items[*].spec.consumerRef.name}"))
	left := r.run("ls", "/opt/kud/multi-cluster/edge")
	assert.Equal(t, "log\n", left)
	// With clusters in the site the plan comes to its end as well, and again without acting.
	named := "[{name: rim, controlPlane: [{mac: '52:54:00:00:00:01'}], workers: [{cpu: 8}]}]"
	assert.NotZero(t, r.begin(named)[handedOver])
	assert.JSONEq(t, `[{"master-1":{"mac-address":"52:54:00:00:00:01"}}]`, r.run("kubectl", "get", "bpa", "rim", "-o", "jsonpath={.spec.masters}"))
	again := r.begin(named)
	assert.Zero(t, again["bpa-ready"])
	assert.Zero(t, again[handedOver])
	assert.Zero(t, again[lastOfAll])
	t.Log("\n" + r.run("kubectl", "get", "bpa", "-A", "-o", "wide"))
}
