package redfish

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
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// certificateFile holds key and certificate, which stay the same through restarts: the appliance pins the latter.
const certificateFile = "certificate.pem"

// ensureCertificate is the certificate that the BMC made for itself at its first start.
func ensureCertificate(dir string) (tls.Certificate, error) {
	path := filepath.Join(dir, certificateFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		text, err := mintCertificate()
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return tls.Certificate{}, err
		}
	}

	return tls.LoadX509KeyPair(path, path)
}

// mintCertificate signs for no name at all, as BMCs do that nobody has configured.
func mintCertificate() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "BMC"},
		NotBefore:    time.Now().Add(-24 * time.Hour),
		NotAfter:     time.Now().AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}

	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})...), nil
}
