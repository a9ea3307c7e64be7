package nodes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// host makes a server of the rack a BareMetalHost that was installed and proven: its installation is
// not what is tried here.
func (b *bench) host(n int, s *nodes.Server) {
	b.t.Helper()
	b.apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: data-%[1]d, namespace: metal3}, stringData: {userData: "#cloud-config\nssh_keys: {ed25519_public: '%[2]s'}\n"}}
---
{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: host-%[1]d, namespace: metal3,
annotations: {baremetalhost.metal3.io/paused: test}}, spec: {online: true, bootMACAddress: '52:54:00:00:00:0%[1]d', userData: {name: data-%[1]d, namespace: metal3}}}`, n, s.HostKey))
	b.appliance("kubectl", "-n", "metal3", "patch", "bmh", fmt.Sprintf("host-%d", n), "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"errorMessage":"","errorCount":0,"operationalStatus":"OK","poweredOn":true,"hardwareProfile":"unknown","provisioning":{"state":"provisioned","ID":""},`+
			`"hardware":{"cpu":{"count":8},"ramMebibytes":16384,"nics":[{"name":"eno1","mac":"52:54:00:00:00:0%d","ip":%q}]}}}`, n, s.Addr))
	// Last: the daemon takes this label from a host that is not in service.
	b.appliance("kubectl", "-n", "metal3", "label", "bmh", fmt.Sprintf("host-%d", n), "firstlight.dev/verified=true")
}

// appliance runs a command on the appliance.
func (b *bench) appliance(name string, args ...string) string {
	b.t.Helper()
	out, err := b.Appliance.Run(b.ctx, name, args...)
	require.NoError(b.t, err)
	return out
}

func (b *bench) apply(text string) {
	b.t.Helper()
	require.NoError(b.t, b.Appliance.Apply(b.ctx, text))
}

// provisioning asks for a cluster of the first server and of others as workers.
func (b *bench) provisioning(workers ...int) {
	b.t.Helper()
	var list []string
	for _, n := range workers {
		list = append(list, fmt.Sprintf("{worker-%d: {mac-address: '52:54:00:00:00:0%[1]d'}}", n))
	}
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [` + strings.Join(list, ", ") + `], KUDPlugins: [emco, metrics-server]}}`)
}

// until waits until an object says that it is ready as it is asked for now.
func (b *bench) until(kind, name string) {
	b.t.Helper()
	var p struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Phase, Message     string
			ObservedGeneration int64
		}
	}
	began := time.Now()
	for said := ""; b.ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		out, err := b.Appliance.Run(b.ctx, "kubectl", "get", kind, name, "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &p) != nil {
			continue
		}
		if now := p.Status.Phase + ": " + p.Status.Message; now != said {
			said = now
			b.t.Logf("%4.0f s  %s", time.Since(began).Seconds(), said)
		}
		if p.Status.Phase == "Ready" && p.Status.ObservedGeneration == p.Metadata.Generation {
			return
		}
	}
	require.NoError(b.t, b.ctx.Err())
}

func (b *bench) nodeNames() string {
	b.t.Helper()
	return b.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
}

// TestAProvisioningBecomesACluster: the whole appliance, its operator, a real Job with the stick's installer
// and three servers: from the resource to a cluster that is used, grown, shrunk, and left alone.
func TestAProvisioningBecomesACluster(t *testing.T) {
	long(t)
	b := newWhole(t, "joint", 3)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.provisioning(2)
	b.until("bpa", "edge")
	assert.Equal(t, "PluginsMissing", b.appliance("kubectl", "get", "bpa", "edge", "-o",
		`jsonpath={.status.conditions[?(@.type=="PluginsAvailable")].reason}`), "emco is not on the stick")
	t.Log("\n" + b.kubectl("get", "nodes", "-o", "wide"))
	b.appliance("kubectl", "wait", "kc/edge-metrics-server", "--for=condition=Ready", "--timeout=10m")
	t.Log("\n" + b.kubectl("top", "nodes"))
	assert.Equal(t, "master-1 worker-2", b.nodeNames())
	kept, err := os.ReadFile(b.Path(cluster, "artifacts/admin.conf"))
	require.NoError(t, err)
	assert.Equal(t, string(kept), b.appliance("firstlightd", "kubeconfig", "edge"))
	assert.True(t, b.verified().Passed)

	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: tools, namespace: default, labels: {cluster: edge}}, spec: {workerSoftware: [jq, htop]}}`)
	b.until("sw", "tools")
	t.Log("\n" + b.appliance("kubectl", "get", "sw", "tools", "-o", "jsonpath={.status.nodes}"))
	assert.Equal(t, "1\n", b.on(b.Servers[1], `echo '{"a":1}' | jq .a`))
	_, err = b.Servers[0].Run(b.ctx, "jq", "--version")
	assert.Error(t, err, "a worker's package on the control plane")

	// A worker of an earlier stick is brought to this one's Kubernetes.
	const version = `dpkg-query --show kubelet kubeadm kubectl firstlight-kubernetes firstlight-node`
	stick := b.on(b.Servers[1], version)
	b.on(b.Servers[1], olderPackages)
	require.NotEqual(t, stick, b.on(b.Servers[1], version))
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: kubernetes, namespace: default, labels: {cluster: edge}},
spec: {workerSoftware: [kubelet, kubeadm, kubectl, kubernetes-cni, firstlight-containerd, firstlight-node]}}`)
	b.until("sw", "kubernetes")
	assert.Equal(t, stick, b.on(b.Servers[1], version))
	assert.Equal(t, []string{"master-1", "worker-2"}, b.ready())

	b.provisioning(2, 3)
	b.until("bpa", "edge")
	assert.Equal(t, "master-1 worker-2 worker-3", b.nodeNames())
	b.provisioning(3)
	b.until("bpa", "edge")
	assert.Equal(t, "master-1 worker-3", b.nodeNames())
	t.Log("\n" + b.appliance("kubectl", "get", "bpa,sw,bmh", "-A", "-o", "wide"))
	t.Log("\n" + b.appliance("firstlightd", "status"))

	b.appliance("kubectl", "delete", "bpa", "edge", "--timeout=3m")
	assert.Empty(t, b.appliance("kubectl", "get", "jobs,pods", "-n", "bpa", "-l", "cluster=edge", "-o", "name"))
	assert.Empty(t, b.appliance("kubectl", "get", "bmh", "-n", "metal3", "-o", "jsonpath={.items[*].spec.consumerRef.name}"))
	assert.Equal(t, "active\n", b.on(b.Servers[0], "systemctl is-active kubelet"), "the nodes were touched")
	assert.Equal(t, "master-1 worker-3", b.on(b.Servers[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o jsonpath='{.items[*].metadata.name}'"))
}
