package serving

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/label"
)

// wish is a Secret in which someone asks for a key.
func wish(namespace, name, account string, at int) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(at), 0)),
		},
		Type: artifact.KeySecretType,
	}
	if account != "" {
		s.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	}
	return s
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-" + "1"}}
}

// minting is an API server with objects, and the appliance that mints keys there.
type minting struct {
	t *testing.T
	Minter
}

func newMinting(t *testing.T, objects ...client.Object) minting {
	api := fake.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).Build()
	return minting{t, Minter{API: api, Endpoint: "https://172.22.0.1:9000", CA: []byte("ca")}}
}

// mint mints and returns what the agent is given.
func (m minting) mint() map[string]artifact.MintedKey {
	require.NoError(m.t, m.Mint(m.t.Context()))
	keys := map[string]artifact.MintedKey{}
	for id, text := range m.secret(Namespace, artifact.KeysSecret).Data {
		var k artifact.MintedKey
		require.NoError(m.t, json.Unmarshal(text, &k))
		keys[id] = k
	}
	return keys
}

func (m minting) secret(namespace, name string) *corev1.Secret {
	var s corev1.Secret
	require.NoError(m.t, m.API.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &s))
	return &s
}

func TestAKeyIsMintedOnRequestAndGoesWithItsSecret(t *testing.T) {
	m := newMinting(t, account("alpha", "uploader"), wish("alpha", "s3", "uploader", 1))
	keys := m.mint()
	s := m.secret("alpha", "s3")
	id, secret := string(s.Data[artifact.KeyAccess]), string(s.Data[artifact.KeySecret])
	assert.Len(t, id, 20)
	assert.Len(t, secret, 43)
	assert.Equal(t, "https://172.22.0.1:9000", string(s.Data[artifact.KeyEndpoint]))
	assert.Equal(t, map[string]artifact.MintedKey{id: {SecretKey: secret, Namespace: "alpha", Account: "uploader", UID: "uid-1"}}, keys)
	assert.NotContains(t, keys[id].String(), secret)
	assert.Equal(t, keys, m.mint(), "it stays what it is")

	require.NoError(t, m.API.Delete(t.Context(), s))
	assert.Empty(t, m.mint())
}

func TestAKeyGoesWithItsAccount(t *testing.T) {
	a := account("alpha", "uploader")
	m := newMinting(t, a, wish("alpha", "s3", "uploader", 1))
	assert.Len(t, m.mint(), 1)
	require.NoError(t, m.API.Delete(t.Context(), a))
	assert.Empty(t, m.mint())
	s := m.secret("alpha", "s3")
	assert.Empty(t, s.Data)
	assert.Equal(t, "there is no service account uploader in this namespace", s.Annotations[label.Problem])
}

func TestWhatNamesNoAccountSaysSo(t *testing.T) {
	m := newMinting(t, account("beta", "uploader"), wish("alpha", "s3", "", 1), wish("alpha", "other", "uploader", 1))
	assert.Empty(t, m.mint())
	assert.Contains(t, m.secret("alpha", "s3").Annotations[label.Problem], "kubernetes.io/service-account.name is missing")
	assert.Contains(t, m.secret("alpha", "other").Annotations[label.Problem], "there is no service account uploader")
}

// TestACopyOfAKeyIsAnotherKey: whoever copies a Secret into a namespace does not get, or take away, the key of another.
func TestACopyOfAKeyIsAnotherKey(t *testing.T) {
	m := newMinting(t, account("alpha", "uploader"), account("beta", "uploader"), wish("alpha", "s3", "uploader", 2))
	first := m.mint()
	require.Len(t, first, 1)
	stolen := wish("beta", "s3", "uploader", 3)
	stolen.Data = m.secret("alpha", "s3").Data
	require.NoError(t, m.API.Create(t.Context(), stolen))
	both := m.mint()
	require.Len(t, both, 2)
	for id, k := range first {
		assert.Equal(t, k, both[id])
	}

	weak := m.secret("alpha", "s3")
	weak.Data[artifact.KeySecret] = []byte("password")
	require.NoError(t, m.API.Update(t.Context(), weak))
	for _, k := range m.mint() {
		assert.Len(t, k.SecretKey, 43, "no one chooses a key")
	}
}
