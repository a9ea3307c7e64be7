package vault

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// BMCAccountDir has one file for each account of a BMC whose password the appliance replaces, or has replaced.
const BMCAccountDir = SecretDir + "/bmc"

// BMCAccount is what is on DATA of such an account. Whatever moment the power fails, the password that the BMC takes is
// among Present, Next and what the site says.
type BMCAccount struct {
	BMC      string `json:"bmc"` // host, or host and port; with Username it names the account
	Username string `json:"username"`
	Salt     string `json:"salt"` // of digests

	Present  string    `json:"password,omitempty"` // what the appliance gave the BMC; "": nothing yet
	Replaced string    `json:"replaced,omitempty"` // digest of what the site says, and Present stands for
	Since    time.Time `json:"since,omitzero"`     // of Present

	Next    string `json:"nextPassword,omitempty"` // what the BMC gets; "": nothing
	NextFor string `json:"nextFor,omitempty"`      // digest of what the site said when Next was minted
	Asked   bool   `json:"asked,omitempty"`        // the BMC may have been asked to take Next

	Former  string      `json:"formerPassword,omitempty"` // what Ironic may still use; "": nothing
	Refusal string      `json:"refusal,omitempty"`        // why the last replacement did not come about, for people
	Tries   []time.Time `json:"tries,omitempty"`          // logins, of the last hour, that the BMC did not accept
}

// NewBMCAccount is an account of which nothing is known yet.
func NewBMCAccount(bmc, username string) BMCAccount {
	salt := make([]byte, 32)
	rand.Read(salt)
	return BMCAccount{BMC: bmc, Username: username, Salt: hex.EncodeToString(salt)}
}

// Digest stands for a password of the site, so that an edited one is noticed.
func (a BMCAccount) Digest(password string) string {
	mac := hmac.New(sha256.New, []byte(a.Salt))
	mac.Write([]byte(password))
	return hex.EncodeToString(mac.Sum(nil))
}

// Password is what the BMC takes if nobody has changed it there: what the appliance gave it, for as long as the site
// says what that stands for. An owner who edits the site is right.
func (a BMCAccount) Password(site string) string {
	if a.Present != "" && hmac.Equal([]byte(a.Digest(site)), []byte(a.Replaced)) {
		return a.Present
	}
	return site
}

// IsRotating reports whether a replacement was begun and is not at its end.
func (a BMCAccount) IsRotating() bool { return a.Next != "" || a.Former != "" }

// BMCAccounts keeps accounts on DATA. Its methods may be called at the same time.
type BMCAccounts struct {
	Dir   string
	Ready func() bool // DATA is mounted; nil: it is

	mu  sync.Mutex
	all map[string]savedAccount // by the name of its file; nil: not read yet
}

type savedAccount struct {
	BMCAccount
	err error // why the file cannot be read
}

// Lookup is the account of a BMC; false: DATA has none. The error is of a file that cannot be read.
func (s *BMCAccounts) Lookup(bmc, username string) (BMCAccount, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return BMCAccount{}, false, err
	}
	saved, ok := s.all[accountFile(bmc, username)]
	return saved.BMCAccount, ok && saved.err == nil, saved.err
}

// IsEmpty reports whether DATA has no account, or cannot be read yet.
func (s *BMCAccounts) IsEmpty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load() != nil || len(s.all) == 0
}

// Save writes an account. It is on the medium when Save returns without an error, and else as it was.
func (s *BMCAccounts) Save(a BMCAccount) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		return err
	}

	name := accountFile(a.BMC, a.Username)
	if err := s.all[name].err; err != nil {
		return err // the file may be all that is left of a password
	}

	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode account of BMC %s: %w", a.BMC, err)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("save account of BMC %s: %w", a.BMC, err)
	}
	if err := atomicfile.Write(filepath.Join(s.Dir, name), text, 0o600); err != nil {
		return fmt.Errorf("save account of BMC %s: %w", a.BMC, err)
	}

	a.Tries = slices.Clone(a.Tries)
	s.all[name] = savedAccount{BMCAccount: a}
	return nil
}

// errNotMounted says that it is too early to know.
var errNotMounted = errors.New("DATA is not mounted yet")

// load reads DATA once it is there. s.mu is held.
func (s *BMCAccounts) load() error {
	switch {
	case s.all != nil:
		return nil
	case s.Ready != nil && !s.Ready():
		return errNotMounted
	}

	files, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err != nil {
		return err
	}

	s.all = map[string]savedAccount{}
	for _, path := range files {
		saved := savedAccount{}
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &saved.BMCAccount)
		}
		name := filepath.Base(path)
		if err == nil && accountFile(saved.BMC, saved.Username) != name {
			err = errors.New("it is of another account")
		}
		if err != nil {
			saved = savedAccount{err: fmt.Errorf("read account of a BMC: %s: %w", path, err)}
		}
		s.all[name] = saved
	}

	return nil
}

// accountFile is the name of an account's file: neither host nor user is fit for one.
func accountFile(bmc, username string) string {
	sum := sha256.Sum256([]byte(bmc + "\x00" + username))
	return hex.EncodeToString(sum[:16]) + ".json"
}

// NewBMCPassword mints a password for a BMC: 16 characters, which is what IPMI stores (IPMI 2.0, 22.30), with capitals,
// small letters and digits, as BMCs' own rules want. It begins with a letter and has no character twice in a row, none
// that a person mistakes for another, and none that means something to a shell or to YAML.
func NewBMCPassword() string {
	const length = 16
	const capitals, small, digits = "ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnpqrstuvwxyz", "23456789"
	for {
		password := make([]byte, 0, length)
		for len(password) < length {
			c := randomOf(capitals + small + digits)
			if n := len(password); n > 0 && password[n-1] == c || n == 0 && strings.IndexByte(digits, c) >= 0 {
				continue
			}
			password = append(password, c)
		}

		text := string(password)
		if strings.ContainsAny(text, capitals) && strings.ContainsAny(text, small) && strings.ContainsAny(text, digits) {
			return text
		}
	}
}

// randomOf is one of some characters, each as likely as another.
func randomOf(characters string) byte {
	limit := 256 - 256%len(characters)
	for {
		var b [1]byte
		rand.Read(b[:])
		if int(b[0]) < limit {
			return characters[int(b[0])%len(characters)]
		}
	}
}
