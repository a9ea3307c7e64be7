package bpa

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

func TestOwnersOfClustersAndNodes(t *testing.T) {
	provisioning := func(namespace, name, owner string, nodes ...v1alpha1.NodeStatus) v1alpha1.Provisioning {
		return v1alpha1.Provisioning{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"owner": owner}},
			Status:     v1alpha1.ProvisioningStatus{Nodes: nodes},
		}
	}
	owners := OwnersOf([]v1alpha1.Provisioning{
		provisioning("default", "edge", "alpha", v1alpha1.NodeStatus{Name: "m", Address: "10.0.0.1", State: v1alpha1.NodeInstalling}),
		provisioning("default", "lab", "Not a label"),
		provisioning("beta", "x", "alpha", v1alpha1.NodeStatus{Name: "m", Address: "10.0.0.2", State: v1alpha1.NodeInstalled},
			v1alpha1.NodeStatus{Name: "w", Address: "10.0.0.1", State: v1alpha1.NodeWaiting}, v1alpha1.NodeStatus{Name: "v", State: v1alpha1.NodeClaimed}),
	})
	assert.Equal(t, []string{"alpha", "beta", "default"}, owners.Names, "a label made somebody the owner of another's")
	assert.Equal(t, map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "alpha", netip.MustParseAddr("10.0.0.2"): "beta"}, owners.At)
}

// The operator reads what hosts were given, by name, and no BMC's password.
func TestSecretsOfHosts(t *testing.T) {
	ref := func(namespace, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: name}
	}
	host := func(name string, user, network *corev1.SecretReference) metal3api.BareMetalHost {
		return metal3api.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: name},
			Spec: metal3api.BareMetalHostSpec{
				UserData: user, NetworkData: network, BMC: metal3api.BMCDetails{CredentialsName: name + "-bmc-secret"},
			},
		}
	}
	assert.Equal(t, map[string][]string{"metal3": {"a-network-data", "a-user-data", "b-user-data"}}, hostSecrets([]metal3api.BareMetalHost{
		host("b", ref("", "b-user-data"), nil),
		host("a", ref("metal3", "a-user-data"), ref("", "a-network-data")),
		host("c", ref("kube-system", "token"), ref("", "")),
	}))
}

// The copies of the appliance's log-in that were next to Provisionings go; somebody's own stays.
func TestFormerKeysAreRemoved(t *testing.T) {
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	secret := func(namespace, name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	ours := map[string]string{operator.LabelManaged: operator.FieldManager}
	c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(
		&corev1.Secret{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} },
	).WithObjects(
		secret(Namespace, kud.SSHSecret, nil), secret("default", kud.SSHSecret, ours), secret("alpha", kud.SSHSecret, nil),
		secret(Namespace, kud.KeySecret("edge"), ours),
	).Build()
	require.NoError(t, RemoveFormerKeys(t.Context(), c))
	var left corev1.SecretList
	require.NoError(t, c.List(t.Context(), &left))
	var names []string
	for _, s := range left.Items {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	assert.ElementsMatch(t, []string{"alpha/" + kud.SSHSecret, "bpa/" + kud.KeySecret("edge")}, names)
}
