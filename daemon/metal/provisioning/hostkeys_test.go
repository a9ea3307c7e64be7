package provisioning

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// newHost is a host that is being installed with this user data.
func newHost(name, userData string) (*metal3api.BareMetalHost, *corev1.Secret) {
	h := &metal3api.BareMetalHost{}
	h.Name, h.Namespace = name, metal3.Namespace
	h.Spec.UserData = &corev1.SecretReference{Name: name + "-user-data"}
	s := &corev1.Secret{Data: map[string][]byte{"userData": []byte(userData)}}
	s.Name, s.Namespace = name+"-user-data", metal3.Namespace
	return h, s
}

// TestAHostIsKnownByWhatItsRamdiskTold: the key is on DATA and on the host before the disk may be written. Cut off in
// between, nothing is allowed, and the same question is answered the next time.
func TestAHostIsKnownByWhatItsRamdiskTold(t *testing.T) {
	const first = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOTicil2/UyYeag2/WrQMJkCnL85l6nMEnZ3of+UBuBn"
	scheme, err := metal3.Scheme()
	require.NoError(t, err)
	node, nodeData := newHost("node1", hostkey.Quote("ssh_keys: {ed25519_private: "+hostkey.Place()+"}\n"))
	other, otherData := newHost("node2", `{"ignition": {}}`)
	cut := true
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, nodeData, other, otherData).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption,
		) error {
			if cut {
				return errors.New("the API is gone")
			}
			return c.Patch(ctx, o, patch, options...)
		},
	}).Build()
	p := New(Deps{Log: slog.New(slog.DiscardHandler), Site: (&site.Site{}).WithDefaults, Vault: &vault.Vault{Keys: &vault.Keys{Dir: t.TempDir()}}})
	known := func(name site.Name) string {
		key, err := p.Vault.Keys.HostPublicKey(name)
		if errors.Is(err, vault.ErrNoHostKey) {
			return ""
		}
		require.NoError(t, err)
		return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	}
	annotation := func(name string) string {
		var h metal3api.BareMetalHost
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: metal3.Namespace, Name: name}, &h))
		return h.Annotations[label.HostKey]
	}

	_, err = p.registerHostKey(t.Context(), c, node, first)
	require.ErrorContains(t, err, "the API is gone")
	cut = false
	for range 2 {
		refusal, err := p.registerHostKey(t.Context(), c, node, first)
		require.NoError(t, err)
		assert.Empty(t, refusal)
		assert.Equal(t, first, known("node1"))
		assert.Equal(t, first, annotation("node1"), "who reads the host does not know it")
	}

	refusal, err := p.registerHostKey(t.Context(), c, node, "")
	require.NoError(t, err)
	assert.Contains(t, refusal, "its ramdisk has made no SSH host key")
	assert.Equal(t, first, known("node1"), "a refused ramdisk changed something")

	// What is no cloud-init's has its own key, and none of an earlier installation.
	require.NoError(t, p.Vault.Keys.SaveHostKey("node2", first))
	refusal, err = p.registerHostKey(t.Context(), c, other, "")
	require.NoError(t, err)
	assert.Empty(t, refusal)
	assert.Empty(t, known("node2"))
	assert.Empty(t, annotation("node2"))
}
