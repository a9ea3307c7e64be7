package secureboot

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/smallstep/pkcs7"
)

// oidIndirectData is the content of an Authenticode signature, SpcIndirectDataContent.
var oidIndirectData = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 4}

// indirectData is that content without its tag and length, before a SHA-256: SpcPeImageData of an image without a link,
// then the algorithm. Its length never changes.
var indirectData, _ = hex.DecodeString(
	"3017" + "060a2b06010401823702010f" + "3009030100a004a2028000" +
		"3031" + "300d06096086480165030402010500" + "0420")

// Sign adds the key's signature to an EFI program, behind those that it has; name is for errors.
func (k Key) Sign(name string, b []byte) ([]byte, error) {
	p, err := parseProgram(b)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	if p.table[1] == 0 {
		b = padToAlign(b)
	}
	p, digest, err := parse(name, b)
	if err != nil {
		return nil, fmt.Errorf("sign %w", err)
	}

	content := append(bytes.Clone(indirectData), digest...)
	signed, err := pkcs7.NewSignedData(content)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	// What is digested is the content alone, but it is stored as the sequence that it is, not as a string of bytes.
	info := &signed.GetSignedData().ContentInfo
	info.ContentType = oidIndirectData
	info.Content.Bytes = append([]byte{0x30, byte(len(content))}, content...)
	if err := signed.AddSigner(k.Certificate, k.Private, pkcs7.SignerInfoConfig{}); err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	der, err := signed.Finish()
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", name, err)
	}
	return p.withSignature(der), nil
}

// errUntrusted is of programs that no trusted certificate vouches for.
var errUntrusted = errors.New("none of these keys has signed it")

// Verify says whether firmware that trusts these certificates starts an EFI program: one of its signatures is of the
// program as it is and by a certificate that is trusted, or that a trusted one issued. Validity in time counts for
// nothing, as in firmware. name is for errors.
func Verify(name string, b []byte, trusted []*x509.Certificate) error {
	p, digest, err := parse(name, b)
	if err != nil {
		return err
	}
	signatures, err := p.signatures()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	for _, der := range signatures {
		if checkSignature(der, digest, trusted) == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w, or it was changed", name, errUntrusted)
}

func checkSignature(der, digest []byte, trusted []*x509.Certificate) error {
	signed, err := pkcs7.Parse(der)
	if err != nil {
		return err
	}
	if err := signed.Verify(); err != nil {
		return err
	}

	var says struct {
		Algorithm pkix.AlgorithmIdentifier
		Digest    []byte
	}
	var image asn1.RawValue
	rest, err := asn1.Unmarshal(signed.Content, &image)
	if err != nil {
		return err
	}
	if _, err := asn1.Unmarshal(rest, &says); err != nil {
		return err
	}
	if !bytes.Equal(says.Digest, digest) {
		return errUntrusted
	}

	signer := signed.GetOnlySigner()
	if signer == nil {
		return errUntrusted
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	for _, c := range signed.Certificates {
		between.AddCert(c)
	}
	_, err = signer.Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: between,
		CurrentTime:   signer.NotBefore,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
