package site

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Amount is an amount of storage in bytes.
type Amount int64

func (a Amount) String() string { return Memory(a).String() }

func (a *Amount) ParseText(s string) error {
	var m Memory
	if err := m.ParseText(s); err != nil {
		return errors.New(strings.ReplaceAll(
			err.Error(), "an amount of memory; write a number with a unit such as 16Gi",
			"an amount; write a number with a unit such as 50Gi",
		))
	}

	*a = Amount(m)
	return nil
}

// Certificates are one or more certificates as PEM, with nothing else beside them.
type Certificates string

func (c Certificates) String() string { return string(c) }

func (c *Certificates) ParseText(s string) error {
	var clean strings.Builder
	for rest := []byte(strings.TrimSpace(s)); len(rest) > 0; {
		block, after := pem.Decode(rest)
		switch {
		case block == nil:
			return errors.New("this is not PEM; paste the lines from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE----- below 'ca: |'")
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("this is a %s; a certificate belongs here", yamldoc.Quote(strings.ToLower(block.Type)))
		}

		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return errors.New("this certificate is torn; paste all of its lines")
		}

		clean.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		rest = after
	}

	if clean.Len() == 0 {
		return errors.New("there is no certificate; paste it or remove the line")
	}

	*c = Certificates(clean.String())
	return nil
}

// checkArtifacts checks what the parts of the section mean together.
func (r *reader) checkArtifacts(a *Artifacts) {
	owners := map[Name]string{}
	for i, o := range a.Owners {
		at := fmt.Sprintf("artifacts.owners[%d].name", i)
		if first, ok := owners[o.Name]; ok && o.Name != "" {
			r.Report(
				at, "owner %s is already that of %s; each must be given once", yamldoc.Quote(string(o.Name)), first,
			)
		}
		owners[o.Name] = at
	}

	if a.Expiry != 0 && time.Duration(a.Expiry) < time.Hour {
		r.Report("artifacts.expiry", "an upload that pauses would be removed at once; use 1h or more")
	}

	if a.S3 && a.Store != nil {
		r.Report(
			"artifacts.s3",
			"uploads are in a store elsewhere, which serves S3 itself; remove store, or this line",
		)
	}

	if a.Store != nil {
		r.checkStore("artifacts.store", a.Store.Endpoint, a.Store.CA)
	}
}
