package kube

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// settle does what the stage control-plane does for certificates, twice: the second time nothing may be left to do.
func (c *Cluster) settle(t *testing.T) (fresh []string) {
	t.Helper()
	fresh, err := c.mintMissing()
	require.NoError(t, err)
	require.NoError(t, c.certificatesDone())
	again, err := c.mintMissing()
	require.NoError(t, err)
	require.Empty(t, again)
	return fresh
}

func (c *Cluster) read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(c.path(path))
	require.NoError(t, err)
	return string(text)
}

func (c *Cluster) rotation(t *testing.T) *Rotation {
	t.Helper()
	r, err := c.Rotation()
	require.NoError(t, err)
	return r
}

// accepts reports whether whoever trusts a bundle takes the first certificate of shown, which comes with the others.
func accepts(t *testing.T, bundle, shown string, usage x509.ExtKeyUsage) bool {
	t.Helper()
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(bundle)))
	block, rest := pem.Decode([]byte(shown))
	require.NotNil(t, block)
	between.AppendCertsFromPEM(rest)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage},
		CurrentTime: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)})
	return err == nil
}

func countKeys(t *testing.T, text string) int {
	t.Helper()
	keys, err := keyutil.ParsePublicKeysPEM([]byte(text))
	require.NoError(t, err)
	return len(keys)
}

// TestKubernetesAuthoritiesAreReplaced: in each stage, who trusts and who is trusted; at the end nothing that the former
// ones signed is taken, and a pod that has read the former authority still knows the API server.
func TestKubernetesAuthoritiesAreReplaced(t *testing.T) {
	const server, user = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	admin := pkiDir + "/admin.crt"
	c, _ := cluster(t)
	c.settle(t)
	oldCA, oldAdmin, oldServer := c.read(t, caPath+".crt"), c.read(t, admin), c.read(t, apiServer+".crt")
	digest := c.trustDigest()
	require.Error(t, c.rotation(t).Switch())
	stage, _ := c.rotation(t).Stage()
	require.Empty(t, stage)

	require.NoError(t, c.BeginRotation())
	require.ErrorIs(t, c.BeginRotation(), ErrRotating)
	require.ErrorContains(t, c.certificatesDone(), "does not hold who is trusted")
	assert.Empty(t, c.settle(t), "the next authorities sign already")
	assert.NotEqual(t, digest, c.trustDigest(), "nothing starts again")
	stage, _ = c.rotation(t).Stage()
	assert.Equal(t, ca.Introduced, stage)
	require.ErrorIs(t, c.rotation(t).ForgetFormer(), ErrRotating)
	both := c.read(t, caPath+".crt")
	assert.Equal(t, oldCA+string(c.rotation(t).Next()), both)
	assert.True(t, accepts(t, both, oldAdmin, user))
	assert.Equal(t, 2, countKeys(t, c.read(t, accountKey+".pub")))

	require.NoError(t, c.rotation(t).Switch())
	require.Error(t, c.certificatesDone())
	assert.Len(t, c.settle(t), len(leaves(c.config())), "not all certificates are the next ones'")
	stage, _ = c.rotation(t).Stage()
	assert.Equal(t, ca.Switched, stage)
	require.ErrorIs(t, c.BeginRotation(), ErrRotating)
	newCA := string(c.rotation(t).Current())
	assert.Equal(t, newCA+oldCA, c.read(t, caPath+".crt"))
	assert.Nil(t, c.rotation(t).Next())
	assert.NoFileExists(t, c.path(nextFile))
	assert.True(t, accepts(t, newCA+oldCA, oldAdmin, user), "a certificate of before is refused too soon")
	for _, trusted := range []string{oldCA, newCA, both} {
		assert.True(t, accepts(t, trusted, c.read(t, apiServer+".crt"), server))
	}
	assert.False(t, accepts(t, oldCA, c.read(t, admin), user), "the former authority signs still")
	assert.Equal(t, 2, countKeys(t, c.read(t, accountKey+".pub")))
	assert.NotContains(t, c.read(t, formerFile), "PRIVATE KEY")

	require.NoError(t, c.rotation(t).ForgetFormer())
	require.Error(t, c.certificatesDone())
	assert.Empty(t, c.settle(t))
	stage, _ = c.rotation(t).Stage()
	assert.Empty(t, stage)
	assert.Equal(t, newCA, c.read(t, caPath+".crt"))
	assert.False(t, accepts(t, newCA, oldAdmin, user))
	assert.False(t, accepts(t, newCA, oldServer, server))
	assert.True(t, accepts(t, oldCA, c.read(t, apiServer+".crt"), server), "pods of before know the API server no more")
	assert.Equal(t, 1, countKeys(t, c.read(t, accountKey+".pub")))

	// Once more, and a pod of the very first authority still knows the API server.
	require.NoError(t, c.BeginRotation())
	c.settle(t)
	require.NoError(t, c.rotation(t).Switch())
	c.settle(t)
	require.NoError(t, c.rotation(t).ForgetFormer())
	c.settle(t)
	for _, trusted := range []string{oldCA, newCA, c.read(t, caPath+".crt")} {
		assert.True(t, accepts(t, trusted, c.read(t, apiServer+".crt"), server))
	}
}

// TestThePowerFailsWhileKubernetesAuthoritiesAreReplaced: after each file that is written in a switch.
func TestThePowerFailsWhileKubernetesAuthoritiesAreReplaced(t *testing.T) {
	order := []string{crossFile}
	for _, path := range append(authorities(), accountKey) {
		order = append(order, path+".key")
	}
	order = append(order, trustFiles()...)

	for cut := range len(order) + 1 {
		c, _ := cluster(t)
		c.settle(t)
		require.NoError(t, c.BeginRotation())
		c.settle(t)
		require.NoError(t, c.rotation(t).Switch())

		// What is written is the same whenever it is: it comes from the two files.
		other, _ := cluster(t)
		require.NoError(t, os.CopyFS(other.path(pkiDir), os.DirFS(c.path(pkiDir))))
		other.settle(t)
		for _, path := range order[:cut] {
			text := other.read(t, path)
			require.NoError(t, os.WriteFile(c.path(path), []byte(text), 0o600))
		}

		require.Error(t, c.certificatesDone())
		assert.Len(t, c.settle(t), len(leaves(c.config())))
		for _, path := range order {
			assert.Equal(t, other.read(t, path), c.read(t, path), "cut after %d of %s", cut, strings.Join(order, " "))
		}
		assert.Equal(t, 1, strings.Count(c.read(t, crossFile), "BEGIN"))
		left, err := filepath.Glob(c.path(nextFile))
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

// TestWhoHasNotStartedAgain: a part of the control plane that was started with whom it trusted before is waited for.
func TestWhoHasNotStartedAgain(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range manifest.StaticPods() {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + NodeName, Annotations: map[string]string{label.Certificates: "now"}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		})
	}
	require.NoError(t, trustVerdict(pods, "now"))
	assert.EqualError(t, trustVerdict(pods, "next"), "pod of etcd is not started again yet")
	assert.EqualError(t, trustVerdict(pods[:3], "now"), "pod of kube-scheduler is not there")
	pods[1].Status.Conditions = nil
	pods[1].Status.Phase = corev1.PodRunning
	assert.EqualError(t, trustVerdict(pods, "now"), "pod of kube-apiserver is Running but not ready")
}
