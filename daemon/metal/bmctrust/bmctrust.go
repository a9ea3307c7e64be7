// Package bmctrust decides whether what answers at a BMC's address is that BMC, before anything is told a password:
// its certificate is pinned at first contact, and one that changed is refused until a person accepts it. Everything
// on the appliance that speaks to BMCs by TLS asks it: this daemon's own clients, and Ironic by a forwarder.
package bmctrust

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// Pin is the certificate that a BMC had at first contact, or that a person accepted since.
type Pin struct {
	Endpoint    string    `json:"endpoint"`    // host and port, as site.BMCAddress.Endpoint
	SHA256      string    `json:"sha256"`      // of the certificate, DER, 64 hexadecimal digits
	Certificate string    `json:"certificate"` // PEM, for people; nothing is decided by it
	Time        time.Time `json:"time"`        // of first contact, or of the acceptance
	Accepted    bool      `json:"accepted,omitempty"`

	// Other is another certificate that answered since, and that no one accepted.
	Other *Other `json:"other,omitempty"`
}

// Other is a certificate that is not the pinned one.
type Other struct {
	SHA256      string    `json:"sha256"`
	Certificate string    `json:"certificate"`
	Time        time.Time `json:"time"` // it was seen first
}

// Change is what stands between a BMC and its password. The zero value is none.
type Change struct {
	Endpoint   string
	Pinned     string    // SHA-256 of the pinned certificate; "": Unreadable
	Since      time.Time // that one was pinned
	Other      string    // SHA-256 of what answers instead
	At         time.Time // that one was seen first
	Unreadable string    // what is wrong with the record, with its path; "": nothing

	Certificate string // what answers instead, PEM, for people
}

// Error implements error.
func (c Change) Error() string { return c.Text() }

// Text says what was found, with both fingerprints.
func (c Change) Text() string {
	if c.Unreadable != "" {
		return fmt.Sprintf("what is known of the certificate of the BMC %s cannot be read (%s); it shows sha256 %s, "+
			"and is not told the password", c.Endpoint, c.Unreadable, c.Other)
	}
	return fmt.Sprintf("the certificate of the BMC %s is another one: sha256 %s, pinned is %s since %s; it is not told "+
		"the password", c.Endpoint, c.Other, c.Pinned, c.Since.UTC().Format(time.DateOnly))
}

// Fix says what a person can do about it.
func (c Change) Fix(node string) string {
	return fmt.Sprintf("if that BMC was replaced or got a new certificate, run: firstlightd bmc trust %s %s; if not, "+
		"look for what answers in its place", node, c.Other)
}

// ErrNotRecorded says that the certificate of a first contact could not be put on the medium. The BMC is told nothing.
var ErrNotRecorded = errors.New("the BMC's certificate cannot be recorded")

// Fingerprint is the SHA-256 of a certificate as it is compared and shown: 64 hexadecimal digits.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func encodePEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// TLS is how a client speaks to a BMC. What the site asks for is checked within the handshake: a BMC that fails has
// heard nothing. The error of the handshake wraps a Change, ErrNotRecorded, or what crypto/x509 says.
func (p *Pins) TLS(b site.BMC) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: b.Address.Host()}
	switch b.VerifyCertificate {
	case site.CheckNone:
		config.InsecureSkipVerify = true
	case site.CheckCA:
		config.RootCAs = p.authorities()
	default:
		// Its name, its dates and who signed it say nothing: what most BMCs have they made themselves, for no name.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(s tls.ConnectionState) error {
			return p.Check(b.Address.Endpoint(), s.PeerCertificates[0])
		}
	}
	return config
}

// authorities are those of the site; nil: the public ones.
func (p *Pins) authorities() *x509.CertPool {
	if p.CA == nil || p.CA() == "" {
		return nil
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(p.CA()))
	return pool
}
