package nodes_test

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

// upstreamPair is the annotation of upstream's Deployment with two networks; upstreamGateway that of its default gateway.
const (
	upstreamPair = `{ "type": "ovn4nfv", "interface": [{ "name": "ovn-port-net", "interface": "net2" , "defaultGateway": "false"},
                      { "name": "ovn-priv-net", "interface": "net3" , "defaultGateway": "false"}]}`
	upstreamGateway = `{ "type": "ovn4nfv", "interface": [{"name": "ovn-port-net", "interface": "net2", "defaultGateway": "false"},
                      {"name": "ovn-priv-net", "interface": "net3", "defaultGateway": "true", "gwipaddress": "172.16.44.201"}]}`
	upstreamDirect = `{ "type": "ovn4nfv", "interface": [{ "name": "directpnetwork", "interface": "net0" }]}`
)

// directNetwork is upstream's, but for the interface and the nodes.
const directNetwork = `
apiVersion: k8s.plugin.opnfv.org/v1alpha1
kind: ProviderNetwork
metadata:
  name: %s
spec:
  cniType: ovn4nfv
  ipv4Subnets:
  - subnet: 172.16.34.0/24
    name: subnet2
    gateway: 172.16.34.1/24
    excludeIps: 172.16.34.2 172.16.34.5..172.16.34.10
  providerNetType: DIRECT
  direct:
    providerInterfaceName: %s
    directNodeSelector: all
`

// ovnBench is a cluster with the add-on.
type ovnBench struct{ *bench }

// address returns what a pod has on one of its interfaces.
func (b ovnBench) address(pod, device string) string {
	b.t.Helper()
	var all []struct {
		Addresses []string `json:"ip_address"`
		Interface string   `json:"interface"`
	}
	text := b.kubectl("get", "pod", pod, "-o", `jsonpath={.metadata.annotations.k8s\.plugin\.opnfv\.org/ovnInterfaces}`)
	require.NoError(b.t, json.Unmarshal([]byte(text), &all), "%s", text)
	for _, i := range all {
		if i.Interface == device {
			require.Len(b.t, i.Addresses, 1)
			address, _, _ := strings.Cut(i.Addresses[0], "/")
			return address
		}
	}
	require.Fail(b.t, "no such interface", "%s of %s: %s", device, pod, text)
	return ""
}

// inPod runs a command in the network namespace of the pod that has an address, on its node.
func (b ovnBench) inPod(s *nodes.Server, address, command string) string {
	b.t.Helper()
	return b.on(s, fmt.Sprintf(`for n in /run/netns/cni-*; do
if nsenter --net=$n ip -4 -o address | grep -q 'inet %s/'; then exec nsenter --net=$n %s; fi
done; echo no pod of this node has %[1]s; exit 1`, address, command))
}

// echo counts the replies of an address to a pod's echo requests with so many bytes.
func (b ovnBench) echo(s *nodes.Server, from, to string, size int) {
	b.t.Helper()
	out := b.inPod(s, from, fmt.Sprintf("python3 /run/echo.py %s %d", to, size))
	b.t.Logf("%s pings %s with %d bytes: %s", from, to, size, strings.TrimSpace(out))
	assert.Contains(b.t, []string{"4 of 5\n", "5 of 5\n"}, out)
}

// meet has two pods ask each other on an interface, until both get an answer: while ovs-vswitchd starts again, there is none.
func (b ovnBench) meet(left, right, device string) {
	b.t.Helper()
	for _, p := range [][2]string{{left, right}, {right, left}} {
		to := b.address(p[1], device)
		began := time.Now()
		for {
			answer, err := b.Kubectl(b.ctx, cluster, "get", "--raw",
				"/api/v1/namespaces/default/pods/"+p[0]+":9000/proxy/ask?url="+url.QueryEscape("http://"+to+":9000/who"))
			if err == nil {
				b.t.Logf("%s asks %s: %s (%.0f s)", p[0], to, answer, time.Since(began).Seconds())
				assert.Contains(b.t, answer, `"pod":"`+p[1]+`"`)
				break
			}
			require.Less(b.t, time.Since(began), 2*time.Minute, "%s asks %s: %v", p[0], to, err)
			time.Sleep(time.Second)
		}
	}
}

// show logs what the nodes have.
func (b ovnBench) show() {
	b.t.Helper()
	b.t.Log("\n" + b.kubectl("-n", "kube-system", "get", "pods", "-o", "wide"))
	for _, s := range b.Servers {
		b.t.Log("\n" + b.on(s, "ip -br -n firstlight-ovn address; nft list table ip firstlight-ovn"))
	}
	b.t.Log("\n" + b.kubectl("-n", "kube-system", "exec", "ds/ovn", "-c", "switch", "--", "/usr/bin/ovs-vsctl", "--db=unix:/run/firstlight-ovn/db.sock", "show"))
	b.t.Log("\n" + b.kubectl("-n", "kube-system", "exec", "deploy/ovn-central", "-c", "northd", "--", "/usr/bin/ovn-nbctl", "--db=unix:/run/ovn/ovnnb_db.sock", "show"))
}

// TestOVN: a Provisioning asks for multus, ovn and ovn4nfv, which the stick carries. Pods on two nodes meet on upstream's
// example networks by TCP and ICMP, are routed between networks, and have a default gateway on one; a missing network says
// what to do; a provider network takes an interface of each node and gives it back; everything of OVN starts again, and its
// databases are lost, while pods keep what they have; and when it is removed, nothing of it is left on the nodes. The nodes'
// kernel has no openvswitch: ovs-vswitchd switches.
func TestOVN(t *testing.T) {
	long(t)
	whole := newWhole(t, "ovn", 2)
	for i, s := range whole.Servers {
		whole.host(i+1, s)
	}
	b := ovnBench{whole}
	b.provisionPlugins("multus, ovn, ovn4nfv")
	for _, plugin := range []string{"multus", "ovn", "ovn4nfv"} {
		b.appliance("kubectl", "wait", "kc/edge-"+plugin, "--for=condition=Ready", "--timeout=10m")
	}
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))
	first, worker := b.Servers[0], b.Servers[1]
	for _, s := range b.Servers {
		b.on(s, "cat >/run/echo.py <<'END'\n"+nodes.EchoProgram+"END")
	}

	// Two pods on two nodes, with upstream's networks.
	b.applyEdge(nodes.OVNNetworks)
	b.applyEdge(nodes.OVNPod("left", "master-1", "ovn4nfv-k8s-plugin", upstreamPair) + nodes.OVNPod("right", "worker-2", "ovn4nfv-k8s-plugin", upstreamPair))
	b.kubectl("wait", "pod/left", "pod/right", "--for=condition=Ready", "--timeout=5m")
	b.show()
	t.Log("\n" + b.kubectl("get", "networks", "-o", "wide") + "\n" + b.networkStatus("left"))
	t.Log(b.kubectl("get", "pod", "left", "-o", `jsonpath={.metadata.annotations.k8s\.plugin\.opnfv\.org/ovnInterfaces}`))
	assert.Equal(t, "Created Created", b.kubectl("get", "networks", "-o", "jsonpath={.items[*].status.state}"))
	b.meet("left", "right", "net2")
	b.meet("left", "right", "net3")
	left := b.address("left", "net2")
	b.echo(first, left, b.address("right", "net2"), 56)
	b.echo(first, left, b.address("right", "net2"), 1372) // all that an MTU of 1400 has room for
	b.echo(first, left, "172.16.33.1", 56)

	b.checkGateway(t, first)
	b.checkMissing(t, first)
	b.checkProvider(t, worker)
	b.checkChain(t, first, worker)
	b.checkRestart(t, first)

	// What a pod has is the operator's to say.
	_, err := b.Kubectl(b.ctx, cluster, "annotate", "pod", "left", "--overwrite", "k8s.plugin.opnfv.org/ovnInterfaces=[]")
	assert.ErrorContains(t, err, "the annotation k8s.plugin.opnfv.org/ovnInterfaces is written by the operator alone")
	_, err = b.Kubectl(b.ctx, cluster, "--as=system:serviceaccount:kube-system:ovn4nfv-operator", "label", "pod", "left", "other=x")
	assert.Error(t, err)

	// Removal.
	b.kubectl("delete", "pod", "-l", "app=ovn", "--timeout=3m")
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system exec deploy/ovn-central -c northd -- /usr/bin/ovn-nbctl "+
		"--db=unix:/run/ovn/ovnnb_db.sock --bare --columns=name find logical_switch_port external_ids:pod=true | grep -c . || true", "^0\n")
	b.provisionPlugins("multus")
	for _, s := range b.Servers {
		b.await(s, "ls /run/netns/firstlight-ovn /run/firstlight-ovn/db.sock 2>/dev/null || true; nft list tables | grep firstlight-ovn || true; "+
			"ip link show ovn-host 2>/dev/null || true", "^$")
	}
	const kinds = "clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,daemonset,deployment,service,secret,validatingadmissionpolicy"
	for _, plugin := range []string{"ovn", "ovn4nfv"} {
		assert.Empty(t, b.kubectl("get", kinds, "-A", "-o", "name", "--ignore-not-found", "-l", "kpa.akraino.org/component=edge-"+plugin))
	}
	assert.Contains(t, b.kubectl("get", "networks", "-o", "name"), "ovn-priv-net", "networks are their owners'")
}

// checkGateway: a pod whose default route is by one of its networks, as upstream's example has it, is routed to the other
// one, and reaches the cluster's pods as before.
func (b ovnBench) checkGateway(t *testing.T, first *nodes.Server) {
	b.applyEdge(nodes.OVNPod("dg", "master-1", "ovn-networkobj", upstreamGateway))
	b.kubectl("wait", "pod/dg", "--for=condition=Ready", "--timeout=5m")
	routes := b.inPod(first, b.address("dg", "net3"), "ip route")
	t.Log("routes of dg:\n" + routes)
	assert.Contains(t, routes, "default via 172.16.44.201 dev net3")
	podIP := b.kubectl("get", "pod", "right", "-o", "jsonpath={.status.podIP}")
	answer := b.ask("dg", podIP+":9000")
	t.Logf("dg asks %s, an address of the cluster's network: %s", podIP, answer)
	assert.Contains(t, answer, `"pod":"right"`)

	// One that has only the second network: its gateway is the router between the two.
	b.applyEdge(nodes.OVNPod("routed", "master-1", "ovn-networkobj",
		`{"type": "ovn4nfv", "interface": [{"name": "ovn-priv-net", "interface": "net0", "defaultGateway": "true"}]}`))
	b.kubectl("wait", "pod/routed", "--for=condition=Ready", "--timeout=5m")
	b.echo(first, b.address("routed", "net0"), "172.16.33.1", 56)
}

// checkMissing: a network that is missing, and an address that is in use.
func (b ovnBench) checkMissing(t *testing.T, first *nodes.Server) {
	events := func(pod string) string {
		return "kubectl --kubeconfig /etc/kubernetes/admin.conf get events --field-selector involvedObject.name=" + pod + ",type=Warning -o jsonpath={.items[*].message}"
	}
	b.applyEdge(nodes.OVNPod("lonely", "worker-2", "ovn-networkobj", `{"type": "ovn4nfv", "interface": [{"name": "late", "interface": "net0"}]}`) +
		nodes.OVNPod("greedy", "worker-2", "ovn-networkobj", fmt.Sprintf(
			`{"type": "ovn4nfv", "interface": [{"name": "ovn-port-net", "interface": "net0", "ipAddress": %q}]}`, b.address("left", "net2"))))
	b.await(first, events("lonely"), "no Network or ProviderNetwork late is ready in default or default; create it")
	b.await(first, events("greedy"), "is pod default/left's")
	t.Log("\n" + b.on(first, events("lonely")) + "\n" + b.on(first, events("greedy")))
	b.applyEdge(`{apiVersion: k8s.plugin.opnfv.org/v1alpha1, kind: Network, metadata: {name: late}, spec: {cniType: ovn4nfv, ipv4Subnets: [{name: a, subnet: 10.9.0.0/24}]}}`)
	b.kubectl("wait", "pod/lonely", "--for=condition=Ready", "--timeout=5m")
	b.kubectl("delete", "pod", "lonely", "greedy", "--timeout=3m")

	b.applyEdge(`{apiVersion: k8s.plugin.opnfv.org/v1alpha1, kind: Network, metadata: {name: wrong}, spec: {cniType: ovn4nfv, ipv4Subnets: [{name: a, subnet: 10.9.0.1/24}]}}`)
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf get networks.k8s.plugin.opnfv.org wrong -o jsonpath={.status.message}", "is no network; write 172.16.33.0/24")
}

// checkProvider: a provider network on an interface of each node. Here it is the end of a tunnel between the two; that makes
// it a wire that both are on.
func (b ovnBench) checkProvider(t *testing.T, worker *nodes.Server) {
	for i, s := range b.Servers {
		b.on(s, fmt.Sprintf("ip link add pnet0 type vxlan id 77 dstport 4790 local %s remote %s && ip link set pnet0 up", s.Addr, b.Servers[1-i].Addr))
	}
	b.applyEdge(fmt.Sprintf(directNetwork, "directpnetwork", "pnet0"))
	b.applyEdge(nodes.OVNPod("outer-left", "master-1", "ovn-networkobj", upstreamDirect) + nodes.OVNPod("outer-right", "worker-2", "ovn-networkobj", upstreamDirect))
	b.kubectl("wait", "pod/outer-left", "pod/outer-right", "--for=condition=Ready", "--timeout=5m")
	for _, s := range b.Servers {
		b.await(s, "ip -br -n firstlight-ovn link show pnet0", "UP")
	}
	t.Log("\n" + b.kubectl("get", "providernetworks", "-o", "wide"))
	b.meet("outer-left", "outer-right", "net0")
	assert.Equal(t, "172.16.34.3", b.address("outer-left", "net0"), "the lowest that is not excluded")

	// The node's own interface is not taken.
	b.applyEdge(fmt.Sprintf(directNetwork, "greedy", "eth0"))
	const events = "kubectl --kubeconfig /etc/kubernetes/admin.conf get events --field-selector involvedObject.kind=ProviderNetwork -o jsonpath={.items[*].message}"
	b.await(b.Servers[0], events, "interface eth0 has the node's own address")
	t.Log("\n" + b.on(b.Servers[0], events))

	b.kubectl("delete", "pod", "outer-left", "outer-right", "--timeout=3m")
	b.kubectl("delete", "providernetwork", "directpnetwork", "greedy", "--timeout=3m")
	for _, s := range b.Servers {
		b.await(s, "ip link show pnet0 2>/dev/null || true", "pnet0")
	}
	t.Log("\n" + b.on(worker, "ip -d link show pnet0"))
}

// ovnChain is a chain of two pods on two nodes, and what it needs.
const (
	ovnChainNetwork = `{apiVersion: k8s.plugin.opnfv.org/v1alpha1, kind: Network, metadata: {name: dync-net1},
spec: {cniType: ovn4nfv, ipv4Subnets: [{name: a, subnet: 10.77.0.0/24}]}}`
	ovnChain = `
apiVersion: k8s.plugin.opnfv.org/v1alpha1
kind: NetworkChaining
metadata:
  name: example-networkchaining
spec:
  chainType: "Routing"
  routingSpec:
    namespace: "default"
    networkChain: "net=ovn-port-net,role=slb,net=dync-net1,role=ngfw,net=ovn-priv-net"
    left:
    - networkName: "ovn-port-net"
      gatewayIp: "172.16.33.1"
      subnet: "172.16.33.0/24"
    right:
    - networkName: "ovn-priv-net"
      gatewayIp: "172.16.44.1"
      subnet: "172.16.44.0/24"
`
)

// checkChain: a pod of one network reaches one of the other through two that pass on, for as long as there is a chain.
func (b ovnBench) checkChain(t *testing.T, first, worker *nodes.Server) {
	annotation := func(interfaces ...string) string {
		return `{"type": "ovn4nfv", "interface": [` + strings.Join(interfaces, ", ") + `]}`
	}
	const middle = `{"name": "dync-net1", "interface": "net3"}`
	b.applyEdge(ovnChainNetwork)
	b.applyEdge(
		nodes.OVNPod("slb", "master-1", "ovn-networkobj", annotation(`{"name": "ovn-port-net", "interface": "net2", "ipAddress": "172.16.33.100"}`, middle)) +
			nodes.OVNPod("ngfw", "worker-2", "ovn-networkobj", annotation(`{"name": "ovn-priv-net", "interface": "net2", "ipAddress": "172.16.44.100"}`, middle)) +
			nodes.OVNPod("near", "master-1", "ovn-networkobj", annotation(
				`{"name": "ovn-port-net", "interface": "net2", "defaultGateway": "true", "gwipaddress": "172.16.33.100"}`)) +
			nodes.OVNPod("far", "worker-2", "ovn-networkobj", annotation(
				`{"name": "ovn-priv-net", "interface": "net2", "defaultGateway": "true", "gwipaddress": "172.16.44.100"}`)))
	b.kubectl("wait", "pod/slb", "pod/ngfw", "pod/near", "pod/far", "--for=condition=Ready", "--timeout=5m")
	b.inPod(first, "172.16.33.100", "sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'")
	b.inPod(worker, "172.16.44.100", "sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'")

	far := b.address("far", "net2")
	passes := func() error {
		_, err := b.Kubectl(b.ctx, cluster, "get", "--raw",
			"/api/v1/namespaces/default/pods/near:9000/proxy/ask?url="+url.QueryEscape("http://"+far+":9000/who"))
		return err
	}
	require.Error(t, passes(), "without a chain")
	b.applyEdge(ovnChain)
	b.meet("near", "far", "net2")
	t.Log("\n" + b.kubectl("get", "networkchainings", "-o", "wide"))
	t.Log("routes of ngfw:\n" + b.inPod(worker, "172.16.44.100", "ip route"))

	b.kubectl("delete", "networkchaining", "example-networkchaining", "--timeout=3m")
	require.Eventually(t, func() bool { return passes() != nil }, 2*time.Minute, time.Second, "the routes stay")
	b.kubectl("delete", "pod", "slb", "ngfw", "near", "far", "--timeout=3m")
}

// checkRestart: all of it starts again, and the databases are lost. Pods have what they had.
func (b ovnBench) checkRestart(t *testing.T, first *nodes.Server) {
	before := b.kubectl("get", "pods", "-l", "app=ovn", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.metadata.annotations}{end}")
	for _, what := range []string{"daemonset/ovn", "daemonset/ovn4nfv", "deployment/ovn-central", "deployment/ovn4nfv-operator"} {
		began := time.Now()
		b.kubectl("-n", "kube-system", "rollout", "restart", what)
		b.kubectl("-n", "kube-system", "rollout", "status", what, "--timeout=5m")
		t.Logf("%s started again in %.0f s", what, time.Since(began).Seconds())
		b.meet("left", "right", "net2")
	}

	b.on(first, "rm /var/lib/firstlight-ovn/nb.db /var/lib/firstlight-ovn/sb.db")
	b.kubectl("-n", "kube-system", "rollout", "restart", "deployment/ovn-central")
	b.kubectl("-n", "kube-system", "rollout", "status", "deployment/ovn-central", "--timeout=5m")
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system exec deploy/ovn-central -c northd -- "+
		"/usr/bin/ovn-nbctl --db=unix:/run/ovn/ovnnb_db.sock --bare --columns=name find logical_switch_port external_ids:pod=true", "default_left_net2")
	b.meet("left", "right", "net2")
	after := b.kubectl("get", "pods", "-l", "app=ovn", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.metadata.annotations}{end}")
	assert.Equal(t, before, after, "pods, and what they have")

	b.applyEdge(nodes.OVNPod("later", "worker-2", "ovn-networkobj", upstreamPair))
	b.kubectl("wait", "pod/later", "--for=condition=Ready", "--timeout=5m")
	b.meet("left", "later", "net3")
}
