package testrack_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// TestOVNByTheNodesKernel: two blank servers become a cluster whose packets of OVN the nodes' own kernel switches. Pods of
// both meet by TCP and ICMP: through a tunnel, and in a VLAN on the interface that the nodes keep.
func TestOVNByTheNodesKernel(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 3*time.Hour, "legacy", "UEFI")
	r.clusters = "[{name: edge, controlPlane: [{node: node1}], workers: [{node: node2}], addOns: [multus, ovn, ovn4nfv]}]"
	r.roomy()
	r.power()
	r.launched()
	r.ready("edge", 2)
	for _, addOn := range []string{"multus", "ovn", "ovn4nfv"} {
		r.run("kubectl", "wait", "kc/edge-"+addOn, "--for=condition=Ready", "--timeout=30m")
	}
	t.Log("\n" + r.run("kubectl", "get", "kc", "-o", "wide"))

	for _, n := range r.nodes {
		r.sshTo(n, "test -d /sys/module/openvswitch && cat >/tmp/echo.py <<'END'\n"+nodes.EchoProgram+"END")
		assert.Equal(t, "system", r.ofSwitch(n, "get", "Bridge", "br-int", "datapath_type"), "what switches on %s", n.name())
	}

	const tunnelled = `{"type": "ovn4nfv", "interface": [{"name": "ovn-priv-net", "interface": "net1", "defaultGateway": "false"}]}`
	const tagged = `{"type": "ovn4nfv", "interface": [{"name": "tagged", "interface": "net1"}]}`
	r.applyTo("edge", nodes.OVNNetworks+r.taggedNetwork())
	workload := strings.Fields(r.kubectl("edge", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	require.Len(t, workload, len(r.nodes))
	for kind, annotation := range map[string]string{"tunnel": tunnelled, "vlan": tagged} {
		left, right := kind+"-left", kind+"-right"
		r.applyTo("edge", nodes.OVNPod(left, workload[0], "ovn4nfv-k8s-plugin", annotation)+
			nodes.OVNPod(right, workload[1], "ovn4nfv-k8s-plugin", annotation))
		r.kubectl("edge", "wait", "pod/"+left, "pod/"+right, "--for=condition=Ready", "--timeout=20m")
		r.meet(left, right)
		r.meet(right, left)
		for _, size := range []int{56, 1372} { // all that an MTU of 1400 has room for
			r.echo(left, right, size)
		}
	}

	for _, n := range r.nodes {
		t.Log("\n" + r.ofSwitch(n, "show"))
		links := r.sshTo(n, "sudo ip -n firstlight-ovn -s -d link show")
		t.Log("\n" + links)
		assert.Contains(t, links, "genev_sys_6081", "the kernel's tunnel")
		assert.Contains(t, links, "openvswitch")
	}
	assert.Empty(t, r.rack.OutsideAddresses(), "frames were for addresses outside the rack")
}

// taggedNetwork is a network in a VLAN on the interface of the node's own address, which has the same name on both.
func (r *room) taggedNetwork() string {
	r.t.Helper()
	var uplinks []string
	for _, n := range r.nodes {
		uplinks = append(uplinks, strings.TrimSpace(r.sshTo(n, "ip -o -4 address show to "+n.address()+" | cut -d ' ' -f 2")))
	}
	require.Equal(r.t, uplinks[0], uplinks[1])
	return fmt.Sprintf(`
---
apiVersion: k8s.plugin.opnfv.org/v1alpha1
kind: ProviderNetwork
metadata: {name: tagged}
spec:
  cniType: ovn4nfv
  ipv4Subnets: [{name: a, subnet: 172.16.35.0/24}]
  providerNetType: VLAN
  vlan: {vlanId: "100", providerInterfaceName: %s, logicalInterfaceName: tagged, vlanNodeSelector: all}
`, uplinks[0])
}

// ofSwitch asks Open vSwitch of a node.
func (r *room) ofSwitch(n *node, args ...string) string {
	r.t.Helper()
	pod := r.kubectl("edge", "-n", "kube-system", "get", "pods", "-l", "k8s-app=ovn", "-o",
		"jsonpath={.items[?(@.status.hostIP==\""+n.address()+"\")].metadata.name}")
	require.NotEmpty(r.t, pod)
	return strings.TrimSpace(r.kubectl("edge", append([]string{"-n", "kube-system", "exec", pod, "-c", "switch", "--",
		"/usr/bin/ovs-vsctl", "--db=unix:/run/firstlight-ovn/db.sock"}, args...)...))
}

// applyTo applies objects to a workload cluster.
func (r *room) applyTo(cluster, objects string) {
	r.t.Helper()
	require.NoError(r.t, r.appliance.WriteFile("/root/objects.yaml", []byte(objects), 0o600))
	r.kubectl(cluster, "apply", "-f", "/root/objects.yaml")
}

// onNetwork returns what a pod has on its interface of OVN.
func (r *room) onNetwork(pod string) string {
	r.t.Helper()
	var all []struct {
		Addresses []string `json:"ip_address"`
	}
	text := r.kubectl("edge", "get", "pod", pod, "-o", `jsonpath={.metadata.annotations.k8s\.plugin\.opnfv\.org/ovnInterfaces}`)
	require.NoError(r.t, json.Unmarshal([]byte(text), &all), "%s", text)
	require.Len(r.t, all, 1)
	require.Len(r.t, all[0].Addresses, 1)
	address, _, _ := strings.Cut(all[0].Addresses[0], "/")
	return address
}

// meet has a pod ask another one by TCP until there is an answer.
func (r *room) meet(from, to string) {
	r.t.Helper()
	address := r.onNetwork(to)
	r.until(from+" asks "+address, func() string {
		answer, err := r.appliance.Run(r.ctx, "kubectl", "--kubeconfig", config("edge"), "get", "--raw",
			"/api/v1/namespaces/default/pods/"+from+":9000/proxy/ask?url="+url.QueryEscape("http://"+address+":9000/who"))
		if err != nil {
			return "no answer"
		}
		return answer
	}, func(answer string) bool { return strings.Contains(answer, `"pod":"`+to+`"`) })
}

// echo counts the replies to a pod's echo requests with so many bytes, on the node that the pod is on.
func (r *room) echo(from, to string, size int) {
	r.t.Helper()
	const command = `for n in /run/netns/cni-*; do
if sudo nsenter --net=$n ip -4 -o address | grep -q 'inet %[1]s/'; then exec sudo nsenter --net=$n python3 /tmp/echo.py %[2]s %[3]d; fi
done; echo no pod of this node has %[1]s`
	host := r.kubectl("edge", "get", "pod", from, "-o", "jsonpath={.status.hostIP}")
	for _, n := range r.nodes {
		if n.address() == host {
			out := r.sshTo(n, fmt.Sprintf(command, r.onNetwork(from), r.onNetwork(to), size))
			r.t.Logf("%s pings %s with %d bytes: %s", from, to, size, out)
			assert.Contains(r.t, []string{"4 of 5\n", "5 of 5\n"}, out)
		}
	}
}
