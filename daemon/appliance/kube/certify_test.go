package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"firstlight.dev/firstlight/assets/label"
)

// newRequest is what a workstation sends, with this name.
func newRequest(t *testing.T, name string) (request []byte, key *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: name, Organization: []string{"system:masters"}},
		DNSNames: []string{"kubernetes"},
	}, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), key
}

func TestWhoMayBeNamedInARequest(t *testing.T) {
	for _, name := range []string{"alice@laptop", "a@b", "alice.b_c-d@host-1.example.com", strings.Repeat("a", 50) + "@ab"} {
		request, _ := newRequest(t, name)
		asked, err := readRequest(request)
		require.NoError(t, err, name)
		assert.Equal(t, name, asked.Subject.CommonName)
		assert.LessOrEqual(t, len(PersonPrefix+name), 64)
	}
	for _, name := range []string{
		"", "alice", "@laptop", "alice@", "alice@laptop.", "system:masters", "a b@c", "a@b@c", "alice@laptop\n", "ä@b",
		strings.Repeat("a", 51) + "@ab",
	} {
		request, _ := newRequest(t, name)
		_, err := readRequest(request)
		assert.ErrorContains(t, err, "is not USER@HOST; use", name)
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if asked, err := readRequest(text); err == nil {
			assert.Regexp(t, personName, asked.Subject.CommonName)
		}
	})
}

func TestARequestOfAnotherKeyIsRefused(t *testing.T) {
	request, _ := newRequest(t, "alice@laptop")
	block, _ := pem.Decode(request)
	block.Bytes[len(block.Bytes)-1] ^= 1
	_, err := readRequest(pem.EncodeToMemory(block))
	assert.ErrorContains(t, err, "not signed by its own key")
	_, err = readRequest([]byte("x"))
	assert.ErrorContains(t, err, "no PEM block in it")
}

// TestACertificateOfAWorkstation: it is the workstation's key, and nothing else of what was asked for.
func TestACertificateOfAWorkstation(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	c := &Cluster{Root: t.TempDir(), Now: func() time.Time { return now }}
	request, key := newRequest(t, "alice@laptop")
	_, err := c.Certify(t.Context(), fake.NewClientset(), request)
	require.ErrorIs(t, err, ErrNoAPI, "without an authority")

	require.NoError(t, c.mintAuthority(caPath))
	api := fake.NewClientset()
	access, err := c.Certify(t.Context(), api, request)
	require.NoError(t, err)
	assert.Equal(t, now, access.Issued)
	assert.Equal(t, now.Add(12*time.Hour), access.Expires)
	block, _ := pem.Decode(access.Certificate)
	got, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.True(t, key.PublicKey.Equal(got.PublicKey))
	assert.Equal(t, "firstlight:alice@laptop", got.Subject.CommonName)
	require.Len(t, got.Subject.Organization, 1)
	assert.Regexp(t, `^firstlight:workstation:[0-9a-f]{32}$`, got.Subject.Organization[0])
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, got.ExtKeyUsage)
	assert.Empty(t, got.DNSNames)
	assert.False(t, got.IsCA)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(access.Authority))
	verify := func(at time.Time) error {
		_, err := got.Verify(x509.VerifyOptions{
			Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		return err
	}
	assert.NoError(t, verify(now))
	assert.Error(t, verify(now.Add(12*time.Hour+time.Second)))

	bindings, err := api.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, bindings.Items, 1)
	b := bindings.Items[0]
	assert.Equal(t, "alice.laptop", b.Labels[label.Workstation])
	assert.Equal(t, "cluster-admin", b.RoleRef.Name)
	assert.Equal(t, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: got.Subject.Organization[0]}}, b.Subjects)

	now = now.Add(13 * time.Hour)
	_, err = c.Certify(t.Context(), api, request)
	require.NoError(t, err)
	bindings, err = api.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, bindings.Items, 1, "rights of a certificate that ended are left")
	assert.NotEqual(t, b.Name, bindings.Items[0].Name)
}

func TestACertificateWithoutAnAPI(t *testing.T) {
	c := &Cluster{Root: t.TempDir(), Now: time.Now}
	require.NoError(t, c.mintAuthority(caPath))
	api := fake.NewClientset()
	api.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("dial tcp 172.22.0.1:6443: connect: connection refused")
	})
	request, _ := newRequest(t, "alice@laptop")
	_, err := c.Certify(context.Background(), api, request)
	require.ErrorIs(t, err, ErrNoAPI)
	assert.ErrorContains(t, err, "connection refused")
}

func TestEndedBindings(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	binding := func(name, expires string) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{label.Expires: expires}},
		}
	}
	assert.Equal(t, []string{"firstlight:workstation:1"}, endedBindings([]rbacv1.ClusterRoleBinding{
		binding("firstlight:workstation:1", "2026-11-28T12:00:00Z"),
		binding("firstlight:workstation:2", "2026-11-28T12:00:01Z"),
		binding("firstlight:workstation:3", "soon"),
		binding("cluster-admin", "2026-11-28T11:00:00Z"),
	}, now))
}
