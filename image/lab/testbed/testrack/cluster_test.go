package testrack_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two blank servers become a cluster while the appliance loses its power in the middle of it; a
// package is installed on them; a third server is plugged in and joins. No frame is for somebody
// outside.
func TestServersBecomeACluster(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 3*time.Hour, "legacy", "UEFI", "legacy")
	later := r.nodes[2]
	r.nodes = r.nodes[:2]
	r.clusters = "[{name: edge, controlPlane: [{node: node1}], workers: [{node: node2}], addOns: [metrics-server]}]"
	r.roomy()
	r.power()
	r.launched()

	r.cluster("edge", func(now string) bool { return strings.Contains(now, "The control plane is made: kubeadm") })
	r.cut()
	t.Log("power cut while kubeadm makes the control plane")
	r.switchOn()
	r.ready("edge", 2)

	r.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Software, metadata: {name: tools, labels: {cluster: edge}}, spec: {masterSoftware: [jq], workerSoftware: [jq]}}`)
	r.until("Software tools", r.phase("sw", "tools"), func(s string) bool { return strings.HasPrefix(s, "Ready") })
	for _, n := range r.nodes {
		assert.Equal(t, "1\n", r.sshTo(n, `echo '{"a":1}' | jq .a`))
	}

	r.nodes = append(r.nodes, later)
	later.roomy = true
	r.plugNode(later, "")
	r.clusters = strings.Replace(r.clusters, "{node: node2}", "{node: node2}, {node: node3}", 1)
	r.site()
	r.run("firstlightd", "reload")
	r.launched()
	r.ready("edge", 3)
	r.agree()
	assert.Empty(t, r.rack.OutsideAddresses(), "frames were for addresses outside the rack")
}

// roomy plugs in all nodes, with disks for a cluster.
func (r *room) roomy() {
	r.t.Helper()
	for _, n := range r.nodes {
		n.roomy = true
		r.plugNode(n, "")
	}
}

// phase gives a function that says how a resource of the operator's is.
func (r *room) phase(kind, name string) func() string {
	return func() string {
		out, err := r.appliance.Run(r.ctx, "kubectl", "get", kind, name, "-o", "jsonpath={.status.phase}: {.status.message}")
		if err != nil {
			return "no answer"
		}
		return out
	}
}

// cluster waits for a cluster to be so, and logs what is done to it meanwhile.
func (r *room) cluster(name string, so func(string) bool) {
	r.t.Helper()
	r.until("cluster "+name, r.phase("bpa", name), so)
}

// ready waits until a cluster has n nodes and is verified as it is now, and asks the cluster itself.
func (r *room) ready(name string, n int) {
	r.t.Helper()
	r.cluster(name, func(now string) bool {
		if !strings.HasPrefix(now, "Ready") {
			return false
		}
		nodes, err := r.appliance.Run(r.ctx, "kubectl", "--kubeconfig", config(name), "get", "nodes", "-o", "name")
		return err == nil && len(strings.Fields(nodes)) == n
	})
	r.kubectl(name, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=5m")
	r.t.Log("\n" + r.kubectl(name, "get", "nodes", "-o", "wide"))
	asked, err := os.ReadFile(r.appliance.DataPath("/opt/kud/multi-cluster/" + name + "/artifacts/verification.json"))
	require.NoError(r.t, err)
	r.t.Logf("\n%s", asked)
	assert.Contains(r.t, string(asked), `"passed": true`)
}

// config is where the appliance keeps a cluster's kubeconfig.
func config(cluster string) string {
	return "/opt/kud/multi-cluster/" + cluster + "/artifacts/admin.conf"
}

// kubectl asks a workload cluster.
func (r *room) kubectl(cluster string, args ...string) string {
	r.t.Helper()
	return r.run("kubectl", append([]string{"--kubeconfig", config(cluster)}, args...)...)
}

// apply applies an object to the appliance.
func (r *room) apply(object string) {
	r.t.Helper()
	require.NoError(r.t, r.appliance.Apply(r.ctx, object))
}
