package testrack_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// Two blank servers, one with BIOS and one with UEFI, become a cluster of Cluster API: nothing is applied but objects,
// and nothing logs in to make a node of them. No frame is for somebody outside.
func TestObjectsBecomeACluster(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 3*time.Hour, "legacy", "UEFI")
	servers := r.nodes
	r.roomy()
	r.nodes = nil // the site names none
	r.switchOn()
	for _, stage := range []string{"cluster-api-ready", "packages-ready"} {
		_, err := r.appliance.AwaitStage(r.ctx, stage, t.Output())
		require.NoError(t, err)
	}

	for _, n := range servers {
		r.apply(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: %[1]s-bmc, namespace: metal3}, stringData: {username: %[2]s, password: %[3]s}}
---
{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {name: %[1]s, namespace: metal3}, spec: {online: true, bootMACAddress: %[4]q,
bootMode: %[5]s, bmc: {address: "ipmi://%[6]s:%[7]d", credentialsName: %[1]s-bmc}}}
`, n.name(), testrack.User, testrack.Password, n.mac(), n.mode, testrack.BMCAddr, n.port()))
	}
	r.until("what nodes are set up by", func() string {
		out, _ := r.appliance.Run(r.ctx, "kubectl", "-n", "metal3", "get", "secret", "firstlight-node", "-o", "name")
		return out
	}, func(s string) bool { return s != "" })

	began := time.Now()
	r.apply(r.generate())
	r.until("machines", func() string {
		out, _ := r.appliance.Run(r.ctx, "kubectl", "-n", "metal3", "get", "machines,bmh", "-o",
			"custom-columns=NAME:.metadata.name,PHASE:.status.phase,NODE:.status.nodeRef.name,HOST:.status.provisioning.state")
		return "\n" + out
	}, func(s string) bool { return strings.Count(s, "Running") == len(servers) })

	config := r.run("clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "kubeconfig", "edge", "-n", "metal3")
	require.NoError(t, r.appliance.WriteFile("/root/edge.conf", []byte(config), 0o600))
	workload := func(args ...string) string {
		return r.run("kubectl", append([]string{"--kubeconfig", "/root/edge.conf"}, args...)...)
	}
	workload("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=20m")
	workload("-n", "kube-system", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=20m")
	t.Logf("a cluster after %s", time.Since(began).Round(time.Second))
	t.Log("\n" + r.run("clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "describe", "cluster", "edge", "-n", "metal3"))
	t.Log("\n" + workload("get", "nodes", "-o", "wide"))
	t.Log("\n" + workload("get", "pods", "-A", "-o", "wide"))
	assert.Len(t, strings.Fields(workload("get", "nodes", "-o", "name")), len(servers))
	assert.Empty(t, r.rack.OutsideAddresses(), "frames were for addresses outside the rack")
}

// generate is what clusterctl prints for one control plane node and one worker with the stick's own system.
func (r *room) generate() string {
	r.t.Helper()
	system := filepath.Join(r.t.TempDir(), "system.raw")
	require.NoError(r.t, r.appliance.Assemble(nodes.System, system))
	return r.run("env", "CONTROL_PLANE_ENDPOINT_HOST=172.22.0.200", "IMAGE_URL=http://172.22.0.1:6180/images/debian-13.raw",
		"IMAGE_CHECKSUM="+sum(r.t, system), "clusterctl", "--kubeconfig", "/etc/kubernetes/admin.conf", "generate", "cluster", "edge",
		"-n", "metal3", "--kubernetes-version", assets.KubernetesVersion,
		"--control-plane-machine-count", "1", "--worker-machine-count", "1")
}
