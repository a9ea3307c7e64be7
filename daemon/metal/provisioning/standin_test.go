package provisioning

import (
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/metal/standinbmc"
)

// TestANodeIsWaitedForUntilIronicHasThePasswordOfTheStandIn: its Secret having it is not enough. A node with a BMC is not
// waited for.
func TestANodeIsWaitedForUntilIronicHasThePasswordOfTheStandIn(t *testing.T) {
	newHost := func(name, address string) (h metal3api.BareMetalHost) {
		h.Namespace, h.Name = "metal3", name
		h.Spec.BMC = metal3api.BMCDetails{Address: address, CredentialsName: name + "-bmc-secret"}
		return h
	}
	const standIn = "redfish+http://" + standinbmc.Address + "/redfish/v1/Systems/node"
	hosts := []metal3api.BareMetalHost{newHost("without", standIn), newHost("with", "ipmi://10.0.0.7")}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "without-bmc-secret"}}
	api := fake.NewClientBuilder().Build()
	waits := func(why string) {
		t.Helper()
		all, err := findStandInWaiting(t.Context(), api, hosts, "present")
		require.NoError(t, err)
		assert.Equal(t, []string{"without: " + why}, all)
	}
	waits("its Secret metal3/without-bmc-secret is missing")

	secret.Data = map[string][]byte{"password": []byte("former")}
	require.NoError(t, api.Create(t.Context(), secret))
	hosts[0].UpdateGoodCredentials(*secret)
	waits("its Secret metal3/without-bmc-secret has the former one")

	secret.Data["password"] = []byte("present")
	require.NoError(t, api.Update(t.Context(), secret))
	waits("Ironic has not accepted the present one")

	hosts[0].UpdateGoodCredentials(*secret)
	all, err := findStandInWaiting(t.Context(), api, hosts, "present")
	require.NoError(t, err)
	assert.Empty(t, all)
}
