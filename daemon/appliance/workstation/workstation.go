// Package workstation is an appliance as seen from a workstation: whoever may log in to it by SSH runs its
// commands from afar, and reaches its API through that log-in, because no network does (docs/security.md, Listeners).
// What is stored of an appliance is in a folder of its own and in one context of the user's kubeconfig.
package workstation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Files of a Store, and of an appliance's folder in it.
const (
	lastFile       = "last"
	applianceFile  = "appliance.json"
	knownFile      = "known_hosts"
	accessFile     = "access.json"
	kubeconfigFile = "kubeconfig"
	attestFile     = "attestation-key.json"
)

// firstPort is where the API of the first appliance is on loopback. Each other one has the next port, so that the
// contexts of all can be used at once.
const firstPort = 16443

// Appliance is one that was logged in to.
type Appliance struct {
	Host     string `json:"host"`               // as the user named it: NAME, ADDRESS or either with :PORT
	Identity string `json:"identity,omitempty"` // file of the SSH key; "": those of the agent, and the usual files
	Port     int    `json:"port"`               // on loopback, where `firstlight proxy` listens
}

// Context is the name of the appliance's context in a kubeconfig.
func (a Appliance) Context() string { return "firstlight-" + a.Host }

// Address is where `firstlight proxy` listens.
func (a Appliance) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port)) }

// Listen opens that address.
func (a Appliance) Listen() (net.Listener, error) {
	l, err := net.Listen("tcp", a.Address())
	if err != nil {
		return nil, fmt.Errorf(
			"forward the API of %s: %w; if firstlight proxy runs already, use kubectl right away", a.Host, err,
		)
	}
	return l, nil
}

// Store is a folder with what is known of appliances.
type Store struct{ Dir string }

// UserStore is the store of whoever runs this.
func UserStore() (Store, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return Store{}, fmt.Errorf("find the folder of your configuration: %w; set HOME", err)
	}
	return Store{filepath.Join(dir, "firstlight", "appliances")}, nil
}

// Kubeconfig is the file with the appliance's one context.
func (s Store) Kubeconfig(a Appliance) string { return s.path(a.Host, kubeconfigFile) }

func (s Store) path(host, file string) string { return filepath.Join(s.Dir, host, file) }

// CheckHost refuses what is no host, with or without a port, and would be no folder's name.
func CheckHost(host string) error {
	if host == "" || host == lastFile || strings.HasPrefix(host, ".") || strings.HasPrefix(host, "-") ||
		strings.ContainsAny(host, "/\\@% \t\r\n") {
		return fmt.Errorf("%q is not a host; use a name or an address of the appliance, such as 10.10.110.20", host)
	}
	return nil
}

// addPort is a host with the port of SSH, unless it has one.
func addPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "22")
}

// Find is the appliance of a name, or without one that which was logged in to last.
func (s Store) Find(host string) (Appliance, error) {
	if host == "" {
		last, err := os.ReadFile(filepath.Join(s.Dir, lastFile))
		if errors.Is(err, fs.ErrNotExist) {
			return Appliance{}, s.nobodyError()
		}
		if err != nil {
			return Appliance{}, fmt.Errorf("read which appliance was logged in to last: %w", err)
		}
		host = strings.TrimSpace(string(last))
	}
	if err := CheckHost(host); err != nil {
		return Appliance{}, err
	}

	var a Appliance
	err := s.read(host, applianceFile, &a)
	if errors.Is(err, fs.ErrNotExist) {
		return Appliance{}, fmt.Errorf("%s was not logged in to; run firstlight login %s", host, host)
	}
	return a, err
}

// nobodyError says what to do if no appliance was named, and the last one is not known.
func (s Store) nobodyError() error {
	if hosts := s.Hosts(); len(hosts) > 0 {
		return fmt.Errorf("the appliance of the last log-in was logged out; name one with --host: %s", strings.Join(hosts, ", "))
	}
	return errors.New("no appliance was logged in to; run firstlight login HOST")
}

// Prepare makes the folder of an appliance, and gives it a port on loopback if it has none.
func (s Store) Prepare(host, identity string) (Appliance, error) {
	if err := CheckHost(host); err != nil {
		return Appliance{}, err
	}

	if identity != "" { // it is used from other folders
		absolute, err := filepath.Abs(identity)
		if err != nil {
			return Appliance{}, fmt.Errorf("find SSH key %s: %w", identity, err)
		}
		identity = absolute
	}

	a := Appliance{Host: host, Identity: identity, Port: s.choosePort(host)}
	if err := os.MkdirAll(filepath.Join(s.Dir, host), 0o700); err != nil {
		return Appliance{}, fmt.Errorf("store what is known of %s: %w", host, err)
	}

	return a, nil
}

// choosePort is the port that an appliance has, else the first that no other one has.
func (s Store) choosePort(host string) int {
	if a, err := s.Find(host); err == nil {
		return a.Port
	}

	taken := map[int]bool{}
	for _, other := range s.Hosts() {
		if a, err := s.Find(other); err == nil {
			taken[a.Port] = true
		}
	}

	port := firstPort
	for taken[port] {
		port++
	}
	return port
}

// Hosts are the appliances that were logged in to.
func (s Store) Hosts() []string {
	files, _ := filepath.Glob(filepath.Join(s.Dir, "*", applianceFile))
	hosts := make([]string, len(files))
	for i, path := range files {
		hosts[i] = filepath.Base(filepath.Dir(path))
	}
	return hosts
}

// Save stores an appliance, as the one that was logged in to last.
func (s Store) Save(a Appliance) error {
	if err := s.write(a.Host, applianceFile, a); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.Dir, lastFile), []byte(a.Host+"\n"), 0o600); err != nil {
		return fmt.Errorf("store that %s was logged in to: %w", a.Host, err)
	}

	return nil
}

// AttestationKey is the fingerprint of the key that the appliance's TPM signed the first attestation by; "" before.
func (s Store) AttestationKey(a Appliance) (string, error) {
	var fingerprint string
	err := s.read(a.Host, attestFile, &fingerprint)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return fingerprint, err
}

// SaveAttestationKey stores it: from then on no other key is believed.
func (s Store) SaveAttestationKey(a Appliance, fingerprint string) error {
	return s.write(a.Host, attestFile, fingerprint)
}

// Remove removes all that the store has of an appliance, and reports whether there was anything.
func (s Store) Remove(host string) (bool, error) {
	dir := filepath.Join(s.Dir, host)
	_, absent := os.Stat(dir)
	if err := os.RemoveAll(dir); err != nil {
		return true, fmt.Errorf("remove what is stored of %s: %w", host, err)
	}

	last := filepath.Join(s.Dir, lastFile)
	text, err := os.ReadFile(last)
	if err == nil && strings.TrimSpace(string(text)) == host {
		err = os.Remove(last)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true, fmt.Errorf("remove what is stored of %s: %w", host, err)
	}

	return absent == nil, nil
}

// read reads a file of an appliance's. Its error may be fs.ErrNotExist.
func (s Store) read(host, file string, into any) error {
	text, err := os.ReadFile(s.path(host, file))
	if err != nil {
		return fmt.Errorf("read what is stored of %s: %w", host, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w; run firstlight login %s again", s.path(host, file), err, host)
	}
	return nil
}

// write writes a file of an appliance's, for its owner's eyes.
func (s Store) write(host, file string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = atomicfile.Write(s.path(host, file), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("store what is known of %s: %w", host, err)
	}
	return nil
}
