package nodes_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/manifest"
)

// definitions are networks of pods: upstream's quickstart but for the name of the card; the same with addresses that
// pods ask for; and one within each node.
const definitions = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: macvlan-conf
spec:
  config: '{
      "cniVersion": "0.3.0",
      "type": "macvlan",
      "master": "eth0",
      "mode": "bridge",
      "ipam": {
        "type": "host-local",
        "subnet": "192.168.1.0/24",
        "rangeStart": "192.168.1.200",
        "rangeEnd": "192.168.1.216",
        "routes": [
          { "dst": "0.0.0.0/0" }
        ],
        "gateway": "192.168.1.1"
      }
    }'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: rack}
spec:
  config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth0", "mode": "bridge", "capabilities": {"ips": true}, "ipam": {"type": "static"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: local}
spec:
  config: '{"cniVersion": "1.0.0", "plugins": [{"type": "bridge", "bridge": "br-local", "isGateway": true,
    "ipam": {"type": "host-local", "subnet": "10.5.0.0/24"}}]}'
`

// applyEdge applies objects to the cluster.
func (b *bench) applyEdge(text string) {
	b.t.Helper()
	config := "/opt/kud/multi-cluster/" + cluster + "/artifacts/admin.conf"
	require.NoError(b.t, b.Appliance.Apply(b.ctx, text, "--kubeconfig", config))
}

// probePod is a pod that answers on all of its addresses.
func probePod(name, node, networks string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: probe}, annotations: {k8s.v1.cni.cncf.io/networks: %[3]q}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
    - name: probe
      image: %[4]s
      imagePullPolicy: IfNotPresent
      command: [/usr/bin/firstlight-node, probe, --listen, ":9000"]
      env: [{name: NODE, value: %[2]s}, {name: POD, value: %[1]s}]
`, name, node, networks, manifest.NodeImage)
}

// networkStatus is what the plugin says of a pod.
func (b *bench) networkStatus(pod string) string {
	b.t.Helper()
	return b.kubectl("get", "pod", pod, "-o", `jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
}

// ask has a pod ask an address who is there.
func (b *bench) ask(pod, addr string) string {
	b.t.Helper()
	return b.kubectl("get", "--raw", "/api/v1/namespaces/default/pods/"+pod+":9000/proxy/ask?url="+url.QueryEscape("http://"+addr+"/who"))
}

// TestMultus: a Provisioning asks for multus, which the stick carries. Pods get further networks, meet on them across
// nodes, and give their addresses back; a missing definition says what to do; the plugin is repaired and restarted, and
// when it is removed, pods go on with the default network and old ones are deleted cleanly.
func TestMultus(t *testing.T) {
	long(t)
	b := newWithPlugin(t, "multus", "multus")

	first, worker := b.Servers[0], b.Servers[1]
	t.Log("\n" + b.on(worker, "ls -l /opt/cni/bin /etc/cni/net.d /etc/cni/net.d/multus.d; cat /etc/cni/net.d/00-multus.conflist"))
	assert.Equal(t, "600\n", b.on(worker, "stat -c %a /etc/cni/net.d/multus.d/multus.kubeconfig"))

	// Two pods on two nodes, each with the rack's network and one of its node.
	b.applyEdge(definitions)
	b.applyEdge(probePod("left", "master-1", `[{"name":"rack","ips":["192.168.7.11/24"]},{"name":"local","interface":"data"}]`) +
		probePod("right", "worker-2", `[{"name":"rack","ips":["192.168.7.12/24"]},{"name":"local","interface":"data"}]`) +
		probePod("samplepod", "worker-2", "macvlan-conf"))
	b.kubectl("wait", "pod/left", "pod/right", "pod/samplepod", "--for=condition=Ready", "--timeout=5m")
	t.Log("\n" + b.kubectl("get", "pods", "-o", "wide") + "\n" + b.networkStatus("left"))
	for _, want := range []string{
		`"name": "firstlight"`, `"default": true`, `"name": "default/rack"`, `"interface": "net1"`, `"192.168.7.11"`,
		`"name": "default/local"`, `"interface": "data"`, `"10.5.0.`,
	} {
		assert.Contains(t, b.networkStatus("left"), want)
	}
	answer := b.ask("left", "192.168.7.12:9000")
	t.Log("left asks 192.168.7.12: " + answer)
	assert.Contains(t, answer, `"pod":"right"`)
	assert.Contains(t, b.ask("right", "192.168.7.11:9000"), `"pod":"left"`)
	t.Log("upstream's quickstart:\n" + b.networkStatus("samplepod"))
	assert.Contains(t, b.networkStatus("samplepod"), `"192.168.1.200"`)

	// A definition that is missing.
	b.applyEdge(probePod("lonely", "worker-2", "missing"))
	const events = "kubectl --kubeconfig /etc/kubernetes/admin.conf get events --field-selector involvedObject.name=lonely,type=Warning -o jsonpath={.items[*].message}"
	b.await(first, events, "NetworkAttachmentDefinition default/missing does not exist; create it")
	t.Log("\n" + b.on(first, events))
	assert.Equal(t, "Pending", b.kubectl("get", "pod", "lonely", "-o", "jsonpath={.status.phase}"))
	missing := strings.NewReplacer("name: local", "name: missing", "br-local", "br-missing", "10.5.", "10.6.")
	b.applyEdge(missing.Replace(strings.Split(definitions, "---")[2]))
	b.kubectl("wait", "pod/lonely", "--for=condition=Ready", "--timeout=5m")

	// Addresses come back.
	const addresses = "ls /var/lib/cni/networks/macvlan-conf /var/lib/cni/networks/missing | grep -c '^[0-9][0-9.]*$' || true"
	assert.Equal(t, "2\n", b.on(worker, addresses))
	b.kubectl("delete", "pod", "samplepod", "lonely", "--timeout=3m")
	b.await(worker, addresses, "^0\n")

	// The plugin is repaired, and its pod restarted, without a moment without configuration.
	b.on(worker, "rm /opt/cni/bin/macvlan /etc/cni/net.d/multus.d/multus.kubeconfig")
	b.await(worker, "ls /opt/cni/bin/macvlan /etc/cni/net.d/multus.d/multus.kubeconfig", "kubeconfig")
	b.kubectl("-n", "kube-system", "rollout", "restart", "daemonset/multus")
	b.kubectl("-n", "kube-system", "rollout", "status", "daemonset/multus", "--timeout=5m")
	assert.NotContains(t, b.on(worker, "cat /etc/cni/net.d/00-multus.conflist"), "draining")
	b.applyEdge(probePod("later", "worker-2", "default/macvlan-conf@more"))
	b.kubectl("wait", "pod/later", "--for=condition=Ready", "--timeout=5m")
	assert.Contains(t, b.networkStatus("later"), `"interface": "more"`)

	b.checkRights(t)
	b.checkRemoval(t, func() { b.provisionPlugins("") })
}

// checkRights: the plugin of one node writes one annotation, on pods of its node.
func (b *bench) checkRights(t *testing.T) {
	// kubectl reads a status before it changes it; the plugin does not.
	b.kubectl("create", "clusterrole", "trial", "--verb=get", "--resource=pods/status")
	b.kubectl("create", "clusterrolebinding", "trial", "--clusterrole=trial", "--serviceaccount=kube-system:multus")
	const alone = "the plugin writes the annotation k8s.v1.cni.cncf.io/network-status alone"
	for _, c := range []struct{ pod, patch, says string }{
		{"later", `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]"}}}`, ""},
		{"left", `{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":"[]"}}}`, "the plugin of one node writes nothing of another node's pods"},
		{"later", `{"metadata":{"annotations":{"other":"x"}}}`, alone},
		{"later", `{"metadata":{"labels":{"other":"x"}}}`, alone},
		{"later", `{"status":{"message":"x"}}`, alone},
	} {
		_, err := b.Kubectl(b.ctx, cluster, "--as=system:serviceaccount:kube-system:multus",
			"--as-user-extra=authentication.kubernetes.io/node-name=worker-2", "patch", "pod", c.pod, "--subresource=status", "--type=merge", "-p", c.patch)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, c.says, "%s %s", c.pod, c.patch)
	}
	b.kubectl("delete", "clusterrole/trial", "clusterrolebinding/trial")
}

// checkRemoval: new pods start with the default network; the addresses of old ones come back with them, and with the
// last of these the plugin's configuration goes.
func (b *bench) checkRemoval(t *testing.T, remove func()) {
	first, worker := b.Servers[0], b.Servers[1]
	const conf = "cat /etc/cni/net.d/00-multus.conflist 2>/dev/null || echo none"
	remove()
	for _, s := range b.Servers {
		b.await(s, conf, `"draining": true`)
		assert.Equal(t, "none\n", b.on(s, "ls /etc/cni/net.d/multus.d 2>/dev/null || echo none"), "the plugin's access")
	}
	b.applyEdge(probePod("after", "worker-2", "macvlan-conf"))
	b.kubectl("wait", "pod/after", "--for=condition=Ready", "--timeout=5m")
	assert.Empty(t, b.networkStatus("after"), "the plugin is asked for further networks")

	t.Log("\n" + b.on(worker, "ls /var/lib/cni/multus/pods /var/lib/cni/networks/*"))
	b.kubectl("delete", "pod", "left", "right", "later", "--timeout=3m")
	for _, s := range b.Servers {
		b.await(s, conf, "^none\n")
		b.await(s, "ls /var/lib/cni/networks/* | grep -c '^[0-9][0-9.]*$' || true", "^0\n")
	}
	b.kubectl("delete", "pod", "after", "--timeout=3m")
	b.applyEdge(probePod("last", "master-1", ""))
	b.kubectl("wait", "pod/last", "--for=condition=Ready", "--timeout=5m")
	t.Log("\n" + b.on(first, "ls -l /etc/cni/net.d"))

	const kinds = "clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,daemonset,validatingadmissionpolicy"
	assert.Empty(t, b.kubectl("get", kinds, "-A", "-o", "name", "--ignore-not-found", "-l", "kpa.akraino.org/name=edge-multus"))
	assert.Contains(t, b.kubectl("get", "net-attach-def", "-o", "name"), "macvlan-conf", "definitions are their owners'")
}
