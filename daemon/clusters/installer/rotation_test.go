package installer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

var rotationTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// someAuthorities are those of a cluster, as kubeadm makes them.
func someAuthorities(t *testing.T) authorities {
	all := authorities{}
	for i, name := range authorityNames {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{
			SerialNumber:          big.NewInt(int64(i + 1)),
			Subject:               pkix.Name{CommonName: []string{"kubernetes", "front-proxy-ca", "etcd-ca"}[i]},
			NotBefore:             rotationTime.AddDate(-1, 0, 0),
			NotAfter:              rotationTime.AddDate(9, 0, 0),
			KeyUsage:              x509.KeyUsageCertSign,
			BasicConstraintsValid: true,
			IsCA:                  true,
		}
		made, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		require.NoError(t, err)
		text, err := keyutil.MarshalPrivateKeyToPEM(key)
		require.NoError(t, err)
		all[name+".crt"], all[name+".key"] = encodeBlock("CERTIFICATE", made), string(text)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	all["sa.pub"], all["sa.key"] = encodeBlock("PUBLIC KEY", public), string(text)
	return all
}

func someRotation(t *testing.T) *rotation {
	r, err := newRotation("november", someAuthorities(t), rotationTime)
	require.NoError(t, err)
	return r
}

// TestStagesOfARotation: in each stage every file is of who signs, followed by who is trusted besides; private keys are
// no longer kept when the next ones are where they are used.
func TestStagesOfARotation(t *testing.T) {
	r := someRotation(t)
	former, next := r.Former, r.Next
	for _, stage := range []struct {
		name          string
		signs, trusts authorities
		keys          bool
	}{
		{contract.RotationTrust, former, next, true},
		{contract.RotationSign, next, former, true},
		{contract.RotationSigned, nil, nil, false},
		{contract.RotationDrop, next, nil, false},
	} {
		if stage.name == contract.RotationDrop {
			r.Stage = stage.name
		}
		require.Equal(t, stage.name, r.Stage)
		assert.True(t, r.IsUnderway())
		if stage.signs == nil {
			text, err := r.encode()
			require.NoError(t, err)
			assert.NotContains(t, string(text), "PRIVATE KEY")
			assert.Equal(t, rotationTime, r.Signed)
			continue
		}

		files := map[string]string{}
		for _, f := range r.files(true) {
			files[strings.TrimPrefix(f.path, pkiDir)] = string(f.data)
			assert.Equal(t, strings.HasSuffix(f.path, ".key"), f.mode == 0o600, f.path)
		}
		for _, path := range authorityFiles() {
			switch is, there := files[path]; {
			case !strings.HasSuffix(path, ".key"):
				assert.Equal(t, stage.signs[path]+stage.trusts[path], is, "%s: %s", stage.name, path)
			case stage.keys:
				assert.Equal(t, stage.signs[path], is, "%s: %s", stage.name, path)
			default:
				assert.False(t, there, "%s: %s", stage.name, path)
			}
		}
		assert.Equal(t, stage.signs["ca.crt"], files["ca-signing.crt"])
		assert.Equal(t, []file{{caPath, 0o644, []byte(stage.signs["ca.crt"] + stage.trusts["ca.crt"])}}, r.files(false))
		r.conclude(rotationTime)
	}
	assert.Equal(t, &rotation{Rotation: contract.Rotation{Token: "november", Stage: contract.RotationDone, Signed: rotationTime}}, r)
}

// TestWhoKnowsTheFormerAuthorityAloneTrustsTheNext, and who knows the next alone needs nothing else.
func TestWhoKnowsTheFormerAuthorityAloneTrustsTheNext(t *testing.T) {
	r := someRotation(t)
	next, err := parseCertificate(r.Next["ca.crt"])
	require.NoError(t, err)
	key, err := parseKey(r.Next["ca.key"])
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(7), DNSNames: []string{"node-1"},
		NotBefore: rotationTime, NotAfter: rotationTime.AddDate(1, 0, 0),
	}
	made, err := x509.CreateCertificate(rand.Reader, leaf, next, key.Public(), key)
	require.NoError(t, err)
	leaf, err = x509.ParseCertificate(made)
	require.NoError(t, err)

	verify := func(root string, chain ...string) error {
		o := x509.VerifyOptions{DNSName: "node-1", Roots: x509.NewCertPool(), CurrentTime: rotationTime.Add(time.Hour)}
		require.True(t, o.Roots.AppendCertsFromPEM([]byte(root)))
		o.Intermediates = x509.NewCertPool()
		o.Intermediates.AppendCertsFromPEM([]byte(strings.Join(chain, "")))
		_, err := leaf.Verify(o)
		return err
	}
	assert.NoError(t, verify(r.Next["ca.crt"]))
	assert.NoError(t, verify(r.Next["ca.crt"], r.Cross))
	assert.NoError(t, verify(r.Former["ca.crt"], r.Cross))
	assert.Error(t, verify(r.Former["ca.crt"]))
	assert.Error(t, verify(r.Former["etcd/ca.crt"], r.Cross))
	assert.Equal(t, "kubernetes november", next.Subject.CommonName)
}

func TestASecondRotationFollowsTheFirst(t *testing.T) {
	r := someRotation(t)
	bundles := authorities{}
	for path := range r.Next {
		bundles[path] = r.Next[path]
	}
	bundles["ca.crt"] += r.Former["ca.crt"]
	again, err := newRotation("december", bundles, rotationTime)
	require.NoError(t, err)
	assert.Equal(t, r.Next["ca.crt"], again.Former["ca.crt"], "it is not who signs")
	next, err := parseCertificate(again.Next["ca.crt"])
	require.NoError(t, err)
	assert.Equal(t, "kubernetes december", next.Subject.CommonName)
}

const someManifest = `apiVersion: v1
kind: Pod
metadata:
  annotations: {kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: "172.22.0.11:6443"}
  name: kube-controller-manager
spec:
  containers:
  - name: kube-controller-manager
    image: firstlight.internal/kube-controller-manager:v1
    command: [kube-controller-manager, --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt, --root-ca-file=/etc/kubernetes/pki/ca.crt]
`

// TestManifestsOfAStage: the kubelet starts each pod again once in a stage, and the controller manager signs by a file of
// one certificate.
func TestManifestsOfAStage(t *testing.T) {
	r := someRotation(t)
	texts := map[string]bool{someManifest: true}
	text := []byte(someManifest)
	for _, stage := range []string{contract.RotationTrust, contract.RotationSign, contract.RotationDrop} {
		r.Stage = stage
		made, err := r.manifest(string(text))
		require.NoError(t, err)
		assert.False(t, texts[string(made)], "it does not start again")
		texts[string(made)] = true
		again, err := r.manifest(string(made))
		require.NoError(t, err)
		assert.Equal(t, string(made), string(again), "it starts twice")
		signing := signingPath
		if stage == contract.RotationDrop {
			signing = caPath
		}
		assert.Contains(t, string(made), "- --cluster-signing-cert-file="+signing+"\n    - --root-ca-file=/etc/kubernetes/pki/ca.crt\n")
		assert.Contains(t, string(made), "advertise-address.endpoint")
		text = made
	}
	for _, wrong := range []string{"", "{", "kind: Pod\n"} {
		_, err := r.manifest(wrong)
		assert.Error(t, err, "%q", wrong)
	}
}

func TestPodsOfAStage(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd-m", Annotations: map[string]string{label.Certificates: "november trust"}}}
	assert.ErrorContains(t, checkRotatedPod(pod, "november sign"), "not started again")
	assert.ErrorContains(t, checkRotatedPod(pod, "november trust"), "not ready")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	assert.NoError(t, checkRotatedPod(pod, "november trust"))
}

func TestTokensOfAKey(t *testing.T) {
	r := someRotation(t)
	block, _ := pem.Decode([]byte(r.Former["sa.pub"]))
	sum := sha256.Sum256(block.Bytes)
	header, err := json.Marshal(map[string]string{"alg": "ES256", "kid": base64.RawURLEncoding.EncodeToString(sum[:])})
	require.NoError(t, err)
	token := fmt.Appendf(nil, "%s.e30.c2ln", base64.RawURLEncoding.EncodeToString(header))
	assert.True(t, rights.IsSignedBy(token, r.Former["sa.pub"]))
	assert.False(t, rights.IsSignedBy(token, r.Next["sa.pub"]))
	for _, text := range []string{"", "a", "e30.e30.", "...."} {
		assert.False(t, rights.IsSignedBy([]byte(text), r.Former["sa.pub"]), text)
	}
}

// TestMembersOfAClusterInRotation: a node that is a stage ahead or behind is of the same cluster.
func TestMembersOfAClusterInRotation(t *testing.T) {
	r, other := someRotation(t), someRotation(t)
	former, next := authorityDigests([]byte(r.Former["ca.crt"])), authorityDigests([]byte(r.Next["ca.crt"]))
	both := authorityDigests([]byte(r.trusts()))
	assert.True(t, shareAuthority(former, both) && shareAuthority(both, next) && shareAuthority(next, next))
	assert.False(t, shareAuthority(former, next))
	assert.False(t, shareAuthority(both, authorityDigests([]byte(other.trusts()))))
	assert.False(t, shareAuthority("", ""))
}
