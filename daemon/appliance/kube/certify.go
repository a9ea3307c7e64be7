package kube

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"regexp"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/status"
)

// workstationValidity is how long a certificate of Certify is good for.
const workstationValidity = 12 * time.Hour

// PersonPrefix begins the names of people and of their groups in the API, so that no one can choose a name that means
// something to Kubernetes.
const PersonPrefix = "firstlight:"

// personName is what people may call themselves: USER@HOST, of characters that a label may have but for the @. With the
// prefix it fits into a common name, which has 64 characters at most (RFC 5280, ub-common-name).
var personName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*@([A-Za-z0-9._-]*[A-Za-z0-9])$`)

const maxPersonName = 64 - len(PersonPrefix)

// CheckPersonName is nil if a name is USER@HOST, and can be that of a person in the API.
func CheckPersonName(name string) error {
	if len(name) > maxPersonName || !personName.MatchString(name) {
		return fmt.Errorf("%q is not USER@HOST; use letters, digits, dots and hyphens, %d characters at most", name,
			maxPersonName)
	}
	return nil
}

// ErrNoAPI is an appliance whose API does not answer yet, or not now.
var ErrNoAPI = errors.New(
	"the appliance's API does not answer; `firstlightd why` says what the stage control-plane waits for",
)

// workstation is one that gets a certificate.
type workstation struct {
	name   string   // USER@HOST, as it says itself
	serial *big.Int // of the certificate
}

// user is who the audit log says it was.
func (w workstation) user() string { return PersonPrefix + w.name }

// group is the one group of the certificate, and the name of the object that gives the group its rights. No other
// certificate has it: Kubernetes revokes none, but what a group may do can be taken back.
func (w workstation) group() string {
	return fmt.Sprintf("%sworkstation:%032x", PersonPrefix, w.serial)
}

// Certify signs a request for a client certificate (PKCS #10, RFC 2986, in PEM), whose common name is USER@HOST of a
// workstation, and gives its group all rights on the appliance's API: those of root on the appliance, who asks for it.
// What earlier certificates were given is removed when they have ended.
func (c *Cluster) Certify(ctx context.Context, api kubernetes.Interface, request []byte) (status.Access, error) {
	asked, err := readRequest(request)
	if err != nil {
		return status.Access{}, err
	}

	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return status.Access{}, fmt.Errorf("make serial number: %w", err)
	}

	w := workstation{asked.Subject.CommonName, serial}
	access, err := c.signFor(w, asked)
	if err != nil {
		return status.Access{}, err
	}

	bindings := api.RbacV1().ClusterRoleBindings()
	_, err = bindings.Create(ctx, w.newBinding(access.Expires), metav1.CreateOptions{})
	var answered apierrors.APIStatus
	switch {
	case err != nil && !errors.As(err, &answered):
		return status.Access{}, fmt.Errorf("%w: %w", ErrNoAPI, err)
	case err != nil:
		return status.Access{}, fmt.Errorf("give %s rights: %w", w.user(), err)
	}

	all, err := bindings.List(ctx, metav1.ListOptions{LabelSelector: label.Workstation})
	if err != nil {
		return status.Access{}, fmt.Errorf("list rights of workstations: %w", err)
	}
	for _, name := range endedBindings(all.Items, access.Issued) {
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return status.Access{}, fmt.Errorf("remove rights of a certificate that ended: %w", err)
		}
	}

	return access, nil
}

// readRequest refuses what is no request, and a name that is no workstation's.
func readRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("read certificate request: no PEM block in it; `firstlight login` sends one")
	}

	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read certificate request: %w", err)
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, fmt.Errorf("read certificate request: it is not signed by its own key: %w", err)
	}
	if err := CheckPersonName(asked.Subject.CommonName); err != nil {
		return nil, fmt.Errorf("read certificate request: common name %w", err)
	}

	return asked, nil
}

// signFor signs the key of a request; of the rest of it nothing gets into the certificate.
func (c *Cluster) signFor(w workstation, asked *x509.CertificateRequest) (status.Access, error) {
	authority, signer, err := c.readPair(caPath)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Access{}, ErrNoAPI
	}
	if err != nil {
		return status.Access{}, err
	}

	now := effectiveNow(c.Now())
	template := &x509.Certificate{
		SerialNumber: w.serial,
		Subject:      pkix.Name{CommonName: w.user(), Organization: []string{w.group()}},
		NotBefore:    notBefore, // a clock that is set back meanwhile locks nobody out
		NotAfter:     now.Add(workstationValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true, // of no authority
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, asked.PublicKey, signer)
	if err != nil {
		return status.Access{}, fmt.Errorf("sign certificate of %s: %w", w.user(), err)
	}

	return status.Access{
		Authority:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Issued:      now,
		Expires:     template.NotAfter,
	}, nil
}

// newBinding gives the group the rights of an administrator. Whoever deletes it takes them back.
func (w workstation) newBinding(expires time.Time) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        w.group(),
			Labels:      map[string]string{label.Workstation: strings.ReplaceAll(w.name, "@", ".")},
			Annotations: map[string]string{label.Expires: expires.UTC().Format(time.RFC3339)},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: w.group()}},
	}
}

// endedBindings are the names of those whose certificate has ended. One that does not say when stays: it is not ours.
func endedBindings(all []rbacv1.ClusterRoleBinding, now time.Time) (names []string) {
	for _, b := range all {
		expires, err := time.Parse(time.RFC3339, b.Annotations[label.Expires])
		if err == nil && !expires.After(now) && strings.HasPrefix(b.Name, PersonPrefix+"workstation:") {
			names = append(names, b.Name)
		}
	}
	return names
}
