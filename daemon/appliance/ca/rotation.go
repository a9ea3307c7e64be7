package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// An authority is replaced in stages, each of them a file more or less next to it. What files there are is all that is
// remembered: a power cut anywhere is gone on from.
//
//	Asked       next.key
//	Introduced  next.key, next.crt             clients are to trust both; ca.key signs as before
//	Switched    former.crt, next.crt = ca.crt  clients are to trust both; the next one's key is ca.key, and signs
const (
	nextKey    = "next.key"
	nextCert   = "next.crt"
	formerCert = "former.crt"
)

// Stage is how far an authority is replaced.
type Stage string

// Stages of a rotation; "" is none.
const (
	Asked      Stage = "asked"      // somebody has asked for another authority
	Introduced Stage = "introduced" // the next one is there, and signs nothing yet
	Switched   Stage = "switched"   // the next one signs, and the former one is trusted still
)

// ErrRotating says that a rotation is not at its end yet.
var ErrRotating = errors.New("the authority is being replaced already")

// BeginRotation asks for another authority.
func (a *Authority) BeginRotation() error {
	if stage, _ := a.Stage(); stage != "" {
		return ErrRotating
	}

	key, err := newKey()
	if err != nil {
		return err
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Write(a.path(nextKey), text, 0o600)
}

// Stage is how far the authority is replaced, and since when.
func (a *Authority) Stage() (stage Stage, since time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	file := nextKey
	switch {
	case a.next != nil && !a.next.Equal(a.cert):
		stage, file = Introduced, nextCert
	case a.former != nil:
		stage, file = Switched, formerCert
	default:
		stage = Asked
	}

	info, err := os.Stat(a.path(file))
	if err != nil {
		return "", time.Time{} // nothing is asked; certificates are in memory, too, so that it is no other stage
	}
	return stage, info.ModTime()
}

// Next is the root certificate that is introduced, PEM; nil if none is.
func (a *Authority) Next() []byte {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.next == nil {
		return nil
	}
	return encode("CERTIFICATE", a.next.Raw)
}

// Introduce mints the next authority's certificate, with DNS names as those of Open: from then on it is in PEM and Pool.
func (a *Authority) Introduce(permitted ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil {
		return nil
	}

	text, err := os.ReadFile(a.path(nextKey))
	if err != nil {
		return fmt.Errorf("read key of the next certificate authority: %w", err)
	}
	key, err := parseKey(text)
	if err != nil {
		return fmt.Errorf("key of the next certificate authority: %w", err)
	}

	next, err := newRoot(key, permitted, a.now())
	if err != nil {
		return err
	}
	if err := a.writeCert(nextCert, next); err != nil {
		return err
	}
	a.next = next
	return nil
}

// Switch has the next authority sign. Everyone who trusts the current one must trust both.
func (a *Authority) Switch() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		return errors.New("no next certificate authority is introduced")
	}

	text, err := os.ReadFile(a.path(nextKey))
	if err != nil {
		return fmt.Errorf("read key of the next certificate authority: %w", err)
	}
	key, err := parseKey(text)
	if err != nil || !isPair(a.next, key) {
		return errors.Join(errors.New("the next certificate authority has another key"), err)
	}

	// The key comes before the certificate: Open finds the one that belongs to it, next to the other.
	if err := a.writeCert(formerCert, a.cert); err != nil {
		return err
	}
	if err := atomicfile.Write(a.path("ca.key"), text, 0o600); err != nil {
		return err
	}
	if err := a.writeCert("ca.crt", a.next); err != nil {
		return err
	}

	a.former, a.cert, a.key = a.cert, a.next, key
	return a.remove(nextKey)
}

// ForgetFormer ends a rotation: clients are to trust the current authority alone.
func (a *Authority) ForgetFormer() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil && !a.next.Equal(a.cert) {
		return ErrRotating
	}

	if err := errors.Join(a.remove(nextKey), a.remove(nextCert)); err != nil {
		return err
	}
	a.next = nil
	if err := a.remove(formerCert); err != nil {
		return err
	}
	a.former = nil
	return nil
}

// ReadTrusted is what clients of the authority in dir are to trust, PEM, as Authority.PEM. It is for who may not open its key,
// or is not who keeps it.
func ReadTrusted(dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}

	for _, name := range []string{nextCert, formerCert} {
		other, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		if !bytes.Contains(text, other) {
			text = append(text, other...)
		}
	}
	return text, nil
}

// roots are the certificates that clients are to trust: the current one first, each once.
func (a *Authority) roots() []*x509.Certificate {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := []*x509.Certificate{a.cert}
	for _, c := range []*x509.Certificate{a.next, a.former} {
		if c != nil && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}

// finishSwitch goes on with a Switch that was cut when the next authority's key was in place and its certificate was not.
func (a *Authority) finishSwitch(certPEM, keyPEM []byte) error {
	former, err := parseCert(certPEM)
	if err != nil {
		return err
	}
	next, err := os.ReadFile(a.path(nextCert))
	if err != nil {
		return err
	}

	cert, key, err := parsePair(next, keyPEM)
	if err != nil {
		return err
	}
	if err := errors.Join(a.writeCert(formerCert, former), a.writeCert("ca.crt", cert)); err != nil {
		return err
	}
	a.cert, a.key = cert, key
	return nil
}

// loadRotation reads how far the authority is replaced, and clears what a cut has left.
func (a *Authority) loadRotation() (err error) {
	if a.next, err = a.readCert(nextCert); err != nil {
		return err
	}
	if a.former, err = a.readCert(formerCert); err != nil {
		return err
	}

	text, err := os.ReadFile(a.path(nextKey))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read key of the next certificate authority: %w", err)
	}
	switch {
	case a.next == nil:
		return nil
	case a.next.Equal(a.cert): // Switch was cut before its last step, if there is one
		return a.remove(nextKey)
	}

	// An away copy that was made in the middle of a Switch has one without the other. Nothing was signed by it then.
	if key, err := parseKey(text); err != nil || !isPair(a.next, key) {
		a.next = nil
		return errors.Join(a.remove(nextKey), a.remove(nextCert))
	}
	return nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

// readCert reads a certificate; nil if there is none.
func (a *Authority) readCert(name string) (*x509.Certificate, error) {
	text, err := os.ReadFile(a.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}

	cert, err := parseCert(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return cert, nil
}

func parseCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("certificate is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func (a *Authority) writeCert(name string, c *x509.Certificate) error {
	return atomicfile.Write(a.path(name), encode("CERTIFICATE", c.Raw), 0o644)
}

func (a *Authority) remove(name string) error {
	if err := os.Remove(a.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget certificate authority: %w", err)
	}
	return atomicfile.SyncDir(a.dir)
}
