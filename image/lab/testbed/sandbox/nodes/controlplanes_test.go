package nodes_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestThreeControlPlanes(t *testing.T) {
	long(t)
	b := newBench(t, "three", 3)
	b.inventory(3, b.Servers...)
	b.installed()
	assert.Len(t, b.ready(), 3)
	b.kubectl("create", "configmap", "kept", "--from-literal=a=b")
	b.cut(b.Servers[0])
	// By the others: the node's own way to the API moves on, and etcd has two of three.
	for _, s := range b.Servers[1:] {
		assert.Equal(t, "b", b.on(s, "kubectl --kubeconfig /etc/kubernetes/admin.conf get configmap kept -o jsonpath={.data.a}"))
	}
	assert.Equal(t, "b", b.kubectl("--context", "edge-node-2", "get", "configmap", "kept", "-o", "jsonpath={.data.a}"))
	b.power(b.Servers[0])
	b.installed()
	assert.Len(t, b.ready(), 3)
}

// ICN's samples have two: the cluster works as long as both do.
func TestTwoControlPlanes(t *testing.T) {
	long(t)
	b := newBench(t, "pair", 2)
	b.inventory(2, b.Servers...)
	b.installed()
	assert.Len(t, b.ready(), 2)
	b.cut(b.Servers[1])
	b.power(b.Servers[1])
	b.installed()
	assert.True(t, b.verified().Passed)
}

func TestAWorkerMoves(t *testing.T) {
	long(t)
	b := newBench(t, "moves", 2)
	first, worker := b.Servers[0], b.Servers[1]
	b.inventory(1, b.Servers...)
	b.installed()
	b.on(worker, "ip address delete "+worker.Addr.String()+"/24 dev eth0; ip address add 172.22.0.42/24 dev eth0")
	worker.Addr = netip.MustParseAddr("172.22.0.42")
	b.inventory(1, b.Servers...)
	b.installed()
	assert.Equal(t, "172.22.0.42", b.kubectl("get", "node", "node-2", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
	assert.True(t, b.verified().Passed)

	b.on(first, "ip address add 172.22.0.41/24 dev eth0")
	first.Addr = netip.MustParseAddr("172.22.0.41")
	b.inventory(1, b.Servers...)
	code, out := b.install("--stall", "20s")
	assert.Equal(t, 2, code)
	assert.Contains(t, out, "a control plane does not move: give it 172.22.0.11 again")
}
