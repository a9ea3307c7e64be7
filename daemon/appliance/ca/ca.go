// Package ca is the appliance's own certificate authority: minted on the box at its
// first boot, kept on DATA, never part of an image. Every TLS server of the appliance
// that Kubernetes does not look after (Ironic, the registry, the REST API) has its
// certificate from here, and every node and ramdisk is given its root.
package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Lifetimes. A site may have no clock worth the name, on the appliance or on a node whose
// battery is empty: certificates are valid from long ago, so that only a clock decades off
// refuses them, and the root outlives the hardware.
const (
	rootValidity = 30 * 365 * 24 * time.Hour
	leafValidity = 365 * 24 * time.Hour
	renewLeft    = leafValidity / 3 // a leaf with less than this left is replaced
	browsersLate = 365 * 24 * time.Hour
)

// notBefore is the start of every certificate: older than any firmware's default clock
// that is not zero, and the same everywhere so that nothing depends on the clock.
var notBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Authority signs certificates. Its zero value is not usable; see Open.
type Authority struct {
	dir string
	now func() time.Time

	mu           sync.RWMutex
	cert         *x509.Certificate
	key          crypto.Signer
	next, former *x509.Certificate // while it is replaced; see rotation.go
}

// Open reads the authority in dir (ca.crt, ca.key), minting it if there is none. The key
// is written first and the certificate last, both by rename, so that a power cut leaves
// either no authority or a whole one. A certificate that does not belong to its key is an
// error: something else wrote there, and replacing it would cut off every node that
// trusts it.
//
// An authority that is minted signs for addresses, and for the DNS names permitted and those below them, and no one
// takes its certificates for others (RFC 5280, 4.2.1.10); for any name, if none is given. One that is there stays as it
// is.
func Open(dir string, now func() time.Time, permitted ...string) (*Authority, error) {
	a := &Authority{dir: dir, now: now}
	certPEM, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.mint(permitted)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}

	keyPEM, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read key of certificate authority: %w", err)
	}
	if a.cert, a.key, err = parsePair(certPEM, keyPEM); err != nil {
		if a.finishSwitch(certPEM, keyPEM) != nil {
			return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
		}
	}
	if err := a.loadRotation(); err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}

	return a, nil
}

// PEM is what clients are to trust: the root certificate, and those of its rotation, each once.
func (a *Authority) PEM() (text []byte) {
	for _, c := range a.roots() {
		text = append(text, encode("CERTIFICATE", c.Raw)...)
	}
	return text
}

// Pool is what PEM is, for clients in this process.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range a.roots() {
		p.AddCert(c)
	}
	return p
}

// Current is the root certificate by which certificates are signed now, PEM.
func (a *Authority) Current() []byte {
	return encode("CERTIFICATE", a.root().Raw)
}

// root is by what certificates are signed now.
func (a *Authority) root() *x509.Certificate {
	root, _ := a.signer()
	return root
}

// signer is root with its key.
func (a *Authority) signer() (*x509.Certificate, crypto.Signer) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.cert, a.key
}

// Permits reports whether the authority may sign for a DNS name.
func (a *Authority) Permits(name string) bool {
	permitted := a.root().PermittedDNSDomains
	return len(permitted) == 0 || slices.ContainsFunc(permitted, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

// Names are what a certificate is valid for: a server's, for its DNS names and addresses, or a client's, who has none.
type Names struct {
	Of    string // what has it: the user that a client is; a server is called so, and known by the names below alone
	DNS   []string
	Addrs []netip.Addr

	Client bool
	// Browsers says that people's browsers check it. Those of Apple take none that is valid for more than 825 days, so it
	// begins a year ago, and not long before any clock.
	Browsers bool
}

// subject is a server's unit or a client's common name. A server has no common name: GnuTLS takes one for a DNS name,
// and holds it to the authority's constraints.
func (n Names) subject() pkix.Name {
	if n.Client {
		return pkix.Name{CommonName: n.Of}
	}
	return pkix.Name{Organization: []string{"Firstlight appliance"}, OrganizationalUnit: []string{n.Of}}
}

// usage is what the certificate may be shown for.
func (n Names) usage() []x509.ExtKeyUsage {
	if n.Client {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
}

// begin is when the certificate becomes valid, if it is made now.
func (n Names) begin(now time.Time) time.Time {
	if n.Browsers {
		return laterOf(now.Add(-browsersLate), notBefore)
	}
	return notBefore
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// Issue returns a pair with these names. What lies in dir as
// FILE.crt and FILE.key is returned as it is while it has these names, belongs to this
// root and a third of its life is left; otherwise a new pair takes its place. fresh tells
// which: who serves it must then read it again.
func (a *Authority) Issue(file string, n Names) (pair Pair, fresh bool, err error) {
	crt, key := filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key")
	pair.Cert, _ = os.ReadFile(crt)
	pair.Key, _ = os.ReadFile(key)
	if a.isValidFor(pair, n) {
		return pair, false, nil
	}
	if pair, err = a.Sign(n); err != nil {
		return Pair{}, false, fmt.Errorf("issue certificate %s: %w", file, err)
	}
	if err := atomicfile.Write(key, pair.Key, 0o600); err != nil {
		return Pair{}, false, err
	}
	if err := atomicfile.Write(crt, pair.Cert, 0o644); err != nil {
		return Pair{}, false, err
	}

	return pair, true, nil
}

// isValidFor tells whether a pair read from disk can be used for n.
func (a *Authority) isValidFor(p Pair, n Names) bool {
	cert, _, err := parsePair(p.Cert, p.Key)
	if err != nil || cert.CheckSignatureFrom(a.root()) != nil || cert.Subject.String() != n.subject().String() ||
		!slices.Equal(cert.ExtKeyUsage, n.usage()) {
		return false
	}

	for _, name := range n.DNS {
		if cert.VerifyHostname(name) != nil {
			return false
		}
	}

	for _, addr := range n.Addrs {
		if cert.VerifyHostname(addr.String()) != nil {
			return false
		}
	}

	// One for browsers that was made while the clock was ahead, or by an earlier version, is of no use to them.
	if n.Browsers && (cert.NotBefore.After(a.now()) || cert.NotAfter.Sub(cert.NotBefore) > leafValidity+browsersLate) {
		return false
	}

	// A clock set back must not make every certificate look forged: only the end counts.
	return cert.NotAfter.Sub(a.now()) > renewLeft
}

func (a *Authority) mint(permitted []string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	if a.cert, err = newRoot(key, permitted, a.now()); err != nil {
		return err
	}

	a.key = key
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(a.dir, "ca.key"), keyPEM, 0o600); err != nil {
		return err
	}

	return atomicfile.Write(filepath.Join(a.dir, "ca.crt"), a.PEM(), 0o644)
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mint key of certificate authority: %w", err)
	}
	return key, nil
}

// newRoot is the certificate of an authority that begins now.
func newRoot(key crypto.Signer, permitted []string, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Firstlight appliance " + serial().Text(16)[:8]},
		NotBefore:             notBefore,
		NotAfter:              laterOf(now, notBefore).Add(rootValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,

		PermittedDNSDomains:         permitted,
		PermittedDNSDomainsCritical: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("mint certificate authority: %w", err)
	}
	return x509.ParseCertificate(der)
}

// Sign returns a new pair, which is kept nowhere.
func (a *Authority) Sign(n Names) (Pair, error) {
	for _, name := range n.DNS {
		if !a.Permits(name) {
			return Pair{}, fmt.Errorf("the authority may not sign for %s, and nobody would take it", name)
		}
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}

	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      n.subject(),
		NotBefore:    n.begin(a.now()),
		NotAfter:     laterOf(a.now(), notBefore).Add(leafValidity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  n.usage(),
		DNSNames:     n.DNS,

		BasicConstraintsValid: true, // of no authority
	}
	for _, addr := range n.Addrs {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	}

	root, signer := a.signer()
	der, err := x509.CreateCertificate(rand.Reader, template, root, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}

	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}

	return Pair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, crypto.Signer, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("parse certificate: %w", err)
	}

	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, nil, err
	}
	if !isPair(cert, key) {
		return nil, nil, errors.New("certificate and key do not belong together")
	}

	return cert, key, nil
}

func isPair(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(*ecdsa.PublicKey)
	return ok && public.Equal(cert.PublicKey)
}

func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("key is not PEM")
	}

	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key: %w", err)
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("key is none of ECDSA")
	}
	return signer, nil
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return encode("PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serial is 128 random bits (RFC 5280 4.1.2.2 asks for a positive number of at most 20 octets).
func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, crypto/rand
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b[:])
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
