package discovery

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
)

// What is kept of BMCs: machines may claim any address.
const (
	maxBMCs = 1024
	maxAge  = 72 * time.Hour // after the last login
)

// saved is the file on DATA. It holds passwords, among the appliance's other secrets.
type saved struct {
	Salt     string           `json:"salt"`
	Machines []Machine        `json:"machines"`
	Tries    map[string]Tries `json:"tries"`
}

// readSaved reads the file. One that is torn is an error: without it nobody knows what was tried. It is put aside, and
// tries begin an hour later.
func readSaved(path string, now time.Time) (*saved, error) {
	s := &saved{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		s = &saved{}
		err = errors.Join(fmt.Errorf("read what was discovered: %w", err), os.Rename(path, path+".torn"))
	}

	if s.Salt == "" {
		salt := make([]byte, 32)
		rand.Read(salt)
		s.Salt = hex.EncodeToString(salt)
	}
	if s.Tries == nil {
		s.Tries = map[string]Tries{}
	}

	s.tidy(now)
	return s, err
}

func (s *saved) write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode what was discovered: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep what was discovered: %w", err)
	}
	return atomicfile.Write(path, text, 0o600)
}

// tidy forgets BMCs that were not asked for long, and brings tries that are dated later than now back to now: a clock
// that was set back lifts no limit and extends none.
func (s *saved) tidy(now time.Time) {
	for bmc, t := range s.Tries {
		t.At = slices.Clone(t.At) // a View may have it
		for i, at := range t.At {
			if at.After(now) {
				t.At[i] = now
			}
		}
		s.Tries[bmc] = t
		if n := len(t.At); n == 0 || now.Sub(t.At[n-1]) > maxAge {
			delete(s.Tries, bmc)
		}
	}
}

// keys stand for logins: a keyed digest, so that the file names no password that was refused.
func (s *saved) keys(logins []site.Login) (keys []string) {
	for _, l := range logins {
		mac := hmac.New(sha256.New, []byte(s.Salt))
		fmt.Fprintf(mac, "%q %q", l.Username, l.Password.Reveal())
		keys = append(keys, hex.EncodeToString(mac.Sum(nil)))
	}
	return keys
}

// begin notes a try before it is made, so that a cut counts as one. It reports whether there is room for one.
func (s *saved) begin(bmc string, now time.Time) bool {
	t, had := s.Tries[bmc]
	if !had && len(s.Tries) >= maxBMCs && !s.forgetSilent(now) {
		return false
	}
	t.At = append(slices.Clone(t.At[max(0, len(t.At)-triesPerHour+1):]), now)
	t.Off, t.Silent = false, true // until it has answered
	s.Tries[bmc] = t
	return true
}

// forgetSilent makes room where machines have claimed addresses at which nothing is: one that was silent and may be
// asked again by now is forgotten, without the loss of a bound. It reports whether there was one.
func (s *saved) forgetSilent(now time.Time) bool {
	for bmc, t := range s.Tries {
		if t.Silent && len(t.Refused) == 0 && now.Sub(t.At[len(t.At)-1]) > tryWindow {
			delete(s.Tries, bmc)
			return true
		}
	}
	return false
}

// put keeps a machine in place of what was kept of it, also as long as only its BMC was known.
func (s *saved) put(m Machine) {
	s.Machines = slices.DeleteFunc(slices.Clone(s.Machines), func(o Machine) bool { // a View may have them
		return o.MAC == "" && m.MAC != "" && o.BMC == m.BMC && !o.Approved
	})
	if i := s.find(m.Key()); i >= 0 {
		s.Machines[i] = m
		return
	}
	s.Machines = append(s.Machines, m)
}

// isTaken reports whether another machine has the name of m.
func (s *saved) isTaken(m Machine) bool {
	return slices.ContainsFunc(s.Machines, func(o Machine) bool { return o.Key() != m.Key() && o.Name == m.Name })
}

func (s *saved) find(key string) int {
	return slices.IndexFunc(s.Machines, func(m Machine) bool { return m.Key() == key })
}
