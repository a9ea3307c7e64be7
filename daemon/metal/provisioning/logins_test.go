package provisioning

import (
	"context"
	"log/slog"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// TestWhoseDefaultPasswordIsTried: of the Secret that a host names, else of the one that its cluster names in its own
// namespace; what neither names is not asked for.
func TestWhoseDefaultPasswordIsTried(t *testing.T) {
	secret := func(namespace, name string, data map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	api := fake.NewClientBuilder().WithObjects(
		secret(metal3.Namespace, "of-host", map[string]string{"username": "debian", "password": "one"}),
		secret("default", "of-cluster", map[string]string{"username": "ubuntu", "password": "two"}),
		secret(metal3.Namespace, "half", map[string]string{"username": "debian"}),
	).Build()
	p := New(Deps{
		Log:  slog.New(slog.DiscardHandler),
		Site: func() *site.Site { return &site.Site{} },
		ClusterLogin: func(_ context.Context, h *metal3api.BareMetalHost) (namespace, secret string, err error) {
			if h.Name == "node-2" || h.Name == "node-1" {
				return "default", "of-cluster", nil
			}
			return "", "", nil
		},
	})
	p.Hosts.Backups = metal3.Backups{Dir: t.TempDir(), Log: p.Log}
	host := func(name, login string) metal3api.BareMetalHost {
		h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: metal3.Namespace, Name: name}}
		if login != "" {
			h.Annotations = map[string]string{label.Login: login}
		}
		return h
	}
	require.NoError(t, p.Hosts.Set([]metal3api.BareMetalHost{
		host("node-1", "of-host"),
		host("node-2", ""),
		host("node-3", ""),
		host("node-4", "half"),
		host("node-5", "none"),
	}))

	connect := func() (client.Client, error) { return api, nil }
	for _, c := range []struct {
		host, user, from, fails string
	}{
		{host: "node-1", user: "debian", from: "Secret metal3/of-host"},
		{host: "node-2", user: "ubuntu", from: "Secret default/of-cluster"},
		{host: "node-3"},
		{host: "node-4", fails: "Secret metal3/half has no username and password"},
		{host: "node-5", fails: "its annotation " + label.Login + " names Secret metal3/none"},
		{host: "node-6"},
	} {
		got, ok, err := p.loginCredentials(t.Context(), connect, c.host)
		if c.fails != "" {
			require.ErrorContains(t, err, c.fails, c.host)
			continue
		}
		require.NoError(t, err, c.host)
		assert.Equal(t, c.user != "", ok, c.host)
		assert.Equal(t, c.user, got.User, c.host)
		assert.Equal(t, c.from, got.From, c.host)
	}
}
