package nodes_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// chainComponents are what docs/addons.md has someone apply.
const chainComponents = `{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {name: multus, namespace: default},
spec: {clusters: [edge], source: {folder: multus}}}
---
{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {name: service-chain, namespace: default},
spec: {clusters: [edge], dependsOn: [{name: multus}], source: {folder: service-chain}}}
`

// serviceChain is a cluster with the sample, by its network.
type serviceChain struct {
	*bench
	name string // of the add-on, and of its namespace
}

// read reads what a part of the chain says of itself, through the API server. A part that just starts is asked again.
func (c serviceChain) read(part string, into any) {
	c.t.Helper()
	var out string
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		out, err = c.Kubectl(c.ctx, cluster, "get", "--raw", "/api/v1/namespaces/"+c.name+"/services/"+part+"/proxy/")
		if err == nil {
			if err = json.Unmarshal([]byte(out), into); err == nil {
				return
			}
		}
	}
	require.NoError(c.t, err, "%s: %s", part, out)
}

// window counts for some seconds what the generator sends and what comes to the sink.
func (c serviceChain) window() (sent, received int64, took float64) {
	c.t.Helper()
	var s, r struct{ Sent, Received int64 }
	count := func() {
		c.read("sink", &r)
		c.read("generator", &s)
	}
	began := time.Now()
	count()
	sent, received = s.Sent, r.Received
	time.Sleep(8 * time.Second)
	count()
	return s.Sent - sent, r.Received - received, time.Since(began).Seconds()
}

// arrives waits until the part of the packets that comes to the sink is what is expected.
func (c serviceChain) arrives(what string, fits func(sent, received int64) bool) {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		sent, received, took := c.window()
		c.t.Logf("%-32s %6.1f packets per second sent, %6.1f at the sink", what, float64(sent)/took, float64(received)/took)
		if sent > 0 && received >= 0 && fits(sent, received) {
			return
		}
		if time.Now().After(end) {
			require.Fail(c.t, "not what is expected at the sink", "%s: %d packets sent, %d at the sink", what, sent, received)
		}
	}
}

// The two counters are not read at one moment: what is compared is not close.
func isMost(sent, received int64) bool { return received*10 > sent*8 }
func isSome(sent, received int64) bool { return received > 0 && received*10 < sent*5 }
func isNone(_, received int64) bool    { return received == 0 }

// patch gives the firewall rules, as docs/addons.md does.
func (c serviceChain) patch(rules string) {
	c.t.Helper()
	text, err := json.Marshal(map[string]any{"data": map[string]string{"rules": rules}})
	require.NoError(c.t, err)
	c.t.Logf("kubectl -n %s patch configmap chain --type=merge -p '%s'", c.name, text)
	c.kubectl("-n", c.name, "patch", "configmap", "chain", "--type=merge", "-p", string(text))
}

// TestServiceChain: one command deploys generator, firewall and sink on a cluster of two nodes. Packets go from one end to
// the other; a rule lowers what arrives, a wrong rule leaves what was, and a firewall in a new pod lets nothing through
// before it has its rules. Without the rule everything arrives again. What somebody wrote into the ConfigMap is not undone.
// The removal leaves nothing but two bridges without ports.
func TestServiceChain(t *testing.T) {
	long(t)
	b := newWhole(t, "chain", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-2: {mac-address: '52:54:00:00:00:02'}}]}}`)
	b.until("bpa", "edge")

	c := serviceChain{b, "service-chain"}
	began := time.Now()
	b.apply(chainComponents)
	b.appliance("kubectl", "wait", "kc/service-chain", "--for=condition=Ready", "--timeout=10m")
	t.Logf("Ready after %s\n%s", time.Since(began).Round(time.Second), b.appliance("kubectl", "get", "kc", "-o", "wide"))
	t.Log("\n" + b.kubectl("-n", "service-chain", "get", "pods,services,net-attach-def,configmap", "-o", "wide"))
	place := strings.Fields(b.kubectl("-n", "service-chain", "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"))
	require.Len(t, place, 3)
	for _, node := range place {
		assert.Equal(t, place[0], node, "a bridge is within one node")
	}
	on := b.Servers[0]
	if place[0] == "worker-2" {
		on = b.Servers[1]
	}

	c.arrives("without a rule", isMost)
	t.Log("\n" + b.kubectl("-n", "service-chain", "logs", "deployment/sink", "--tail=5"))
	metrics := b.kubectl("get", "--raw", "/api/v1/namespaces/service-chain/services/sink/proxy/metrics")
	assert.Regexp(t, `(?m)^chain_received_packets_total [1-9]`, metrics)

	c.patch("- {protocol: udp, port: 9000, limit: 100/second, action: drop}")
	c.arrives("100 packets a second", isSome)
	t.Log("\n" + b.kubectl("get", "--raw", "/api/v1/namespaces/service-chain/services/firewall/proxy/"))
	t.Log("\n" + b.kubectl("-n", "service-chain", "logs", "deployment/firewall", "--tail=5"))

	c.checkWrongRule()
	c.checkDrift()
	c.checkRights()
	c.checkRestart()

	c.patch("[]")
	c.arrives("the rule is taken away", isMost)
	c.checkRemoval(on)
}

// TestServiceChainOverNodes: the same sample on networks of OVN. Firewall and ends are on different nodes; a rule lowers
// what arrives, and without it everything arrives again. The add-on and its networks go; ovn4nfv stays.
func TestServiceChainOverNodes(t *testing.T) {
	long(t)
	b := newWhole(t, "chain-ovn", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	const name = "service-chain-ovn4nfv"
	b.provisionPlugins("multus, ovn, ovn4nfv, " + name)
	b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=condition=Ready", "--timeout=15m")
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))
	t.Log("\n" + b.kubectl("-n", name, "get", "networks,pods", "-o", "wide"))
	node := func(app string) string {
		return b.kubectl("-n", name, "get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[*].spec.nodeName}")
	}
	firewall := node("firewall")
	assert.NotEqual(t, firewall, node("generator"))
	assert.NotEqual(t, firewall, node("sink"))

	c := serviceChain{b, name}
	c.arrives("without a rule", isMost)
	c.patch("- {protocol: udp, port: 9000, limit: 100/second, action: drop}")
	c.arrives("100 packets a second", isSome)
	c.checkRestart()
	c.patch("[]")
	c.arrives("the rule is taken away", isMost)

	b.provisionPlugins("multus, ovn, ovn4nfv")
	b.await(b.Servers[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf get namespace "+name+" --ignore-not-found -o name", "^$")
	assert.Empty(t, b.kubectl("get", "networks", "-A", "-o", "name"))
	b.appliance("kubectl", "wait", "kc/edge-ovn4nfv", "--for=condition=Ready", "--timeout=1m")
}

// checkWrongRule: the sentence is in an Event, and the rules of before hold.
func (c serviceChain) checkWrongRule() {
	c.t.Helper()
	c.patch("- {protocol: udq, port: 9000, action: drop}")
	const events = "kubectl --kubeconfig /etc/kubernetes/admin.conf -n service-chain get events " +
		"--field-selector involvedObject.name=chain,reason=RulesRefused -o jsonpath={.items[*].message}"
	c.await(c.Servers[0], events, `rule 1: protocol "udq" is not known; write udp, tcp or icmp; the rules of before hold`)
	c.t.Log(c.on(c.Servers[0], events))
	c.arrives("a wrong rule", isSome)
	var f struct{ Problem string }
	c.read("firewall", &f)
	assert.Contains(c.t, f.Problem, "udq")
}

// checkDrift: what others change is repaired, but for the ConfigMap, which is the cluster's users'.
func (c serviceChain) checkDrift() {
	c.t.Helper()
	c.appliance("kubectl", "patch", "kc", "service-chain", "--type=merge", "-p", `{"spec":{"interval":"20s"}}`)
	const port = "kubectl --kubeconfig /etc/kubernetes/admin.conf -n service-chain get service sink -o jsonpath={.spec.ports[0].targetPort}"
	c.kubectl("-n", "service-chain", "patch", "service", "sink", "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/targetPort","value":9}]`)
	c.await(c.Servers[0], port, "^8080$")
	assert.Contains(c.t, c.kubectl("-n", "service-chain", "get", "configmap", "chain", "-o", "jsonpath={.data.rules}"), "udq")
}

// checkRights: what the firewall may ask of the API, and what its pod may do on its node.
func (c serviceChain) checkRights() {
	c.t.Helper()
	for can, want := range map[string]string{
		"watch configmaps/chain": "yes",
		"create events":          "yes",
		"get configmaps":         "no",
		"patch configmaps/chain": "no",
		"get secrets":            "no",
		"list pods":              "no",
	} {
		out := c.on(c.Servers[0], "kubectl --kubeconfig /etc/kubernetes/admin.conf -n service-chain auth can-i "+can+
			" --as=system:serviceaccount:service-chain:firewall 2>/dev/null || true")
		assert.Equal(c.t, want, strings.TrimSpace(out), can)
	}
	c.t.Log("firewall: " + c.kubectl("-n", "service-chain", "get", "deployment", "firewall", "-o", "jsonpath={.spec.template.spec.containers[0].securityContext}"))
	c.t.Log("sink: " + c.kubectl("-n", "service-chain", "get", "deployment", "sink", "-o", "jsonpath={.spec.template.spec.containers[0].securityContext}"))
}

// checkRestart: a pod of the firewall that is new has its rules before its first packet.
func (c serviceChain) checkRestart() {
	c.t.Helper()
	c.patch("- {action: drop}")
	c.arrives("drop", isNone)
	var before, after struct{ Received int64 }
	c.read("sink", &before)
	c.kubectl("-n", c.name, "delete", "pod", "-l", "app=firewall", "--timeout=2m")
	c.kubectl("-n", c.name, "rollout", "status", "deployment/firewall", "--timeout=3m")
	c.arrives("drop, another pod of the firewall", isNone)
	c.read("sink", &after)
	assert.Equal(c.t, before.Received, after.Received, "packets passed before the firewall had its rules")
}

// checkRemoval: nothing of the chain is on the cluster, its node has two bridges without ports, and multus is as it was.
func (c serviceChain) checkRemoval(on *nodes.Server) {
	c.t.Helper()
	c.t.Log("\n" + c.on(on, "ip -o link show type bridge; ip -o link show master br-chain-in; ip -o link show master br-chain-out"))
	began := time.Now()
	c.appliance("kubectl", "delete", "kc", "service-chain", "--timeout=5m")
	c.t.Logf("removed in %s", time.Since(began).Round(time.Second))
	assert.Empty(c.t, c.kubectl("get", "namespace", "service-chain", "--ignore-not-found", "-o", "name"))
	const kinds = "deployment,service,configmap,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding,net-attach-def"
	assert.Empty(c.t, c.kubectl("get", kinds, "-A", "-o", "name", "--ignore-not-found", "-l", "kpa.akraino.org/name=service-chain"))
	for _, bridge := range []string{"br-chain-in", "br-chain-out"} {
		assert.Empty(c.t, c.on(on, "ip -o link show master "+bridge), "ports of %s", bridge)
	}
	assert.Equal(c.t, "0\n", c.on(on, "nft list tables | grep -c firstlight-chain || true"), "it was in the firewall's own namespace alone")
	c.appliance("kubectl", "wait", "kc/multus", "--for=condition=Ready", "--timeout=1m")

	// The same command again, on the bridges of before.
	c.apply(chainComponents)
	c.appliance("kubectl", "wait", "kc/service-chain", "--for=condition=Ready", "--timeout=5m")
	c.arrives("installed again", isMost)
}
