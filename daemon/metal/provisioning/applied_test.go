package provisioning

import (
	"context"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestUserDataThatDoesNotExistIsAwaited: the document's host names user data that the document does not have. It is
// waited for, and then the host goes without.
func TestUserDataThatDoesNotExistIsAwaited(t *testing.T) {
	host := func(name string, age time.Duration) *metal3.AppliedHost {
		return &metal3.AppliedHost{Host: &metal3api.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
			Spec:       metal3api.BareMetalHostSpec{UserData: &corev1.SecretReference{Name: name + "-user-data"}},
		}}
	}
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "given-user-data", Namespace: metal3.Namespace},
		Data:       map[string][]byte{"userData": []byte("#cloud-config\n")},
	}).Build()

	for _, w := range []struct {
		host          *metal3.AppliedHost
		awaited, data string
	}{
		{host("given", 0), "", "#cloud-config\n"},
		{host("young", time.Minute), "metal3/young-user-data", ""},
		{host("old", metal3.AwaitSecrets+time.Minute), "", ""},
	} {
		require.NoError(t, new(Provisioner).readUserData(t.Context(), c, w.host), w.host.Host.Name)
		assert.Equal(t, w.awaited, w.host.AwaitedSecret, w.host.Host.Name)
		assert.Equal(t, w.data, string(w.host.UserData), w.host.Host.Name)
	}
}

// TestASecretThatIsNotAnsweredHoldsNoHost: a busy API server says nothing of a host, a Secret that is not there does.
func TestASecretThatIsNotAnsweredHoldsNoHost(t *testing.T) {
	hosts := []metal3api.BareMetalHost{{
		ObjectMeta: metav1.ObjectMeta{Name: "compute-1", Namespace: metal3.Namespace},
		Spec:       metal3api.BareMetalHostSpec{BMC: metal3api.BMCDetails{Address: "ipmi://10.0.0.9", CredentialsName: "bmc"}},
	}}
	late := interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return context.DeadlineExceeded
	}}
	for _, c := range []struct {
		name   string
		client client.Client
		late   bool
	}{
		{"no answer", fake.NewClientBuilder().WithInterceptorFuncs(late).Build(), true},
		{"no Secret", fake.NewClientBuilder().Build(), false},
	} {
		api := func() (client.Client, error) { return c.client, nil }
		all, unfit, err := new(Provisioner).appliedHosts(t.Context(), api, &site.Site{}, hosts, nil)
		if c.late {
			require.ErrorIs(t, err, context.DeadlineExceeded, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		assert.Len(t, all, 1, c.name)
		require.ErrorIs(t, unfit["compute-1"], errNoSecret, c.name)
	}
}
