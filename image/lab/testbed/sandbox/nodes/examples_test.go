package nodes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// exampleImages are what upstream's examples run. One small program stands in for what each would do.
var exampleImages = map[string][]string{
	"docker.io/dougbtv/centos-network:latest": nil,
	"docker.io/library/busybox:latest":        nil,
	"docker.io/rkamudhan/netshoot:v1.0":       {"serve"},
}

// example is one of upstream's files, which is applied as it is.
type example struct {
	file     string
	deploys  string   // a Deployment or Pod that runs; "": none
	selector string   // of its pods
	has      []string // what is said of the networks of each
	says     string   // what an event says of a pod that cannot run here
}

// Of upstreams' checkouts.
var examples = []example{
	{
		file: "multus-cni/examples/macvlan-pod.yml", deploys: "pod/samplepod",
		has: []string{`"name": "default/macvlan-conf"`, `"interface": "net1"`, `"10.1.1.101"`, `"mac": "c2:b0:57:49:47:f1"`},
	},
	{file: "multus-cni/examples/sriov-pod.yml", deploys: "pod/testpod1", says: "Insufficient intel.com/sriov"},
	{file: "sriov-network-device-plugin/deployments/configMap.yaml"},
	{file: "sriov-network-device-plugin/deployments/sriov-crd.yaml"},
	{
		file: "sriov-network-device-plugin/deployments/pod-tc2.yaml", deploys: "pod/testpod2",
		says: "Insufficient intel.com/intel_sriov_netdevice",
	},
	{file: "sriov-network-device-plugin/docs/rdma/configMap.yaml"},
	{file: "sriov-network-device-plugin/docs/rdma/crd-rdma-intel.yaml"},
	{file: "sriov-network-device-plugin/docs/dpdk/configMap.yaml"},
	{file: "icn-nodus/example/multus-net-attach-def-cr.yaml"},
	{file: "icn-nodus/example/ovn-port-net.yaml"},
	{file: "icn-nodus/example/ovn-priv-net.yaml"},
	{
		file:    "icn-nodus/example/ovn4nfv-deployment-replica-2-with-multus-ovn4nfv-annotations.yaml",
		deploys: "deployment/ovn4nfv-deployment-2-annotation", selector: "app=ovn4nfv-2-annotation",
		has: []string{`"name": "default/ovn4nfv-k8s-plugin"`, `"interface":"net2"`, `"172.16.33.`, `"interface":"net3"`, `"172.16.44.`},
	},
	{
		file:    "icn-nodus/example/defaut-gateway-pod-with-multus-and-nodus.yaml",
		deploys: "deployment/dg", selector: "app=dg", has: []string{`"172.16.33.`, `"172.16.44.`},
	},
	{
		file:    "icn-nodus/example/ovn4nfv-deployment-with-multus-annotation-sandbox.yaml",
		deploys: "deployment/ovn4nfv-deployment-with-multus-annotation-sandbox",
		says:    "the pod has no annotation k8s.plugin.opnfv.org/nfn-network; say there which networks it wants", // Nodus' own is not here
	},
	{file: "icn-nodus/example/ovn4nfv_vlan_pn.yml"},
	{file: "icn-nodus/example/ovn4nfv_direct_pn.yml"},
}

// featureExamples are those of what sriov is Skipped next to, on nodes without such devices.
var featureExamples = []example{
	{file: "node-feature-discovery/examples/nodefeature.yaml"},
	{file: "node-feature-discovery/examples/nodefeaturerule.yaml"},
}

// TestUpstreamsExamples applies files of upstreams that the add-ons are compatible with, as they are: those of Multus, the
// SR-IOV network device plugin, Node Feature Discovery and Nodus. FIRSTLIGHT_EXAMPLES names a folder with checkouts of these
// by their names. Their images are stand-ins, uploaded under the names that the files have.
func TestUpstreamsExamples(t *testing.T) {
	checkouts := os.Getenv("FIRSTLIGHT_EXAMPLES")
	if checkouts == "" {
		t.Skip("applies files of other projects; FIRSTLIGHT_EXAMPLES names a folder with checkouts of multus-cni, " +
			"sriov-network-device-plugin, node-feature-discovery and icn-nodus")
	}
	long(t)
	b := newWhole(t, "examples", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.provisionPlugins("multus, ovn, ovn4nfv, sriov")
	for _, name := range []string{"multus", "ovn", "ovn4nfv", "sriov"} {
		b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=condition=Ready", "--timeout=10m")
	}
	operator, err := sandbox.NewUploader(b.ctx, b.Appliance, t.TempDir(), "alpha")
	require.NoError(t, err)
	dir, n := t.TempDir(), 0
	for ref, args := range exampleImages {
		n++
		file := filepath.Join(dir, fmt.Sprintf("%d.tar", n))
		b.greeter(file, ref, args...)
		_, err := operator.Artifact(b.ctx, "push", file, fmt.Sprintf("container/example-%d", n))
		require.NoError(t, err)
	}

	const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	first := b.Servers[0]
	b.on(first, kubectl+"taint nodes --all node-role.kubernetes.io/control-plane- || true") // the examples tolerate nothing
	b.applyExamples(checkouts, examples)
	const events = kubectl + "get events --field-selector reason=DevicesNotOffered -o jsonpath={.items[*].message}"
	assert.Empty(t, b.on(first, events), "resources of upstream's configurations are not offered")
	b.await(first, kubectl+"-n kube-system logs ds/sriov -c devices", "no virtual function of this node fits a resource of the configuration")
	t.Log("\n" + b.kubectl("get", "network-attachment-definitions,networks,providernetworks,pods", "-o", "wide"))

	b.provisionPlugins("multus, nfd, ovn, ovn4nfv")
	b.appliance("kubectl", "wait", "kc/edge-nfd", "--for=create", "--timeout=5m")
	b.appliance("kubectl", "wait", "kc/edge-nfd", "--for=condition=Ready", "--timeout=10m")
	b.applyExamples(checkouts, featureExamples)
	const offered = kubectl + `get node worker-2 -o 'jsonpath={.status.allocatable.vendor\.io/static},{.status.allocatable.vendor\.io/dynamic}'`
	b.await(first, offered, `^123,\d+$`)
	t.Log("of nodefeaturerule.yaml: " + b.on(first, offered))
}

// applyExamples applies files, and waits for what each is to come to.
func (b *bench) applyExamples(checkouts string, all []example) {
	b.t.Helper()
	for _, e := range all {
		text, err := os.ReadFile(filepath.Join(checkouts, filepath.FromSlash(e.file)))
		require.NoError(b.t, err)
		b.t.Log("kubectl apply -f " + e.file)
		b.applyEdge(string(text))
		switch {
		case e.says != "":
			b.await(b.Servers[0], onNode+"get events --field-selector type=Warning -o jsonpath={.items[*].message}", e.says)
			b.t.Log("  waits: " + e.says)
		case strings.HasPrefix(e.deploys, "pod/"):
			b.kubectl("wait", e.deploys, "--for=condition=Ready", "--timeout=5m")
			b.checkNetworks(e, strings.TrimPrefix(e.deploys, "pod/"))
		case e.deploys != "":
			b.kubectl("rollout", "status", e.deploys, "--timeout=5m")
			for name := range strings.FieldsSeq(b.kubectl("get", "pods", "-l", e.selector, "-o", "jsonpath={.items[*].metadata.name}")) {
				b.checkNetworks(e, name)
			}
		}
	}
}

// checkNetworks looks for what an example's pod is to have.
func (b *bench) checkNetworks(e example, pod string) {
	b.t.Helper()
	status := b.networkStatus(pod) +
		b.kubectl("get", "pod", pod, "-o", `jsonpath={.metadata.annotations.k8s\.plugin\.opnfv\.org/ovnInterfaces}`)
	b.t.Logf("  %s\n%s", pod, status)
	for _, want := range e.has {
		assert.Contains(b.t, status, want, pod)
	}
}
