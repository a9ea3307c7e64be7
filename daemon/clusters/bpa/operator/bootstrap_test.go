package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// testBootstrapNIC: Provisionings of ICN named a server by its NIC on the bootstrap network. The site gives that NIC
// no network: the server is found by it, and reached at its own address.
func testBootstrapNIC(t *testing.T, r *fixture) {
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h1-network-data"}, Data: map[string][]byte{"networkData": []byte(
		`{"links":[{"id":"a","ethernet_mac_address":"` + mac(1, 0) + `"}],"networks":[{"link":"a","type":"ipv4","ip_address":"10.10.110.21"}]}`)}})
	r.host(1, func(b *host) {
		b.Spec.NetworkData = &corev1.SecretReference{Name: "h1-network-data", Namespace: "metal3"}
	})
	r.apply(provisioning("edge", "masters:\n- m: {mac-address: '"+mac(1, 1)+"'}"))
	p := r.settle("edge")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Equal(t, "10.10.110.21", p.Status.Nodes[0].Address)
	assert.Equal(t, "site", p.Status.Nodes[0].AddressFrom)
}
