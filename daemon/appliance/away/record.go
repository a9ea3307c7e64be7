package away

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"filippo.io/age"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
)

const (
	recordFile    = stick.DataDir + "/away.json"
	recipientFile = stick.DataDir + "/away.recipient" // public half of a key that was printed once
)

// Record is how the last away copy went.
type Record struct {
	Made  time.Time `json:"made"`            // the last whole one; zero: none
	To    string    `json:"to"`              // where that went
	Tried time.Time `json:"tried,omitzero"`  // the last try that failed since
	Error string    `json:"error,omitempty"` // of that try
}

// Record reads how it went; one that is torn is as none.
func (p Place) Record() (r Record) {
	text, err := os.ReadFile(p.path(recordFile))
	if err != nil || json.Unmarshal(text, &r) != nil {
		return Record{}
	}
	return r
}

// Save keeps how it went.
func (p Place) Save(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(p.path(recordFile), text, 0o600)
}

// retryAfter is how long a place that could not be reached is left alone.
const retryAfter = 10 * time.Minute

// IsDue reports whether the schedule wants a copy now. A clock that was set back makes none wait for longer.
func (r Record) IsDue(now time.Time, every time.Duration) bool {
	if !r.Tried.IsZero() && now.Sub(r.Tried) >= 0 && now.Sub(r.Tried) < min(retryAfter, every) {
		return false
	}
	return r.Made.IsZero() || now.Sub(r.Made) >= every || r.Made.After(now)
}

// byHand is how old a copy may become that no schedule renews.
const byHand = 30 * 24 * time.Hour

// Note is what a person should know: the copy is too old, or there is none although the site wants some; "" if nothing.
// every is the schedule's; 0: there is none.
func (r Record) Note(now time.Time, every time.Duration) string {
	limit, why := byHand, "; firstlightd backup makes a new one"
	if every > 0 {
		limit, why = 2*every, ""
	}
	if r.Error != "" {
		why = "; the last try failed: " + r.Error
	}

	switch age := now.Sub(r.Made); {
	case r.Made.IsZero() && every > 0 && r.Error != "":
		return "There is no away copy yet" + why
	case !r.Made.IsZero() && age > limit:
		return fmt.Sprintf("The last away copy is %s old%s", describeAge(age), why)
	}
	return ""
}

// describeAge rounds to what matters: hours at first, then days.
func describeAge(age time.Duration) string {
	if hours := int(age.Hours()); hours < 48 {
		return fmt.Sprintf("%d h", hours)
	}
	return fmt.Sprintf("%d days", int(age.Hours()/24))
}

// ParseRecipients reads the public halves of recovery keys.
func ParseRecipients(keys []string) (all []age.Recipient, err error) {
	for _, key := range keys {
		r, err := age.ParseX25519Recipient(key)
		if err != nil {
			return nil, fmt.Errorf("%q is not the public half of a recovery key (age1…): %w", key, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Recipient is the public half of the recovery key that was printed when this appliance made its first copy; "" if it
// never did.
func (p Place) Recipient() (string, error) {
	text, err := os.ReadFile(p.path(recipientFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// SaveRecipient keeps the public half of a recovery key that somebody has seen.
func (p Place) SaveRecipient(key string) error {
	return atomicfile.Write(p.path(recipientFile), []byte(key+"\n"), 0o600)
}
