package nodes_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// trusted is what a machine has to be told, by its cloud-init, to get packages and images from the appliance.
func trusted(b *bench) map[string]string {
	b.t.Helper()
	authority, err := ca.Open(b.Appliance.Path("/var/lib/firstlight/ca"), time.Now)
	require.NoError(b.t, err)
	key, err := packages.OpenKey(b.Appliance.Path("/var/lib/firstlight/secret/packages.key"))
	require.NoError(b.t, err)
	at := nodes.Address.Addr()
	hosts := fmt.Sprintf("server = \"https://%s:5000\"\n\n[host.\"https://%[1]s:5000\"]\n  ca = \"/etc/firstlight/ca.crt\"\n", at)
	return map[string]string{
		"/etc/firstlight/ca.crt":       string(authority.PEM()),
		"/etc/firstlight/packages.asc": string(key.Public()),
		"/etc/apt/sources.list.d/firstlight.sources": fmt.Sprintf("Types: deb\nURIs: http://%s:6180/debian\nSuites: firstlight\n"+
			"Components: main\nSigned-By: /etc/firstlight/packages.asc\nCheck-Date: no\n", at),
		"/etc/containerd/certs.d/_default/hosts.toml": hosts,
	}
}

// first is what CABPK writes for the machine that makes the control plane, and what a sandbox wants besides: it has
// neither systemd nor, on every machine, the second version of cgroups.
func first(s *nodes.Server) string {
	return fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: edge
kubernetesVersion: %s
imageRepository: %s
controlPlaneEndpoint: %s:6443
networking: {podSubnet: 10.244.0.0/18, serviceSubnet: 10.96.0.0/16, dnsDomain: cluster.local}
dns: {imageTag: %s}
etcd: {local: {imageTag: %s}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[3]s, bindPort: 6443}
nodeRegistration:
  name: %[6]s
  imagePullPolicy: IfNotPresent
  kubeletExtraArgs: [{name: hostname-override, value: %[6]s}, {name: node-ip, value: %[3]s}]
timeouts: {controlPlaneComponentHealthCheck: 10m0s, kubeletHealthCheck: 10m0s, kubernetesAPICall: 10m0s}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, assets.KubernetesVersion, assets.ImageDomain, s.Addr, assets.CoreDNSVersion, assets.EtcdVersion, s.Label())
}

// A sandbox is no machine of its own: its kernel, its modules and its cgroups are this machine's.
const inSandbox = "SystemVerification,Swap,FileContent--proc-sys-net-bridge-bridge-nf-call-iptables"

// containerdInSandbox is containerd's configuration where there is no systemd.
const containerdInSandbox = `
mkdir -p /etc/containerd/conf.d
sed '/^imports/d; s/SystemdCgroup = true/SystemdCgroup = false/
	/sandbox_image/a restrict_oom_score_adj = true' /usr/lib/firstlight/containerd.toml >/etc/containerd/conf.d/sandbox.toml
systemctl restart containerd
`

// podNetwork is one for a node that is alone.
const podNetwork = `{"cniVersion": "1.0.0", "name": "test", "plugins": [
	{"type": "bridge", "bridge": "test0", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}},
	{"type": "portmap", "capabilities": {"portMappings": true}}]}`

// TestAMachineBecomesANodeByPackages: a machine of which nobody is told but what is written to it becomes a control
// plane by the commands of a stock cloud-init: apt-get, then kubeadm.
func TestAMachineBecomesANodeByPackages(t *testing.T) {
	b := newBench(t, "debs", 2)
	s, other := b.Servers[0], b.Servers[1]
	for path, text := range trusted(b) {
		require.NoError(t, s.WriteFile(path, []byte(text), 0o644))
		require.NoError(t, other.WriteFile(path, []byte(text), 0o644))
	}
	assert.Empty(t, b.on(s, "ip route show default"), "a way out of the rack")
	const get = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq install --yes --no-install-recommends "
	t.Log(b.on(s, get+"kubelet kubeadm kubectl"))

	v := strings.TrimPrefix(assets.KubernetesVersion, "v")
	assert.Contains(t, b.on(s, "dpkg-query --show kubelet kubeadm kubectl kubernetes-cni"), "kubeadm\t"+v+"-")
	assert.Equal(t, assets.KubernetesVersion+"\n", b.on(s, "kubeadm version -o short"))
	assert.Equal(t, "Kubernetes "+assets.KubernetesVersion+"\n", b.on(s, "kubelet --version"))
	assert.Contains(t, b.on(s, "kubectl version --client"), assets.KubernetesVersion)
	assert.Equal(t, "enabled\ninactive\n", b.on(s, "systemctl is-enabled kubelet; systemctl is-active kubelet || true"))
	assert.Empty(t, b.on(s, "dpkg --verify firstlight-kubernetes kubelet kubeadm kubectl kubernetes-cni firstlight-containerd"))
	assert.Contains(t, b.on(s, "cat /proc/$(pidof containerd)/cmdline | tr '\\0' ' '"), "/usr/lib/firstlight/containerd.toml",
		"containerd runs from another configuration")

	b.on(s, containerdInSandbox)
	require.NoError(t, s.WriteFile("/run/kubeadm/kubeadm.yaml", []byte(first(s)), 0o600))
	b.on(s, "kubeadm init --config /run/kubeadm/kubeadm.yaml --skip-token-print --ignore-preflight-errors "+inSandbox)
	const ask = "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	assert.Equal(t, "node-1 "+assets.KubernetesVersion, b.on(s, ask+"get nodes -o jsonpath='{.items[*].metadata.name} {.items[*].status.nodeInfo.kubeletVersion}'"))
	b.await(s, ask+"-n kube-system rollout status ds/kube-proxy --timeout=10s", "successfully rolled out")
	b.await(s, ask+"-n kube-system get pods", "kube-scheduler-node-1 +1/1 ")

	// Somebody's network of pods, of the plugins that came along.
	require.NoError(t, s.WriteFile("/etc/cni/net.d/10-test.conflist", []byte(podNetwork), 0o644))
	b.on(s, ask+"taint nodes --all node-role.kubernetes.io/control-plane-")
	b.await(s, ask+"get nodes", "node-1 +Ready ")
	b.on(s, ask+"run pause --image=firstlight.internal/pause:"+assets.PauseVersion)
	b.await(s, ask+"get pod pause -o wide", `pause +1/1 +Running .* 10\.244\.0\.`)
	t.Log("\n" + b.on(s, ask+"get nodes,pods -A -o wide"))

	// Anew: an image of nodes that was made with the packages, or a command that was cut off.
	assert.Empty(t, b.on(s, get+"kubelet kubeadm kubectl"))
	assert.Equal(t, "active\n", b.on(s, "systemctl is-active kubelet"))

	// What was put on a machine can be taken off it.
	b.on(other, get+"kubeadm; apt-get -qq purge --yes firstlight-kubernetes firstlight-containerd kubernetes-cni; systemctl restart containerd")
	assert.Empty(t, b.on(other, "ls /usr/bin/kube* /usr/lib/firstlight /opt/cni/bin/ptp /etc/systemd/system/multi-user.target.wants/kubelet.service 2>/dev/null || true"))
	assert.Equal(t, "active\n", b.on(other, "systemctl is-active containerd"))
}

// await runs shell text on a server until it prints what is wanted.
func (b *bench) await(s *nodes.Server, text, want string) {
	b.t.Helper()
	var out string
	var err error
	for ctx := b.ctx; ctx.Err() == nil; time.Sleep(time.Second) {
		if out, err = s.Run(context.WithoutCancel(ctx), "sh", "-euc", text); err == nil && regexp.MustCompile(want).MatchString(out) {
			return
		}
	}
	require.NoError(b.t, err)
	require.Regexp(b.t, want, out)
}
