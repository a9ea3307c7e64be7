package bmctrust

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
)

// Pins keeps on DATA which certificate each BMC has: one file for each endpoint, next to the records of hosts. Its
// methods may be called at the same time.
type Pins struct {
	Dir string
	CA  func() site.Certificates // authorities of the site, PEM; nil or "": the public ones
	Log *slog.Logger

	// Changed is called when a certificate is refused that was not before, and when none is any more. It must not
	// block; nil: no one asks.
	Changed func(endpoint string)

	mu  sync.Mutex
	all map[string]*entry // by endpoint, what was read or written
}

// entry is a record in memory.
type entry struct {
	Pin
	unreadable string // what is wrong with the file
}

func (e *entry) change() Change {
	c := Change{Endpoint: e.Endpoint, Pinned: e.SHA256, Since: e.Time, Unreadable: e.unreadable}
	if e.Other != nil {
		c.Other, c.At, c.Certificate = e.Other.SHA256, e.Other.Time, e.Other.Certificate
	}
	return c
}

// Check is nil if a certificate is the pinned one of its BMC, or if it is the first and is on the medium now. The
// error is a Change, or wraps ErrNotRecorded.
func (p *Pins) Check(endpoint string, c *x509.Certificate) error {
	p.mu.Lock()
	e, changed, err := p.check(endpoint, c)
	p.mu.Unlock()
	if changed {
		p.notify(endpoint, e)
	}
	return err
}

func (p *Pins) check(endpoint string, c *x509.Certificate) (e Change, changed bool, err error) {
	have, err := p.load(endpoint)
	if err != nil {
		return Change{}, false, err
	}

	print := Fingerprint(c)
	switch {
	case have == nil:
		pin := Pin{Endpoint: endpoint, SHA256: print, Certificate: encodePEM(c), Time: time.Now()}
		if err := p.save(pin); err != nil {
			return Change{}, false, err
		}
		p.Log.Info("BMC certificate pinned", "bmc", endpoint, "sha256", print)
		return Change{}, false, nil
	case have.unreadable == "" && have.SHA256 == print && have.Other == nil:
		return Change{}, false, nil
	case have.unreadable == "" && have.SHA256 == print:
		have.Other = nil // it is itself again
		p.saveLater(have.Pin)
		return Change{}, true, nil
	case have.Other != nil && have.Other.SHA256 == print:
		return have.change(), false, have.change()
	}

	// What is refused is also refused if it cannot be recorded.
	have.Other = &Other{SHA256: print, Certificate: encodePEM(c), Time: time.Now()}
	if have.unreadable == "" {
		p.saveLater(have.Pin)
	}

	return have.change(), true, have.change()
}

func (p *Pins) notify(endpoint string, c Change) {
	if c == (Change{}) {
		p.Log.Info("BMC has its pinned certificate again", "bmc", endpoint)
	} else {
		p.Log.Warn("BMC certificate refused", "bmc", endpoint, "sha256", c.Other, "pinned", c.Pinned,
			"unreadable", c.Unreadable)
	}
	if p.Changed != nil {
		p.Changed(endpoint)
	}
}

// Change is what stands between a BMC and its password; false: nothing, or the site does not ask for a pin.
func (p *Pins) Change(b site.BMC) (Change, bool) {
	if b.VerifyCertificate != site.CheckPin || !b.Address.HasTLS() {
		return Change{}, false
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	e, err := p.load(b.Address.Endpoint())
	if err != nil || e == nil || e.Other == nil {
		return Change{}, false
	}

	return e.change(), true
}

var fingerprints = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Offer is what stands between a BMC and its password, with the certificate that Trust would accept.
func (p *Pins) Offer(endpoint string) (Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offer(endpoint)
}

func (p *Pins) offer(endpoint string) (Change, error) {
	e, err := p.load(endpoint)
	switch {
	case err != nil:
		return Change{}, err
	case e == nil:
		return Change{}, fmt.Errorf("the BMC %s was not asked yet; its certificate is pinned when it is", endpoint)
	case e.Other == nil:
		return Change{}, fmt.Errorf("the BMC %s shows the certificate that is pinned", endpoint)
	}
	return e.change(), nil
}

// Trust accepts the certificate that a BMC shows in place of the pinned one, if that has this fingerprint. It returns
// what stands between no longer.
func (p *Pins) Trust(endpoint, fingerprint string) (Change, error) {
	// People copy them with colons, in capitals, with the name of the digest.
	fingerprint = strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(fingerprint), "sha256:"), ":", "")
	if !fingerprints.MatchString(fingerprint) {
		return Change{}, errors.New("that is no fingerprint; give the 64 hexadecimal digits that firstlightd why shows")
	}

	p.mu.Lock()
	was, err := p.trust(endpoint, fingerprint)
	p.mu.Unlock()
	if err == nil && p.Changed != nil {
		p.Changed(endpoint)
	}
	return was, err
}

func (p *Pins) trust(endpoint, fingerprint string) (Change, error) {
	was, err := p.offer(endpoint)
	if err != nil {
		return Change{}, err
	}
	if was.Other != fingerprint {
		return Change{}, fmt.Errorf("the BMC %s shows another certificate than that: sha256 %s", endpoint, was.Other)
	}

	err = p.save(Pin{
		Endpoint:    endpoint,
		SHA256:      was.Other,
		Certificate: was.Certificate,
		Time:        time.Now(),
		Accepted:    true,
	})
	if err != nil {
		return Change{}, err
	}

	p.Log.Info("BMC certificate accepted", "bmc", endpoint, "sha256", was.Other, "pinned", was.Pinned)
	return was, nil
}

// Changes are the BMCs that are not told a password, as of now.
func (p *Pins) Changes() []Change {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Change
	for _, e := range p.all {
		if e != nil && e.Other != nil {
			all = append(all, e.change())
		}
	}

	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	return all
}

// load is the record of an endpoint; nil if there is none. A file that is torn, or another's, is an entry that nothing
// fits: a first contact is what an attacker would make of it.
func (p *Pins) load(endpoint string) (*entry, error) {
	if e := p.all[endpoint]; e != nil {
		return e, nil
	}

	path := p.path(endpoint)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read what is known of it: %w", ErrNotRecorded, err)
	}

	e := &entry{}
	if err := json.Unmarshal(text, &e.Pin); err != nil {
		e.unreadable = fmt.Sprintf("%s is torn: %v", path, err)
	} else if e.Endpoint != endpoint || !fingerprints.MatchString(e.SHA256) {
		e.unreadable = path + " is no record of it"
	}
	if e.unreadable != "" {
		e.Pin = Pin{Endpoint: endpoint}
	}

	p.remember(e)
	return e, nil
}

func (p *Pins) remember(e *entry) {
	if p.all == nil {
		p.all = map[string]*entry{}
	}
	p.all[e.Endpoint] = e
}

// save puts a record on the medium, and only then into memory.
func (p *Pins) save(pin Pin) error {
	text, err := json.MarshalIndent(pin, "", "\t")
	if err == nil {
		err = os.MkdirAll(p.Dir, 0o700)
	}
	if err == nil {
		err = atomicfile.Write(p.path(pin.Endpoint), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}

	p.remember(&entry{Pin: pin})
	return nil
}

// saveLater saves what is decided without: the other certificate of a BMC is found again.
func (p *Pins) saveLater(pin Pin) {
	if err := p.save(pin); err != nil {
		p.Log.Error("other certificate of a BMC not recorded", "error", err)
	}
}

func (p *Pins) path(endpoint string) string {
	return filepath.Join(p.Dir, url.PathEscape(endpoint)+".json")
}
