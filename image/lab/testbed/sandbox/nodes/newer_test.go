package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
)

// olderPackages has a node believe that its packages of Kubernetes are those of an earlier patch release.
const olderPackages = `
version=$(dpkg-query --show --showformat='${Version}' kubelet)
sed -i "s/$version/1.36.2-0firstlight0.1.0+0123456789ab/g" /var/lib/dpkg/status
`

// TestANewerStickLeavesNodesInServiceAsTheyAre: a cluster was installed by another stick, with other programs and
// images of another patch release. A worker that this stick adds gets this stick's; nobody else does.
func TestANewerStickLeavesNodesInServiceAsTheyAre(t *testing.T) {
	b := newBench(t, "newer", 2)
	b.inventory(1, b.Servers[0])
	b.installed()
	first, second := b.Servers[0], b.Servers[1]
	const versions = `dpkg-query --show kubelet kubeadm kubectl kubernetes-cni firstlight-kubernetes firstlight-containerd firstlight-node`
	stick := b.on(first, versions)
	b.on(first, olderPackages+`
image=firstlight.internal/etcd:`+assets.EtcdVersion+` # it runs already
ctr -n k8s.io images tag --force firstlight.internal/pause:`+assets.PauseVersion+` $image
ctr -n k8s.io images label $image firstlight.dev/synced=true io.cri-containerd.pinned=pinned
ctr -n k8s.io images tag firstlight.internal/kube-proxy:`+assets.KubernetesVersion+` firstlight.internal/kube-proxy:v1.36.0
`)
	b.kubectl("-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy=firstlight.internal/kube-proxy:v1.36.0")
	b.kubectl("-n", "kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=3m")
	before := b.on(first, versions)
	require.NotEqual(t, stick, before)
	kubelet := b.on(first, "systemctl show kubelet")
	images := b.on(first, "ctr -n k8s.io images list | sort")

	b.inventory(1, b.Servers...)
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
	assert.Equal(t, stick, b.on(second, versions), "the node that was added")
	assert.Equal(t, before, b.on(first, versions), "a node in service was given other programs")
	assert.Equal(t, images, b.on(first, "ctr -n k8s.io images list | sort"), "a node in service was given other images")
	assert.Equal(t, kubelet, b.on(first, "systemctl show kubelet"))

	// Its owner asks for the stick's, as a Software does.
	b.on(first, "export DEBIAN_FRONTEND=noninteractive; apt-get -qq install --yes --only-upgrade $(dpkg-query --show --showformat='${Package}\n' 'kube*' 'firstlight-*')")
	assert.Equal(t, stick, b.on(first, versions))
	assert.NotEqual(t, kubelet, b.on(first, "systemctl show kubelet"), "the kubelet still runs from the former program")
	b.installed()
	assert.Equal(t, []string{"node-1", "node-2"}, b.ready())
}

// stages are titles of those of nodes and of the cluster, each of which a run may be killed in.
var stages = []string{
	"The node is reached", "The system is prepared", "Packages of Kubernetes are installed", "The container runtime starts",
	"Container images are put in place", "A way to the API servers is set up", "Renewal of certificates is set up",
	"The control plane is made", "The node joins the cluster", "The cluster's API starts", "The kubeconfig is made",
	"Network and names are set up", "Nodes become ready", "Kubernetes' network and names start", "The cluster is verified",
}
