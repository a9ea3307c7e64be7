package secureboot

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"time"
	"unicode/utf16"

	"github.com/smallstep/pkcs7"

	"firstlight.dev/firstlight/assets/gpt"
)

// Variable is one of those by which firmware decides what it starts (UEFI Specification 2.10, section 32.3).
type Variable struct{ Name, Vendor string }

const (
	vendorGlobal   = "8be4df61-93ca-11d2-aa0d-00e098032b8c" // EFI_GLOBAL_VARIABLE
	vendorSecurity = "d719b2cb-3d3a-4596-a3bc-dad00e67656f" // EFI_IMAGE_SECURITY_DATABASE
)

// Variables with keys: PK's owner may change KEK, KEK's may change db, and firmware starts what a key in db has signed.
var (
	PK  = Variable{"PK", vendorGlobal}
	KEK = Variable{"KEK", vendorGlobal}
	DB  = Variable{"db", vendorSecurity}
)

// Variables that say what the firmware does: one byte, 0 or 1.
var (
	Enforced  = Variable{"SecureBoot", vendorGlobal} // it starts only what its keys have signed
	SetupMode = Variable{"SetupMode", vendorGlobal}  // it has no PK: whoever runs may write the keys
)

// FileName is the variable's name in Linux's efivarfs.
func (v Variable) FileName() string { return v.Name + "-" + v.Vendor }

const (
	certX509 = "a5c059a1-94e4-4aa7-87b5-ab155c2bf072" // EFI_CERT_X509_GUID

	certSHA256 = "c1c41626-504c-4092-aca9-41f936934328" // EFI_CERT_SHA256_GUID
	certPKCS7  = "4aafd29d-68df-49ee-8aa9-347d375665a7" // EFI_CERT_TYPE_PKCS7_GUID
	ownerGUID  = "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c300" // of the entries in the variables: who added them

	listHead        = 28     // EFI_SIGNATURE_LIST
	certificateUEFI = 0x0ef1 // WIN_CERT_TYPE_EFI_GUID
	timeSize        = 16     // EFI_TIME
)

// Attributes of the variables with keys: kept, there for the boot and for the system, and written with a signature
// that has a time.
const Attributes = 0x1 | 0x2 | 0x4 | 0x20

// List is a certificate as the variables have it, an EFI_SIGNATURE_LIST of one.
func List(c *x509.Certificate) []byte {
	b := make([]byte, listHead, listHead+16+len(c.Raw))
	copy(b, guid(certX509))
	le.PutUint32(b[16:], uint32(listHead+16+len(c.Raw)))
	le.PutUint32(b[24:], uint32(16+len(c.Raw)))
	return append(append(b, guid(ownerGUID)...), c.Raw...)
}

// Unreadable is the name of a certificate that Go does not take, such as one with a negative serial number, which
// firmware has. Of it there are only the bytes and this name.
const Unreadable = "a certificate that cannot be read"

// ParseLists are the certificates in a variable's content; digests and what else there may be are left out.
func ParseLists(b []byte) ([]*x509.Certificate, error) {
	all, _, err := ParseDatabase(b)
	return all, err
}

// ParseDatabase is ParseLists that also counts the SHA-256 digests of programs: firmware starts these, whoever signed them.
func ParseDatabase(b []byte) (all []*x509.Certificate, digests int, err error) {
	for len(b) > 0 {
		if len(b) < listHead {
			return nil, 0, errors.New("list of keys: it ends early")
		}
		size, head, each := int(le.Uint32(b[16:])), int(le.Uint32(b[20:])), int(le.Uint32(b[24:]))
		if size < listHead || size > len(b) || head > size-listHead || each < 16 {
			return nil, 0, errors.New("list of keys: its lengths make no sense")
		}

		if string(b[:16]) == string(guid(certSHA256)) {
			digests += (size - listHead - head) / each
		}
		isX509 := string(b[:16]) == string(guid(certX509))
		for entries := b[listHead+head : size]; isX509 && len(entries) >= each; entries = entries[each:] {
			c, err := x509.ParseCertificate(entries[16:each])
			if err != nil {
				c = &x509.Certificate{Raw: entries[16:each], Subject: pkix.Name{CommonName: Unreadable}}
			}
			all = append(all, c)
		}
		b = b[size:]
	}
	return all, digests, nil
}

// Update is what is written to a variable: its new content, signed by the key that may change it
// (EFI_VARIABLE_AUTHENTICATION_2). Firmware in setup mode takes any.
func (k Key) Update(v Variable, content []byte, now time.Time) ([]byte, error) {
	stamp := make([]byte, timeSize)
	now = now.UTC()
	le.PutUint16(stamp, uint16(now.Year()))
	stamp[2], stamp[3], stamp[4] = byte(now.Month()), byte(now.Day()), byte(now.Hour())
	stamp[5], stamp[6] = byte(now.Minute()), byte(now.Second())

	var signed []byte
	for _, c := range utf16.Encode([]rune(v.Name)) {
		signed = le.AppendUint16(signed, c)
	}
	signed = append(signed, guid(v.Vendor)...)
	signed = le.AppendUint32(signed, Attributes)
	signed = append(append(signed, stamp...), content...)

	der, err := k.signDetached(signed)
	if err != nil {
		return nil, fmt.Errorf("sign variable %s: %w", v.Name, err)
	}
	b := append(stamp, make([]byte, 8)...)
	le.PutUint32(b[timeSize:], uint32(8+16+len(der)))
	le.PutUint16(b[timeSize+4:], certificateRevision)
	le.PutUint16(b[timeSize+6:], certificateUEFI)
	b = append(append(b, guid(certPKCS7)...), der...)
	return append(b, content...), nil
}

// Content is what an Update makes the variable.
func Content(update []byte) ([]byte, error) {
	if len(update) < timeSize+8+16 {
		return nil, errors.New("no update of a variable: it is too short")
	}
	size := int(le.Uint32(update[timeSize:]))
	if size < 8+16 || size > len(update)-timeSize || le.Uint16(update[timeSize+6:]) != certificateUEFI {
		return nil, errors.New("no update of a variable")
	}
	return update[timeSize+size:], nil
}

// signDetached is SignedData alone, as the specification has it, without signed attributes and without ContentInfo.
func (k Key) signDetached(content []byte) ([]byte, error) {
	signed, err := pkcs7.NewSignedData(content)
	if err != nil {
		return nil, err
	}
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := signed.SignWithoutAttr(k.Certificate, k.Private, pkcs7.SignerInfoConfig{}); err != nil {
		return nil, err
	}
	signed.Detach()
	der, err := signed.Finish()
	if err != nil {
		return nil, err
	}

	var info struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,tag:0"`
	}
	if _, err := asn1.Unmarshal(der, &info); err != nil {
		return nil, err
	}
	return info.Content.Bytes, nil
}

// guid is a GUID of this file, as firmware stores it.
func guid(text string) []byte {
	g, err := gpt.ParseGUID(text)
	if err != nil {
		panic(err) // the texts above are constants
	}
	return g[:]
}
