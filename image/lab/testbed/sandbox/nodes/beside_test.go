package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
)

// TestNodesOnBaremetalAlone: the servers have no way to the provisioning network; all that they are made of
// comes from the appliance's address on their own.
func TestNodesOnBaremetalAlone(t *testing.T) {
	b := startBench(t, nodes.Config{Name: "beside", Beside: true}, 2)
	b.inventory(1, b.Servers...)
	for _, s := range b.Servers {
		assert.Equal(t, "none\n", b.on(s, "ip route get 172.22.0.1 2>/dev/null || echo none"), "a way to provisioning")
	}
	b.installed()
	t.Log("\n" + b.kubectl("get", "nodes", "-o", "wide"))
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	assert.True(t, b.verified().Passed)
	for _, s := range b.Servers {
		told := b.on(s, "grep -rhoE 'https?://[0-9.]+[:0-9]*' /etc/containerd/certs.d /etc/apt/sources.list.d/firstlight.sources | sort -u")
		assert.Equal(t, "http://10.10.110.1:6180\nhttps://10.10.110.1:5000\n", told)
		t.Log("\n" + b.on(s, "apt-get update --quiet -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/firstlight.sources -o Dir::Etc::sourceparts=- 2>&1"))
	}
}
