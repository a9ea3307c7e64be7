package registry

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Settings are what the daemon tells the registry's process: all that it knows of the appliance.
type Settings struct {
	Addrs     []netip.Prefix // as in Config
	Pair      []byte         // its certificate and the key of that, PEM
	Authority []byte         // the certificates of who signed that, and the writers', PEM; public as /ca.crt
	Packages  []byte         // the key of the packages, armored; public as /packages.asc

	Known  []netip.Addr          // nodes of the site
	Owners map[netip.Addr]string // whose uploaded images a machine gets; nil: not known yet, what was told before holds
}

// Names of their files.
const (
	addressesName = "addresses"
	pairName      = "server.pem"
	authorityName = "ca.crt"
	packagesName  = "packages.asc"
	knownName     = "known"
	ownersName    = "owners"
)

// settingsFile is one of them.
type settingsFile struct {
	name string
	text []byte
}

// files are the files of settings, in the order in which they are written: an address is the last, so that the
// certificate is one for it.
func (s Settings) files() []settingsFile {
	var known, owners, addresses bytes.Buffer
	for _, addr := range s.Known {
		fmt.Fprintln(&known, addr)
	}

	for _, addr := range slices.SortedFunc(maps.Keys(s.Owners), netip.Addr.Compare) {
		fmt.Fprintln(&owners, addr, s.Owners[addr])
	}

	for _, p := range s.Addrs {
		fmt.Fprintln(&addresses, p)
	}

	all := []settingsFile{
		{authorityName, s.Authority},
		{packagesName, s.Packages},
		{pairName, s.Pair},
		{knownName, known.Bytes()},
	}
	if s.Owners != nil {
		all = append(all, settingsFile{ownersName, owners.Bytes()})
	}

	return append(all, settingsFile{addressesName, addresses.Bytes()})
}

// Write writes what differs from what is in dir, for one group and nobody else to read.
func (s Settings) Write(dir string, group int) error {
	const mode = 0o750 | fs.ModeSetgid // what is made in it is the group's, too
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()|info.Mode()&fs.ModeSetgid != mode {
		err := errors.Join(os.MkdirAll(dir, 0o700), os.Chown(dir, -1, group), os.Chmod(dir, mode))
		if err != nil {
			return fmt.Errorf("make folder of the registry's settings: %w", err)
		}
	}

	for _, f := range s.files() {
		path := filepath.Join(dir, f.name)
		there, err := os.ReadFile(path)
		if err == nil && bytes.Equal(there, f.text) {
			continue
		}
		if err := atomicfile.Write(path, f.text, 0o640); err != nil {
			return err
		}
	}

	return nil
}

// told is what settings come to.
type told struct {
	addrs       []netip.Prefix
	certificate tls.Certificate
	authority   []byte
	writers     *x509.CertPool
	packages    []byte
	known       map[netip.Addr]bool
	owners      map[netip.Addr]string
}

// readSettings reads what Write wrote.
func readSettings(dir string) (told, error) {
	texts := map[string][]byte{}
	for _, f := range (Settings{Owners: map[netip.Addr]string{}}).files() {
		text, err := os.ReadFile(filepath.Join(dir, f.name))
		if errors.Is(err, fs.ErrNotExist) && f.name == ownersName {
			continue // clusters are asked for later than addresses
		}
		if err != nil {
			return told{}, fmt.Errorf("read the registry's settings: %w", err)
		}
		texts[f.name] = text
	}

	t, err := parseSettings(texts)
	if err != nil {
		return told{}, fmt.Errorf("read the registry's settings in %s: %w", dir, err)
	}

	return t, nil
}

func parseSettings(texts map[string][]byte) (t told, err error) {
	t = told{
		authority: texts[authorityName],
		writers:   x509.NewCertPool(),
		packages:  texts[packagesName],
		known:     map[netip.Addr]bool{},
		owners:    map[netip.Addr]string{},
	}
	if !t.writers.AppendCertsFromPEM(t.authority) {
		return t, fmt.Errorf("%s: there is no certificate", authorityName)
	}
	if t.certificate, err = tls.X509KeyPair(texts[pairName], texts[pairName]); err != nil {
		return t, fmt.Errorf("%s: %w", pairName, err)
	}

	for line := range strings.Lines(string(texts[addressesName])) {
		p, err := netip.ParsePrefix(strings.TrimSpace(line))
		if err != nil {
			return t, fmt.Errorf("%s: %w", addressesName, err)
		}
		t.addrs = append(t.addrs, p)
	}

	for line := range strings.Lines(string(texts[knownName])) {
		addr, err := netip.ParseAddr(strings.TrimSpace(line))
		if err != nil {
			return t, fmt.Errorf("%s: %w", knownName, err)
		}
		t.known[addr] = true
	}

	for line := range strings.Lines(string(texts[ownersName])) {
		first, owner, _ := strings.Cut(strings.TrimSpace(line), " ")
		addr, err := netip.ParseAddr(first)
		if err != nil || owner == "" {
			return t, fmt.Errorf("%s: %q is not an address and an owner", ownersName, line)
		}
		t.owners[addr] = owner
	}

	return t, nil
}
