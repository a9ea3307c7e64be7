package nodes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// shopPods are two namespaces with a pod on each of two nodes; each pod answers at two ports, of which one has a name.
func shopPods() string {
	var b strings.Builder
	for _, p := range []struct{ namespace, name, node string }{
		{"shop", "front", "master-1"}, {"shop", "back", "worker-2"}, {"bank", "clerk", "master-1"}, {"bank", "till", "worker-2"},
	} {
		b.WriteString(shopPod(p.namespace, p.name, p.node))
	}
	return `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: bank, labels: {money: here}}}
---
{apiVersion: v1, kind: Service, metadata: {name: back, namespace: shop}, spec: {selector: {app: back}, ports: [{port: 80, targetPort: http}]}}
` + b.String()
}

func shopPod(namespace, name, node string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, labels: {app: %[2]s}}
spec:
  nodeName: %[3]s
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532}
  containers:
    - name: http
      image: %[4]s
      command: [/usr/bin/firstlight-node, probe, "--listen=:8080"]
      env: [{name: NODE, value: %[3]s}, {name: POD, value: %[2]s}]
      ports: [{name: http, containerPort: 8080}]
      readinessProbe: {httpGet: {port: 8080, path: /who}, periodSeconds: 1}
    - name: other
      image: %[4]s
      command: [/usr/bin/firstlight-node, probe, "--listen=:9090"]
      env: [{name: NODE, value: %[3]s}, {name: POD, value: %[2]s}]
`, namespace, name, node, manifest.NodeImage)
}

// policed is the cluster with those pods.
type policed struct {
	*bench
	place map[string]*nodes.Server // of each pod
	addr  map[string]string
}

// applyTo applies objects to the cluster. A namespace that is new has no account for pods yet: it is tried again.
func (p *policed) applyTo(text string) {
	p.t.Helper()
	config := "/opt/kud/multi-cluster/" + cluster + "/artifacts/admin.conf"
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
		if err = p.Appliance.Apply(p.ctx, text, "--kubeconfig", config); err == nil {
			return
		}
	}
	require.NoError(p.t, err)
}

// policy applies a NetworkPolicy to namespace shop.
func (p *policed) policy(name, spec string) {
	p.t.Helper()
	p.t.Logf("policy %s: %s", name, spec)
	p.applyTo(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: ` + name + `}, spec: ` + spec + `}`)
}

// find waits for a pod and reads its address.
func (p *policed) find(namespace, name string, on *nodes.Server) {
	p.t.Helper()
	p.kubectl("-n", namespace, "wait", "pod/"+name, "--for=condition=Ready", "--timeout=5m")
	p.place[name], p.addr[name] = on, p.kubectl("-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	require.NotEmpty(p.t, p.addr[name])
}

// ask has a pod's own node send the pod a request for another one: what a node asks of its pods always passes.
func (p *policed) ask(from, query string) string {
	p.t.Helper()
	return p.on(p.place[from], fmt.Sprintf(`bash -c "exec 3<>/dev/tcp/%s/8080; printf 'GET /%s HTTP/1.0\r\n\r\n' >&3; timeout 30 cat <&3"`, p.addr[from], query))
}

// expect waits until a pod gets an answer to a query, or none.
func (p *policed) expect(isAnswered bool, from, query string) {
	p.t.Helper()
	want := map[bool]string{true: " 200 OK", false: " 502 Bad Gateway"}[isAnswered]
	began := time.Now()
	var out string
	for time.Since(began) < 90*time.Second {
		if out = p.ask(from, query); strings.Contains(out, want) {
			lines := strings.Split(strings.TrimSpace(out), "\n")
			p.t.Logf("%-5s %-55s %.0f s: %s", from, query, time.Since(began).Seconds(), lines[len(lines)-1])
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	assert.Contains(p.t, out, want, "%s, %s", from, query)
}

// reaches and misses say what pods FROM>TO, or FROM>TO:PORT, do.
func (p *policed) reaches(paths ...string) { p.t.Helper(); p.expectAll(true, paths) }
func (p *policed) misses(paths ...string)  { p.t.Helper(); p.expectAll(false, paths) }

func (p *policed) expectAll(isAnswered bool, paths []string) {
	p.t.Helper()
	for _, path := range paths {
		from, to, _ := strings.Cut(path, ">")
		to, port, found := strings.Cut(to, ":")
		if !found {
			port = "8080"
		}
		p.expect(isAnswered, from, "ask?url=http://"+p.addr[to]+":"+port+"/who")
	}
}

// TestNetworkPolicies: a Provisioning asks for network-policy, which the stick carries. Policies hold between pods of one
// node and of two, by label, namespace, range, port, name of a port and through a Service, whatever happens to the
// agents; without a policy, and without the add-on, everything is open as before.
func TestNetworkPolicies(t *testing.T) {
	long(t)
	b := newWithPlugin(t, "policies", "network-policy")

	p := &policed{bench: b, place: map[string]*nodes.Server{}, addr: map[string]string{}}
	first, worker := b.Servers[0], b.Servers[1]
	p.applyTo(shopPods())
	p.find("shop", "front", first)
	p.find("shop", "back", worker)
	p.find("bank", "clerk", first)
	p.find("bank", "till", worker)
	p.addr["service"] = b.kubectl("-n", "shop", "get", "service", "back", "-o", "jsonpath={.spec.clusterIP}")
	t.Log("\n" + b.kubectl("get", "pods,services", "-A", "-o", "wide"))
	const names = "resolve?name=kubernetes.default"
	open := func() {
		t.Helper()
		p.reaches("front>back", "front>back:9090", "front>service:80", "till>back", "clerk>back", "back>till", "till>front")
		p.expect(true, "front", names)
	}
	open()

	// Everything of the namespace is shut but to its own nodes, and nothing of the other namespace.
	p.policy("shut", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
	p.misses("front>back", "till>back", "clerk>back", "back>till", "clerk>front", "front>service:80")
	p.reaches("till>clerk", "clerk>till", "back>service:80") // a pod reaches itself, through a Service too
	p.expect(false, "front", names)
	b.kubectl("-n", "shop", "wait", "pod", "--all", "--for=condition=Ready", "--timeout=1m")

	// By label, across nodes, to a port by its name; by namespace and label, on one node.
	p.policy("front", "{podSelector: {matchLabels: {app: front}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: back}}}], ports: [{port: http}]}]}")
	p.policy("back", "{podSelector: {matchLabels: {app: back}}, ingress: [{from: [{podSelector: {matchLabels: {app: front}}}, "+
		"{namespaceSelector: {matchLabels: {money: here}}, podSelector: {matchLabels: {app: till}}}], ports: [{port: http}]}]}")
	p.reaches("front>back", "front>service:80", "till>back")
	p.misses("front>back:9090", "till>back:9090", "clerk>back", "front>till", "back>front")
	p.expect(false, "front", names)
	p.policy("names", "{podSelector: {matchLabels: {app: front}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], ports: [{port: dns, protocol: UDP}]}]}")
	p.expect(true, "front", names)

	// By range, with an exception.
	p.policy("range", "{podSelector: {matchLabels: {app: front}}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: ["+p.addr["till"]+"/32]}}], ports: [{port: 8000, endPort: 8100}]}]}")
	p.reaches("clerk>front")
	p.misses("till>front", "clerk>front:9090")

	// A pod that comes later is known to the policies of others, and isolated.
	p.applyTo(shopPod("shop", "late", "worker-2"))
	p.find("shop", "late", worker)
	p.misses("till>late", "late>till")
	b.kubectl("-n", "shop", "label", "pod", "late", "app=front", "--overwrite")
	p.reaches("late>back")

	// Agents that start again find the policies enforced and keep it so; a table that somebody took away is made again.
	const table = "nft list tables | grep -c 'inet firstlight-policy' || true"
	b.kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=network-policy")
	for _, s := range b.Servers {
		assert.Equal(t, "1\n", b.on(s, table), "the table went with the agent")
	}
	p.misses("clerk>back")
	b.kubectl("-n", "kube-system", "rollout", "status", "daemonset/network-policy", "--timeout=3m")
	p.misses("clerk>back", "front>back:9090")
	p.reaches("front>back", "till>back")
	t.Log("\n" + b.kubectl("-n", "kube-system", "logs", "-l", "k8s-app=network-policy", "--tail=20", "--prefix"))
	b.on(worker, "nft delete table inet firstlight-policy")
	b.await(worker, table, "^1\n")
	p.misses("clerk>back")
	p.reaches("till>back")
	t.Log("\n" + b.on(worker, "nft list table inet firstlight-policy"))

	// Without policies everything is open.
	b.kubectl("-n", "shop", "delete", "networkpolicy", "--all")
	open()

	// Without the add-on, too, and nothing of it is on any node.
	p.policy("shut", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
	p.misses("front>back", "till>back")
	b.provisionPlugins("")
	for _, s := range b.Servers {
		b.await(s, table, "^0\n")
	}
	open()
	assert.Empty(t, b.kubectl("get", "clusterrole,clusterrolebinding,serviceaccount,role,rolebinding,daemonset", "-A", "-o", "name", "--ignore-not-found", "-l", "kpa.akraino.org/name=edge-network-policy"))
}
