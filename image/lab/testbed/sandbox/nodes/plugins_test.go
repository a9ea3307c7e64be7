package nodes_test

import "testing"

// newWithPlugin is an appliance with a cluster of two nodes that has a plugin of the stick's, and says how it stands.
func newWithPlugin(t *testing.T, name, plugin string) *bench {
	b := newWhole(t, name, 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.provisionPlugins(plugin)
	b.appliance("kubectl", "wait", "kc/edge-"+plugin, "--for=condition=Ready", "--timeout=10m")
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))
	return b
}

// provisionPlugins has a Provisioning of both nodes ask for plugins, commas between, and waits for it.
func (b *bench) provisionPlugins(plugins string) {
	b.t.Helper()
	b.requestPlugins(plugins)
	b.until("bpa", "edge")
}

// requestPlugins has a Provisioning of both nodes ask for plugins, commas between.
func (b *bench) requestPlugins(plugins string) {
	b.t.Helper()
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-2: {mac-address: '52:54:00:00:00:02'}}], KUDPlugins: [` + plugins + `]}}`)
}
