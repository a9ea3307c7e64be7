package workstation

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Access is access to an appliance's API for some hours, as it is stored.
type Access struct {
	status.Access
	Key   []byte    `json:"key"`   // PEM; made here, and never sent
	Until time.Time `json:"until"` // when the certificate ends, by the workstation's clock
}

// Certify makes a key, has the appliance sign a certificate for it, and stores both.
func (s Store) Certify(ctx context.Context, c *Connection) (Access, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Access{}, fmt.Errorf("make key: %w", err)
	}

	request, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: findUser()}}, key,
	)
	if err != nil {
		return Access{}, fmt.Errorf("make certificate request: %w", err)
	}

	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Access{}, fmt.Errorf("encode key: %w", err)
	}

	var out, said bytes.Buffer
	streams := remote.Streams{In: bytes.NewReader(encodePEM("CERTIFICATE REQUEST", request)), Out: &out, Err: &said}
	err = c.Run(ctx, streams, "certify")
	var exit *commandline.ExitError
	if errors.As(err, &exit) {
		return Access{}, fmt.Errorf("ask %s for access to its API: %s", c.Host, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return Access{}, err
	}

	access := Access{Key: encodePEM("EC PRIVATE KEY", der)}
	if err := json.Unmarshal(out.Bytes(), &access.Access); err != nil {
		return Access{}, fmt.Errorf("ask %s for access to its API: %w; are it and this command of one version?", c.Host, err)
	}
	if err := access.check(); err != nil {
		return Access{}, fmt.Errorf("ask %s for access to its API: %w", c.Host, err)
	}

	if err := s.saveHostKeys(c.Appliance, access.HostKeys); err != nil {
		return Access{}, err
	}
	access.Until = time.Now().Add(access.Expires.Sub(access.Issued)) // the two clocks may differ by years
	return access, s.write(c.Host, accessFile, access)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// check refuses an answer that would be of no use.
func (a Access) check() error {
	if _, err := tls.X509KeyPair(a.Certificate, a.Key); err != nil {
		return fmt.Errorf("it signed another certificate: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(a.Authority) {
		return errors.New("it named no authority of its API")
	}
	if _, _, err := net.SplitHostPort(a.Server); err != nil {
		return fmt.Errorf("it named no address of its API: %w", err)
	}
	return nil
}

// findUser is USER@HOST, for the appliance's audit log.
func findUser() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return nameUser(name, host)
}

// maxNamePart is what the appliance takes of a user's or a host's name, in bytes.
const maxNamePart = 26

// nameUser is USER@HOST as the appliance takes it: of letters, digits and few other characters.
func nameUser(user, host string) string {
	_, afterDomain, found := strings.Cut(user, `\`) // as Windows has it
	if found {
		user = afterDomain
	}
	host, _, _ = strings.Cut(host, ".")
	return simplify(user, "user") + "@" + simplify(host, "workstation")
}

// simplify replaces what may not be in a name; a name of which nothing is left is another's.
func simplify(name, otherwise string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, name)
	name = strings.Trim(name[:min(len(name), maxNamePart)], "._-")
	if name == "" {
		return otherwise
	}
	return name
}

// Access is what is stored of an appliance's API. One that never was certified has none.
func (s Store) Access(a Appliance) (Access, error) {
	var access Access
	err := s.read(a.Host, accessFile, &access)
	if errors.Is(err, fs.ErrNotExist) {
		return access, fmt.Errorf("%s had no API when you logged in; run firstlight login %s again", a.Host, a.Host)
	}
	return access, err
}

// CheckProxy says what to do if nothing forwards the appliance's API.
func CheckProxy(ctx context.Context, a Appliance) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", a.Address())
	if err != nil {
		return fmt.Errorf(
			"the API of %s is reached while firstlight proxy runs, and it does not; start it in another terminal: "+
				"firstlight proxy --host %s", a.Host, a.Host,
		)
	}
	return conn.Close()
}

// renewBefore is how long before its end a certificate is replaced, as a command may take a while.
const renewBefore = 10 * time.Minute

// Credential is what client-go's plugins print (client.authentication.k8s.io/v1): the stored certificate, or if it has
// ended another one.
func (s Store) Credential(ctx context.Context, a Appliance) (v1.ExecCredential, error) {
	access, err := s.Access(a)
	if err != nil {
		return v1.ExecCredential{}, err
	}

	if time.Until(access.Until) < renewBefore {
		if access, err = s.renew(ctx, a); err != nil {
			return v1.ExecCredential{}, fmt.Errorf("the certificate for the API of %s has ended: %w", a.Host, err)
		}
	}

	until := metav1.NewTime(access.Until)
	return v1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &v1.ExecCredentialStatus{
			ExpirationTimestamp:   &until,
			ClientCertificateData: string(access.Certificate),
			ClientKeyData:         string(access.Key),
		},
	}, nil
}

func (s Store) renew(ctx context.Context, a Appliance) (Access, error) {
	c, err := s.Connect(ctx, a, nil)
	if err != nil {
		return Access{}, err
	}
	defer c.Close()

	return s.Certify(ctx, c)
}
