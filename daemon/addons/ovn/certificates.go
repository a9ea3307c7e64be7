package ovn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Names of the files of one side, and keys of its Secret, as Kubernetes has them.
const (
	keyFile         = "tls.key"
	certificateFile = "tls.crt"
	authorityFile   = "ca.crt"
)

// validity of certificates: nothing renews them but a new installation.
const validity = 20 * 365 * 24 * time.Hour

// Pair has what a database's server and its clients need to know each other, by the names of files. Nothing else is
// signed by its authority, whose key is not kept.
type Pair struct{ Server, Client map[string][]byte }

// NewPair makes one for a database.
func NewPair(database string, now time.Time) (p Pair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, fmt.Errorf("make a key: %w", err)
	}
	authority := template(database+" authority", now)
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	text, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return p, fmt.Errorf("make an authority: %w", err)
	}

	p.Server, err = newSide(database, x509.ExtKeyUsageServerAuth, now, authority, text, key)
	if err == nil {
		p.Client, err = newSide(database+" client", x509.ExtKeyUsageClientAuth, now, authority, text, key)
	}
	return p, err
}

func template(name string, now time.Time) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(validity), // clocks of nodes differ
		BasicConstraintsValid: true,
	}
}

func newSide(
	name string, usage x509.ExtKeyUsage, now time.Time, authority *x509.Certificate, text []byte, signer *ecdsa.PrivateKey,
) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	one := template(name, now)
	one.KeyUsage, one.ExtKeyUsage, one.DNSNames = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}, []string{ServerName}
	certificate, err := x509.CreateCertificate(rand.Reader, one, authority, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	return map[string][]byte{
		keyFile:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		certificateFile: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		authorityFile:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}),
	}, nil
}

// ServerName is in every certificate. OVN's own programs compare no names.
const ServerName = "ovn-central"

// IsPair reports whether two sides are of one authority and whole.
func IsPair(p Pair) bool {
	_, server := tls.X509KeyPair(p.Server[certificateFile], p.Server[keyFile])
	_, client := tls.X509KeyPair(p.Client[certificateFile], p.Client[keyFile])
	return server == nil && client == nil && len(p.Server[authorityFile]) > 0 &&
		string(p.Server[authorityFile]) == string(p.Client[authorityFile])
}

// Save writes the files of one side.
func Save(dir string, side map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write certificates: %w", err)
	}
	for _, name := range []string{keyFile, certificateFile, authorityFile} {
		if err := atomicfile.WriteChanged(filepath.Join(dir, name), side[name], 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return nil
}

// ClientConfig reads the files of a client.
func (c Certificates) ClientConfig() (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(string(c), certificateFile), filepath.Join(string(c), keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the certificate for OVN's database: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(string(c), authorityFile))
	if err != nil {
		return nil, fmt.Errorf("read the authority of OVN's database: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("read the authority of OVN's database: it is no certificate")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{certificate}, RootCAs: roots, ServerName: ServerName, MinVersion: tls.VersionTLS12,
	}, nil
}
