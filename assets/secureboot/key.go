// Package secureboot is what UEFI Secure Boot and GRUB check by the owner's keys: signatures in EFI programs, signatures
// next to the files that GRUB reads, and the firmware's variables with the certificates that it trusts. The workstation
// signs by it; the appliance looks by it whether its firmware would start what it is given.
package secureboot

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Key is a key with its certificate, signed by itself.
type Key struct {
	Certificate *x509.Certificate
	Private     *rsa.PrivateKey
}

// keyBits is what all firmware takes (UEFI Specification 2.10, section 32.4.1: EFI_CERT_RSA2048_GUID, and X.509 of that size).
const keyBits = 2048

// validity of a certificate. Firmware does not look at it; tools do.
const validity = 30 * 365 * 24 * time.Hour

// NewKey makes a key whose certificate has this common name.
func NewKey(name string, now time.Time) (Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return Key{}, fmt.Errorf("make key %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Key{}, fmt.Errorf("make key %s: %w", name, err)
	}

	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-24 * time.Hour), // another computer's clock may be behind
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return Key{}, fmt.Errorf("make certificate %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	return Key{Certificate: certificate, Private: private}, err
}

// PEM gives the two files of a key: the private one, and the certificate.
func (k Key) PEM() (private, certificate []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.Private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: k.Certificate.Raw}), nil
}

// ParseKey reads what PEM gave, or what other tools made: an RSA key of 2048 bits and its certificate.
func ParseKey(private, certificate []byte) (Key, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return Key{}, errors.New("no private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || key.N.BitLen() != keyBits || key.E != publicExponent {
		return Key{}, fmt.Errorf("no RSA key of %d bits, as firmware and GRUB take it", keyBits)
	}

	if block, _ = pem.Decode(certificate); block == nil {
		return Key{}, errors.New("no certificate in PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return Key{}, err
	}
	if !key.PublicKey.Equal(c.PublicKey) {
		return Key{}, errors.New("the certificate is that of another key")
	}
	return Key{Certificate: c, Private: key}, nil
}
