package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// All that signs in the appliance's Kubernetes is replaced at once, in stages. Two files in pkiDir are all that is
// remembered; what follows from them is found and done by the stage control-plane, so a power cut anywhere is gone on from.
//
//	Introduced  next.json                everyone is to trust both; the current ones sign
//	            next.json, former.json   the next ones are being put in place of the current ones
//	Switched    former.json              everyone is to trust both; the next ones sign
const (
	nextFile   = pkiDir + "/next.json"   // with private keys
	formerFile = pkiDir + "/former.json" // without
	// crossFile is ca.crt as the former ca.key signed it, that of the last rotation first. The API server shows it with its
	// own certificate: a pod reads its authority when it starts, and many never again.
	crossFile = pkiDir + "/ca-cross.crt"
)

// ErrRotating says that a rotation is not at its end yet.
var ErrRotating = errors.New("Kubernetes' authorities are being replaced already")

// authoritySet is what signs, in PEM, by path with .crt, .key or .pub; and in crossFile what it adds there.
type authoritySet map[string]string

// Rotation is how far what signs in the appliance's Kubernetes is replaced.
type Rotation struct {
	cluster      *Cluster
	next, former authoritySet // nil: there is none
}

// trustFiles are what clients, servers and parts of the control plane trust; they read most of it when they start.
func trustFiles() []string {
	var all []string
	for _, a := range authorities() {
		all = append(all, a+".crt")
	}
	return append(all, accountKey+".pub")
}

// Rotation reads how far it is.
func (c *Cluster) Rotation() (*Rotation, error) {
	r := &Rotation{cluster: c}
	for path, into := range map[string]*authoritySet{nextFile: &r.next, formerFile: &r.former} {
		text, err := os.ReadFile(c.path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return r, nil
}

// Stage is how far it is, and since when; "" is that nothing is replaced.
func (r *Rotation) Stage() (stage ca.Stage, since time.Time) {
	var file string
	switch {
	case r.former != nil:
		stage, file = ca.Switched, formerFile
	case r.next != nil:
		stage, file = ca.Introduced, nextFile
	default:
		return "", time.Time{}
	}

	info, err := os.Stat(r.cluster.path(file))
	if err != nil {
		return "", time.Time{}
	}
	return stage, info.ModTime()
}

// PEM is what clients of the API server trust.
func (r *Rotation) PEM() []byte {
	text, _ := os.ReadFile(r.cluster.path(caPath + ".crt"))
	return text
}

// Current is the one that signs.
func (r *Rotation) Current() []byte { return []byte(firstBlock(r.PEM())) }

// Next is the one that is introduced; nil if none is.
func (r *Rotation) Next() []byte {
	if r.next == nil || r.former != nil {
		return nil
	}
	return []byte(r.next[caPath+".crt"])
}

// BeginRotation makes the next authorities.
func (c *Cluster) BeginRotation() error {
	r, err := c.Rotation()
	if err != nil {
		return err
	}
	if r.next != nil || r.former != nil {
		return ErrRotating
	}

	next := authoritySet{}
	for _, path := range authorities() {
		if err := c.mintNext(next, path); err != nil {
			return fmt.Errorf("make the next %s: %w", path, err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the next %s: %w", accountKey, err)
	}
	if err := next.addKey(accountKey, key); err != nil {
		return err
	}
	if next[accountKey+".pub"], err = publicPEM(key); err != nil {
		return err
	}
	return next.save(c.path(nextFile))
}

// mintNext makes the successor of an authority, called as that with a date: two of one name cannot be told apart in a
// message.
func (c *Cluster) mintNext(next authoritySet, path string) error {
	current, signer, err := c.readPair(path)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}

	now := effectiveNow(c.Now())
	name, _, _ := strings.Cut(current.Subject.CommonName, " ")
	template := authorityTemplate(name+" "+now.UTC().Format("20060102T150405Z"), now)
	der, err := signCertificate(template, template, key.Public(), key)
	if err != nil {
		return err
	}
	next[path+".crt"] = certificatePEM(der)
	if err := next.addKey(path, key); err != nil || path != caPath {
		return err
	}

	made, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	template.SubjectKeyId = made.SubjectKeyId
	if der, err = signCertificate(template, current, key.Public(), signer); err != nil {
		return err
	}
	next[crossFile] = certificatePEM(der)
	return nil
}

func (a authoritySet) addKey(path string, key *ecdsa.PrivateKey) error {
	text, err := keyPEM(key)
	a[path+".key"] = string(text)
	return err
}

func (a authoritySet) save(path string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode authorities: %w", err)
	}
	return atomicfile.Write(path, text, 0o600)
}

// Switch has the next authorities sign, when the stage control-plane has put them in place.
func (r *Rotation) Switch() error {
	if r.next == nil || r.former != nil {
		return errors.New("no next authorities of Kubernetes are introduced")
	}
	former := authoritySet{}
	for _, path := range trustFiles() {
		text, err := os.ReadFile(r.cluster.path(path))
		if err != nil {
			return fmt.Errorf("read what signs: %w", err)
		}
		former[path] = firstBlock(text)
	}
	return former.save(r.cluster.path(formerFile))
}

// ForgetFormer ends a rotation: the stage control-plane has nobody trust the former ones.
func (r *Rotation) ForgetFormer() error {
	if r.next != nil {
		return ErrRotating
	}
	return r.cluster.removeFile(formerFile)
}

// FormerAccountKey is the public key that signed tokens of service accounts before, PEM; "" if none is trusted besides.
func (r *Rotation) FormerAccountKey() string { return r.former[accountKey+".pub"] }

func (c *Cluster) removeFile(path string) error {
	if err := os.Remove(c.path(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget authorities: %w", err)
	}
	return atomicfile.SyncDir(c.path(pkiDir))
}

// isSwitching reports whether the next authorities are not all in place yet.
func (r *Rotation) isSwitching() bool { return r.next != nil && r.former != nil }

// finishSwitch puts the next authorities in place of the current ones. It may be cut anywhere.
func (r *Rotation) finishSwitch() error {
	c := r.cluster
	cross, err := os.ReadFile(c.path(crossFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read certificate: %w", err)
	}
	if !strings.HasPrefix(string(cross), r.next[crossFile]) {
		if err := writeFile(c.path(crossFile), append([]byte(r.next[crossFile]), cross...), 0o644); err != nil {
			return err
		}
	}

	for _, path := range append(authorities(), accountKey) {
		if err := writeFile(c.path(path+".key"), []byte(r.next[path+".key"]), 0o600); err != nil {
			return err
		}
	}
	for _, path := range trustFiles() {
		if err := writeFile(c.path(path), []byte(r.next[path]+r.former[path]), 0o644); err != nil {
			return err
		}
	}

	r.next = nil
	return c.removeFile(nextFile)
}

// wantedTrust is what a file of trustFiles has: who signs comes first, as in every program that takes only one.
func (r *Rotation) wantedTrust(path string) ([]byte, error) {
	text, err := os.ReadFile(r.cluster.path(path))
	if err != nil {
		return nil, fmt.Errorf("read what is trusted: %w", err)
	}
	other := r.former
	if other == nil {
		other = r.next
	}
	return []byte(firstBlock(text) + other[path]), nil
}

// trustDone says what is not trusted that should be, or is and should not.
func (r *Rotation) trustDone() error {
	if r.isSwitching() {
		return errors.New("the next authorities of Kubernetes are not in place yet")
	}
	for _, path := range trustFiles() {
		want, err := r.wantedTrust(path)
		if err != nil {
			return err
		}
		if !fileIs(r.cluster.path(path), want) {
			return fmt.Errorf("%s does not hold who is trusted", path)
		}
	}
	return nil
}

func (r *Rotation) writeTrust() error {
	for _, path := range trustFiles() {
		want, err := r.wantedTrust(path)
		if err != nil {
			return err
		}
		if err := atomicfile.WriteChanged(r.cluster.path(path), want, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// trustDigest is of all that is trusted. The kubelet and static pods have it in their configuration, so that they start
// again when it changes.
func (c *Cluster) trustDigest() string {
	h := sha256.New()
	for _, path := range trustFiles() {
		text, _ := os.ReadFile(c.path(path)) // what is not there is minted first
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// firstBlock is the first certificate or key of a text, PEM; the text itself if there is none.
func firstBlock(text []byte) string {
	block, _ := pem.Decode(text)
	if block == nil {
		return string(text)
	}
	return string(pem.EncodeToMemory(block))
}

// chain is what a certificate is shown with.
func (c *Cluster) chain(path string) ([]byte, error) {
	if path != apiServer {
		return nil, nil
	}
	text, err := os.ReadFile(c.path(crossFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
