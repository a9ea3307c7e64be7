package nodes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFeaturesLabelNodes: a Provisioning asks for nfd, which the stick carries. Every node gets the labels of what it has;
// what a file on it says comes and goes; what somebody else wrote stays; and all of it goes with the plugin.
func TestFeaturesLabelNodes(t *testing.T) {
	long(t)
	b := newWithPlugin(t, "features", "nfd")

	const labels = "kubectl --kubeconfig /etc/kubernetes/admin.conf get node worker-2 -o jsonpath={.metadata.labels}"
	first, worker := b.Servers[0], b.Servers[1]
	kernel := strings.TrimSpace(b.on(worker, "uname -r"))
	b.await(first, labels, `"feature.node.kubernetes.io/kernel-version.full":"`+kernel+`"`)
	t.Log("\n" + b.kubectl("get", "nodes", "-L", "feature.node.kubernetes.io/kernel-version.full,feature.node.kubernetes.io/system-os_release.ID"))
	assert.Contains(t, b.on(first, labels), `"feature.node.kubernetes.io/system-os_release.ID":"debian"`)

	b.kubectl("label", "node", "worker-2", "feature.node.kubernetes.io/by-hand=true")
	const local = "/etc/kubernetes/node-feature-discovery/features.d/rack"
	b.on(worker, "echo rack=7 >"+local)
	b.await(first, labels, `"feature.node.kubernetes.io/rack":"7"`)
	b.on(worker, "rm "+local)
	b.await(first, labels+" | grep -c /rack || true", "^0\n")

	// What rules give, and what another program says of one node.
	b.applyEdge(`{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeatureRule, metadata: {name: trial}, spec: {rules: [
{name: card, labels: {x.example/card: "true"}, annotations: {x.example/note: a card}, matchFeatures: [{feature: card.kinds, matchExpressions: {fast: {op: Exists}}}]},
{name: kernel, labels: {x.example/kernel: "@kernel.version.major"}, extendedResources: {x.example/slots: "3"}, matchFeatures: [{feature: kernel.version}]},
{name: wrong, labelsTemplate: x}]}}
---
{apiVersion: nfd.k8s-sigs.io/v1alpha1, kind: NodeFeature, metadata: {name: worker-2, namespace: default, labels: {nfd.node.kubernetes.io/node-name: worker-2}},
spec: {labels: {x.example/said: "1"}, features: {flags: {card.kinds: {elements: {fast: {}}}}}}}`)
	b.await(first, labels, `"x.example/card":"true"`)
	b.await(first, labels, `"x.example/said":"1"`)
	const offered = `kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o 'jsonpath={.items[*].status.allocatable.x\.example/slots}'`
	b.await(first, offered, "^3 3$")
	t.Log("\n" + b.kubectl("get", "nodes", "-L", "x.example/card,x.example/kernel,x.example/said") + b.on(first, offered))
	assert.NotContains(t, b.kubectl("get", "node", "master-1", "-o", "jsonpath={.metadata.labels}"), "x.example/card")
	assert.Equal(t, "a card", b.kubectl("get", "node", "worker-2", "-o", `jsonpath={.metadata.annotations.x\.example/note}`))
	b.await(first, "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system logs ds/node-feature-discovery",
		"labelsTemplate is not offered; write labels")
	b.kubectl("create", "clusterrole", "trial", "--verb=get", "--resource=nodes/status") // kubectl reads before it writes
	b.kubectl("create", "clusterrolebinding", "trial", "--clusterrole=trial", "--serviceaccount=kube-system:node-feature-discovery")
	_, err := b.Kubectl(b.ctx, cluster, "--as=system:serviceaccount:kube-system:node-feature-discovery",
		"--as-user-extra=authentication.kubernetes.io/node-name=worker-2", "patch", "node", "worker-2", "--subresource=status",
		"--type=merge", "-p", `{"status":{"capacity":{"cpu":"1000"}}}`)
	assert.ErrorContains(t, err, "only labels, annotations and extended resources are written")
	b.kubectl("delete", "nodefeaturerule", "trial")
	b.await(first, labels+" | grep -c x.example/card || true", "^0\n")
	b.await(first, offered, "^ ?$")

	// The pod of one node writes nothing of another.
	for node, says := range map[string]string{"worker-2": "", "master-1": "the pod of one node writes no other node's labels"} {
		_, err := b.Kubectl(b.ctx, cluster, "--as=system:serviceaccount:kube-system:node-feature-discovery",
			"--as-user-extra=authentication.kubernetes.io/node-name=worker-2", "annotate", "node", node, "x.example/y=1")
		if says == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, says)
	}

	b.provisionPlugins("")
	b.await(first, labels+" | grep -c kernel-version || true", "^0\n")
	assert.Contains(t, b.on(first, labels), `"feature.node.kubernetes.io/by-hand":"true"`)
	b.await(first, onNode+"get clusterrole,serviceaccount,daemonset,job,validatingadmissionpolicy -A -o name --ignore-not-found "+
		"-l kpa.akraino.org/name=edge-nfd", "^$")
}
