package installer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// rotation is what a cluster's first control plane has of the replacement of its authorities, as JSON in rotationPath:
// the one record of how far it is. Private keys are in it until the next authorities sign everywhere.
type rotation struct {
	contract.Rotation
	Former authorities `json:"former,omitempty"`
	Next   authorities `json:"next,omitempty"`
	Cross  string      `json:"cross,omitempty"` // the next ca.crt as the former ca.key signs it
}

// authorities are what signs in a cluster, in PEM, by their paths below pkiDir.
type authorities map[string]string

const (
	pkiDir       = "/etc/kubernetes/pki/"
	rotationPath = pkiDir + "firstlight-rotation.json"
	rotatedPath  = pkiDir + "firstlight-rotated" // which stage of which rotation is in effect on the node
	signingPath  = pkiDir + "ca-signing.crt"     // the controller manager signs by a file of one certificate
	caPath       = pkiDir + "ca.crt"

	manifestDir = "/etc/kubernetes/manifests/"
	stagedDir   = "/etc/kubernetes/rotated-manifests/" // not where the kubelet reads: it would start what is written
)

// What is rotated, without .crt and .key.
var authorityNames = []string{"ca", "front-proxy-ca", "etcd/ca"}

// controlPlanePods are static pods that read authorities when they start.
var controlPlanePods = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// authorityFiles are the paths of all that is rotated.
func authorityFiles() (paths []string) {
	for _, name := range authorityNames {
		paths = append(paths, name+".crt", name+".key")
	}
	return append(paths, "sa.pub", "sa.key")
}

// newRotation makes the next authorities of a cluster.
func newRotation(token string, former authorities, now time.Time) (*rotation, error) {
	r := &rotation{
		Rotation: contract.Rotation{Token: token, Stage: contract.RotationTrust},
		Former:   authorities{},
		Next:     authorities{},
	}
	for path, text := range former {
		r.Former[path] = firstBlock(text)
	}

	for _, name := range authorityNames {
		if err := r.mintAuthority(name, now); err != nil {
			return nil, fmt.Errorf("make the next %s: %w", name, err)
		}
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	r.Next["sa.pub"] = encodeBlock("PUBLIC KEY", public)
	return r, r.addKey("sa.key", key)
}

// authorityValidity is that of kubeadm.yaml.
const authorityValidity = 262800 * time.Hour

// mintAuthority makes one that is called as the former, with the rotation's token: two of one name that are trusted at
// a time cannot be told apart in a message.
func (r *rotation) mintAuthority(name string, now time.Time) error {
	former, err := parseCertificate(r.Former[name+".crt"])
	if err != nil {
		return err
	}
	formerKey, err := parseKey(r.Former[name+".key"])
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}

	base, _, _ := strings.Cut(former.Subject.CommonName, " ")
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: base + " " + r.Token},
		NotBefore:             now.Add(-5 * time.Minute).UTC(),
		NotAfter:              now.Add(authorityValidity).UTC(),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	made, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	r.Next[name+".crt"] = encodeBlock("CERTIFICATE", made)
	if err := r.addKey(name+".key", key); err != nil || name != "ca" {
		return err
	}

	next, err := x509.ParseCertificate(made)
	if err != nil {
		return err
	}
	t.SubjectKeyId = next.SubjectKeyId
	if former.NotAfter.Before(t.NotAfter) {
		t.NotAfter = former.NotAfter
	}
	cross, err := x509.CreateCertificate(rand.Reader, t, former, key.Public(), formerKey)
	if err != nil {
		return err
	}
	r.Cross = encodeBlock("CERTIFICATE", cross)
	return nil
}

func (r *rotation) addKey(path string, key crypto.PrivateKey) error {
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	r.Next[path] = string(text)
	return err
}

// forgetKeys forgets the private keys, which are where they are used.
func (r *rotation) forgetKeys() {
	for _, all := range []authorities{r.Former, r.Next} {
		for path := range all {
			if strings.HasSuffix(path, ".key") {
				delete(all, path)
			}
		}
	}
}

// order is who signs in a stage, and who is trusted besides; nil is no one.
func (r *rotation) order() (signs, trusted authorities) {
	switch r.Stage {
	case contract.RotationTrust:
		return r.Former, r.Next
	case contract.RotationSign:
		return r.Next, r.Former
	}
	return r.Next, nil
}

// trusts is ca.crt of every node: who signs comes first, as kubeadm signs by the first.
func (r *rotation) trusts() string {
	signs, trusted := r.order()
	return signs["ca.crt"] + trusted["ca.crt"]
}

// mark is what a node has in rotatedPath when the stage is in effect there.
func (r *rotation) mark() string { return r.Token + " " + r.Stage + "\n" }

// files are those of a node in this stage, without its manifests.
func (r *rotation) files(controlPlane bool) []file {
	if !controlPlane {
		return []file{{caPath, 0o644, []byte(r.trusts())}}
	}

	signs, trusted := r.order()
	all := []file{{signingPath, 0o644, []byte(signs["ca.crt"])}}
	for _, path := range authorityFiles() {
		switch {
		case !strings.HasSuffix(path, ".key"):
			all = append(all, file{pkiDir + path, 0o644, []byte(signs[path] + trusted[path])})
		case signs[path] != "":
			all = append(all, file{pkiDir + path, 0o600, []byte(signs[path])})
		}
	}
	return all
}

// manifest is a static pod's as it is in this stage. With another annotation the kubelet starts the pod again, and the
// cluster shows with which one it runs.
func (r *rotation) manifest(text string) ([]byte, error) {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(text), pod); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, errors.New("read manifest: it has no container")
	}

	signing := signingPath
	if r.Stage == contract.RotationDrop {
		signing = caPath
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, label.Certificates, r.podMark())
	for i, arg := range pod.Spec.Containers[0].Command {
		if name, _, _ := strings.Cut(arg, "="); name == "--cluster-signing-cert-file" {
			pod.Spec.Containers[0].Command[i] = name + "=" + signing
		}
	}
	return yaml.Marshal(pod)
}

func (r *rotation) podMark() string { return strings.TrimSpace(r.mark()) }

func (r *rotation) encode() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of the rotation: %w", err)
	}
	return append(text, '\n'), nil
}

// authorityDigests are of each certificate in a bundle, joined by spaces.
func authorityDigests(bundle []byte) string {
	var all []string
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, fmt.Sprintf("%x", sha256.Sum256(block.Bytes)))
	}
	return strings.Join(all, " ")
}

// shareAuthority reports whether two bundles, by authorityDigests, have a certificate in common: while authorities are
// rotated, one is a stage ahead of the other.
func shareAuthority(a, b string) bool {
	return slices.ContainsFunc(strings.Fields(a), func(d string) bool { return slices.Contains(strings.Fields(b), d) })
}

// firstBlock is the first certificate or key of a text.
func firstBlock(text string) string {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "EC PARAMETERS" {
			return string(pem.EncodeToMemory(block))
		}
	}
	return text
}

func encodeBlock(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func parseCertificate(text string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("it has no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func parseKey(text string) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM([]byte(text))
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T does not sign", key)
	}
	return signer, nil
}
