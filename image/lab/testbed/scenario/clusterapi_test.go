package scenario_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/testbed/page"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

// template is what clusterctl makes a cluster of, as of the sources at hand.
const template = "../../../../assets/build/cluster-api/cluster-template.yaml"

// The endpoint of the cluster is the pool's only address.
const endpoint = "172.22.0.200"

const endpointPool = `
---
{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {name: endpoints, namespace: metal3},
spec: {namePrefix: endpoints, prefix: 24, pools: [{start: ` + endpoint + `, end: ` + endpoint + `}]}}
`

// inSandbox is what a machine wants that is none of its own: there is no systemd, and its cgroups, its kernel and its
// modules are this machine's.
const inSandbox = `#!/bin/sh
set -eu
mkdir -p /etc/containerd/conf.d
sed '/^imports/d; s/SystemdCgroup = true/SystemdCgroup = false/
	/sandbox_image/a restrict_oom_score_adj = true' /usr/lib/firstlight/containerd.toml >/etc/containerd/conf.d/sandbox.toml
systemctl restart containerd
[ ! -e /run/kubeadm/kubeadm.yaml ] || cat >>/run/kubeadm/kubeadm.yaml <<'END'
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
END
`

// cloudConfig has cloud-init read its data from the disk, and do of them what a sandbox can do.
const cloudConfig = `datasource_list: [NoCloud]
network: {config: disabled}
cloud_init_modules: [write_files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts_user]
`

// systems are the installed systems of simulated servers: each is a sandbox that its own cloud-init makes a node.
type systems struct {
	t      *testing.T
	ctx    context.Context
	d      *scenario.Scenario
	image  string // the servers' system
	root   string // see sandbox.RootTree
	booted map[string]*sandbox.Sandbox

	manager string // the first process of each
}

// newSystems gives the appliance the program for nodes of the sources at hand, before it makes packages of it.
func newSystems(t *testing.T, ctx context.Context, d *scenario.Scenario) *systems {
	s := &systems{
		t:      t,
		ctx:    ctx,
		d:      d,
		image:  filepath.Join(t.TempDir(), "system.raw"),
		root:   sandbox.RequireRoot(t),
		booted: map[string]*sandbox.Sandbox{},
	}
	require.NoError(t, d.Sandbox.Assemble(nodes.System, s.image))
	var err error
	s.manager, err = sandbox.Build(ctx, ".", "./image/lab/testbed/sandbox/systemctl", t.TempDir())
	require.NoError(t, err)
	program, err := sandbox.Build(ctx, ".", "./cmd/firstlight-node", t.TempDir())
	require.NoError(t, err)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, d.Sandbox.WriteFile("/usr/local/bin/firstlight-node", text, 0o755))
	run(t, ctx, d, "sh", "-euc", "for f in "+stick.LowerDir+"/usr/share/firstlight/images/layers/*/fs/usr/bin/firstlight-node; do "+
		"mount --bind /usr/local/bin/firstlight-node $f; done")
	t.Cleanup(func() {
		for name, server := range s.booted {
			if t.Failed() {
				for _, file := range []string{"/var/log/cloud-init.log", "/var/log/node.log"} {
					text, _ := os.ReadFile(server.Path(file))
					t.Logf("%s of %s:\n%s", file, name, end(string(text), 8000))
				}
				for _, unit := range []string{"kubelet.service", "containerd.service", "firstlight-float.service"} {
					t.Logf("%s of %s:\n%s", unit, name, end(server.UnitLog(unit), 3000))
				}
			}
			assert.NoError(t, server.Close())
		}
	})
	return s
}

// follow starts the system of each server that boots from its disk, and ends that of each that is switched off.
func (s *systems) follow() {
	for i, h := range s.d.Servers.Hosts() {
		server := s.booted[h.Name]
		switch on := h.State() == simulator.OnDisk; {
		case on && server == nil:
			s.boot(h, fmt.Sprintf("172.22.0.%d/24", 211+i))
		case !on && server != nil && h.State() == simulator.Off:
			require.NoError(s.t, server.Close())
			delete(s.booted, h.Name)
		}
	}
}

// boot starts a system with the config drive that its server got last.
func (s *systems) boot(h *simulator.Server, addr string) {
	drives := h.ReceivedDrives()
	user, meta := readDrive(s.t, drives[len(drives)-1])
	server, err := sandbox.Start(s.ctx, sandbox.Config{
		Name:      "objects-" + h.Name,
		Root:      s.root,
		DiskImage: s.image,
		Disk:      true,
		Dir:       filepath.Join(s.t.TempDir(), h.Name),
		Manager:   s.manager,
		Log:       s.t.Output(),
		Keep:      []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/log"},
	})
	require.NoError(s.t, err)
	s.booted[h.Name] = server
	require.NoError(s.t, s.d.Wire().Connect(s.ctx, server.PID(), "port-"+h.Name, "eth0"))
	_ = os.Remove(server.Path("/etc/resolv.conf")) // of a resolver that does not run here
	for path, text := range map[string]string{
		"/etc/resolv.conf":                      "",
		"/etc/machine-id":                       fmt.Sprintf("%032d\n", len(s.booted)),
		"/etc/in-sandbox":                       inSandbox,
		"/etc/cloud/cloud.cfg.d/99-sandbox.cfg": cloudConfig,
		"/var/lib/cloud/seed/nocloud/user-data": user,
		"/var/lib/cloud/seed/nocloud/meta-data": meta,
	} {
		require.NoError(s.t, server.WriteFile(path, []byte(text), 0o755))
	}

	_, err = server.Run(s.ctx, "sh", "-euc", "ip address add "+addr+" dev eth0; systemctl start containerd")
	require.NoError(s.t, err)
	s.t.Logf("%s boots", h.Name)
	init := server.Command(s.ctx, "sh", "-c", "exec >/var/log/node.log 2>&1; cloud-init init --local; cloud-init init; "+
		"cloud-init modules --mode=config; cloud-init modules --mode=final")
	require.NoError(s.t, init.Start())
	go func() { _ = init.Wait() }()
}

// readDrive finds user data and metadata in the image of a config drive, where each file is in one piece.
func readDrive(t *testing.T, drive []byte) (user, meta string) {
	t.Helper()
	begin := bytes.Index(drive, []byte("Content-Type: multipart/mixed; boundary="))
	require.Positive(t, begin, "user data is not that of the bootstrap provider with the appliance's behind it")
	boundary, _, _ := strings.Cut(string(drive[begin:][len(`Content-Type: multipart/mixed; boundary="`):]), `"`)
	last := "--" + boundary + "--\n"
	length := bytes.Index(drive[begin:], []byte(last))
	require.Positive(t, length)
	user = string(drive[begin:][:length+len(last)])

	key := bytes.Index(drive, []byte(`"metal3-name"`))
	for start := bytes.LastIndexByte(drive[:max(key, 0)], '{'); start >= 0; start = bytes.LastIndexByte(drive[:start], '{') {
		values := map[string]any{}
		if json.NewDecoder(bytes.NewReader(drive[start:])).Decode(&values) == nil && values["metal3-name"] != nil {
			values["instance-id"] = values["uuid"]
			text, err := json.Marshal(values)
			require.NoError(t, err)
			return user, string(text)
		}
	}
	require.Fail(t, "the config drive has no metadata of its host")
	return "", ""
}

// until waits for something while servers boot.
func (s *systems) until(what string, holds func() bool) {
	s.t.Helper()
	began := time.Now()
	for ; !holds(); time.Sleep(time.Second) {
		require.NoError(s.t, s.ctx.Err(), what)
		s.follow()
	}
	s.t.Logf("%s after %.0f s", what, time.Since(began).Seconds())
}

// ask is what a command prints, "" if it fails.
func (s *systems) ask(name string, args ...string) string {
	out, err := s.d.Sandbox.Run(s.ctx, name, args...)
	if err != nil {
		return ""
	}
	return out
}

// pullPolicy is a line of each of kubeadm's registrations of a node.
var pullPolicy = regexp.MustCompile(`(?m)^( *)imagePullPolicy: IfNotPresent$`)

// generate is what clusterctl prints, with an endpoint from a pool and what machines in sandboxes want.
func (s *systems) generate(controlPlane, workers int) string {
	text, err := os.ReadFile(template)
	require.NoError(s.t, err)
	const given = `controlPlaneEndpoint: {host: "${CONTROL_PLANE_ENDPOINT_HOST}", port: ${CONTROL_PLANE_ENDPOINT_PORT:=6443}}`
	require.Contains(s.t, string(text), given)
	changed := strings.ReplaceAll(s.forSandboxes(string(text)), given, "controlPlaneEndpointFromPool: {name: endpoints}")
	require.NoError(s.t, s.d.Sandbox.WriteFile("/root/template.yaml", []byte(changed+endpointPool), 0o644))
	return run(s.t, s.ctx, s.d, "env", "IMAGE_URL="+scenario.Boot+"/"+scenario.ImageA+".raw", "IMAGE_CHECKSUM="+scenario.ImageSum(scenario.ImageA),
		"clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "generate", "cluster", "edge", "-n", "metal3", "--from", "/root/template.yaml",
		"--kubernetes-version", assets.KubernetesVersion,
		"--control-plane-machine-count", fmt.Sprint(controlPlane), "--worker-machine-count", fmt.Sprint(workers))
}

var lineEnd = regexp.MustCompile(`(?m) +$`)

// TestAClusterBootsFromItsObjects: nothing but objects is applied. Ironic installs simulated servers, the system on
// each reads its config drive with its own cloud-init, and by that alone they become a cluster: its endpoint floats,
// its packages and images are the appliance's, its pods have a network.
func TestAClusterBootsFromItsObjects(t *testing.T) {
	need(t)
	const servers = 2
	ctx, d := start(t, "objects", servers, 40*time.Minute)
	s := newSystems(t, ctx, d)
	require.NoError(t, d.Begin(ctx, "name: objects\nnetworks: {provisioning: {interface: eth0}}\nclusters: []\n"))
	for _, stage := range []string{"cluster-api-ready", "packages-ready"} {
		_, err := d.Sandbox.AwaitStage(ctx, stage, t.Output())
		require.NoError(t, err)
	}

	var hosts strings.Builder
	for _, h := range d.Servers.Hosts() {
		fmt.Fprintf(&hosts, `---
{apiVersion: v1, kind: Secret, metadata: {name: %[1]s-bmc}, stringData: {username: %[2]s, password: %[3]s}}
---
{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: %[1]s}, spec: {online: true, bootMACAddress: %[4]q,
bmc: {address: %[5]q, credentialsName: %[1]s-bmc, disableCertificateVerification: true}}}
`, h.Name, d.Servers.Username(), d.Servers.Password(), h.MAC, h.BMC())
	}
	kubectlApply(t, ctx, d, hosts.String())
	s.until("there is what nodes are set up by", func() bool {
		return s.ask("kubectl", "-n", "metal3", "get", "secret", "firstlight-node", "-o", "name") != ""
	})
	kubectlApply(t, ctx, d, s.generate(1, servers-1))
	began := time.Now()
	said := ""
	s.until("all machines run", func() bool {
		now := s.ask("kubectl", "-n", "metal3", "get", "machines", "-o", "custom-columns=NAME:.metadata.name,PHASE:.status.phase,NODE:.status.nodeRef.name")
		if now != said {
			said = now
			t.Logf("%.0f s\n%s", time.Since(began).Seconds(), now)
		}
		return strings.Count(now, "Running") == servers
	})
	config := run(t, ctx, d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "kubeconfig", "edge", "-n", "metal3")
	require.NoError(t, d.Sandbox.WriteFile("/root/edge.conf", []byte(config), 0o600))
	assert.Contains(t, config, "https://"+endpoint+":6443")
	workload := func(args ...string) string {
		return s.ask("kubectl", append([]string{"--kubeconfig", "/root/edge.conf"}, args...)...)
	}
	s.until("all nodes are Ready", func() bool { return strings.Count(workload("get", "nodes", "--no-headers"), " Ready ") == servers })
	s.until("all pods run", func() bool {
		return workload("-n", "kube-system", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=30s") != ""
	})
	printed := "$ clusterctl describe cluster edge -n metal3\n" +
		lineEnd.ReplaceAllString(run(t, ctx, d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "describe", "cluster", "edge", "-n", "metal3"), "") +
		"$ kubectl --kubeconfig edge.conf get nodes\n" + workload("get", "nodes") +
		"$ kubectl --kubeconfig edge.conf -n kube-system get pods\n" + workload("-n", "kube-system", "get", "pods")
	t.Log("\n" + printed)
	if *update {
		page.Check(t, "../../../../docs/cluster-api.md", "boots", printed, true)
	}

	run(t, ctx, d, "kubectl", "-n", "metal3", "delete", "cluster", "edge", "--wait=false")
	s.until("the cluster is gone", func() bool {
		return s.ask("kubectl", "-n", "metal3", "get", "clusters,machines,ipaddresses.ipam.cluster.x-k8s.io", "-o", "name", "--ignore-not-found") == "" &&
			s.ask("kubectl", "get", "ns", "metal3", "-o", "name") != ""
	})
	assert.Empty(t, s.booted, "servers of a cluster that is gone run")
	const state = "jsonpath={range .items[*]}{.status.provisioning.state}{.spec.consumerRef.name} {end}"
	s.until("the hosts are inspected and free", func() bool {
		return s.ask("kubectl", "-n", "metal3", "get", "bmh", "-o", state) == strings.Repeat("available ", servers)
	})
}

// TestASiteIsMadeByClusterAPI: a site names its nodes, and a cluster by Cluster API of them. Nothing is applied. From
// power on, the appliance registers and inspects the servers, writes the Cluster, and verifies what they became. Its power
// fails while the first of them becomes a control plane.
func TestASiteIsMadeByClusterAPI(t *testing.T) {
	need(t)
	ctx, d := start(t, "site-cluster-api", 2, 40*time.Minute)
	s := newSystems(t, ctx, d)
	s.changeClass()
	var site strings.Builder
	site.WriteString("name: edge-site\nnetworks: {provisioning: {interface: eth0}}\nnodes:\n")
	for _, h := range d.Servers.Hosts() {
		site.WriteString(h.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))))
	}
	fmt.Fprintf(&site, "clusters:\n- name: edge\n  by: cluster-api\n  endpoint: %s\n  controlPlane: [{node: node1}]\n  workers: [{node: node2}]\n", endpoint)
	require.NoError(t, d.Begin(ctx, site.String()))

	began := time.Now()
	var cluster status.Cluster
	said, cut := "", false
	s.until("the cluster is ready", func() bool {
		document, err := d.Sandbox.Status(ctx)
		if err != nil || len(document.Clusters) != 1 {
			return false
		}
		cluster = document.Clusters[0]
		if now := strings.TrimSpace(cluster.State + " " + cluster.Nodes + " " + cluster.Text + " " + cluster.Error); now != said {
			said = now
			t.Logf("%.0f s  %s", time.Since(began).Seconds(), now)
		}
		if !cut && len(s.booted) == 1 {
			cut = true
			t.Log("power cut")
			require.NoError(t, d.PowerCut(ctx, scenario.Nothing, site.String()))
			s.changeClass()
		}
		return cluster.State == "ready"
	})
	assert.Equal(t, "2/2", cluster.Nodes)
	assert.True(t, cut, "the power did not fail")
	for _, h := range d.Servers.Hosts() {
		assert.Len(t, h.ReceivedDrives(), 1, "%s was installed more than once", h.Name)
	}
	t.Log("\n" + run(t, ctx, d, "firstlightd", "status"))
	t.Log("\n" + run(t, ctx, d, "kubectl", "-n", "metal3", "get", "cluster", "edge", "-o", `jsonpath={.metadata.annotations.firstlight\.dev/verification}`))
	t.Log("\n" + run(t, ctx, d, "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "describe", "cluster", "edge", "-n", "metal3"))
}

// changeClass has the appliance's class give machines in sandboxes what they want.
func (s *systems) changeClass() {
	const file = "clusterclass-firstlight.yaml"
	text, err := os.ReadFile(filepath.Join(filepath.Dir(template), file))
	require.NoError(s.t, err)
	changed := s.forSandboxes(string(text))
	path := strings.TrimSpace(run(s.t, s.ctx, s.d, "sh", "-euc", "ls /usr/share/firstlight/cluster-api/infrastructure-metal3/*/"+file))
	require.NoError(s.t, s.d.Sandbox.WriteFile(path, []byte(changed), 0o644))
}

// forSandboxes has templates of machines install what a sandbox wants besides, and not refuse it.
func (s *systems) forSandboxes(text string) string {
	const install = "node-setup install"
	require.Contains(s.t, text, install)
	require.Regexp(s.t, pullPolicy, text)
	text = pullPolicy.ReplaceAllString(text, "$0\n"+
		"${1}ignorePreflightErrors: [SystemVerification, Swap, FileContent--proc-sys-net-bridge-bridge-nf-call-iptables]")
	return strings.ReplaceAll(text, install, install+", /etc/in-sandbox")
}
