package stickupdate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/stick"
)

// FileName is where the last attempt to update is recorded, on DATA.
const FileName = "update.json"

// Attempt is the last update that was begun. What became of it is decided by what the stick starts, not by the record.
type Attempt struct {
	From    string     `json:"from"` // version
	To      string     `json:"to"`   // version
	Slot    stick.Slot `json:"slot"` // that it was written to
	Begun   time.Time  `json:"begun"`
	BootID  string     `json:"bootID"`            // of the boot that wrote it
	Written bool       `json:"written,omitempty"` // all of it, and the boot loader shall try it
	Tried   bool       `json:"tried,omitempty"`   // the daemon of the new version ran
	Reached string     `json:"reached,omitempty"` // what the appliance last waited for on trial, in a sentence

	SignedBy string `json:"signedBy,omitempty"` // ID of the key; "" if the site knows none
	Unsigned string `json:"unsigned,omitempty"` // why no signature held, in a sentence, where it was taken all the same
}

// Load reads the record in a folder; a zero record if there is none.
func Load(dir string) (Attempt, error) {
	var r Attempt
	text, err := os.ReadFile(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read record of the last update: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("read record of the last update %s: %w", filepath.Join(dir, FileName), err)
	}
	return r, nil
}

// Save writes the record into a folder.
func (r Attempt) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write record of the update: %w", err)
	}
	return atomicfile.Write(filepath.Join(dir, FileName), append(text, '\n'), 0o600)
}

// Outcome is what became of an update.
type Outcome string

const (
	None     Outcome = ""          // there was none
	Cut      Outcome = "cut"       // it ended before the slot was whole; the other slot was never in danger
	Writing  Outcome = "writing"   // now
	Waiting  Outcome = "waiting"   // for the next start, which tries it
	Refused  Outcome = "refused"   // the boot loader could not take note, so it did not try it
	OnTrial  Outcome = "on-trial"  // it runs, and is kept when the appliance is ready
	Kept     Outcome = "kept"      // it is what the stick starts
	FellBack Outcome = "fell-back" // it was tried and did not come to Ready
)

// Judge says what became of the update of a record, by the boot loader's memory and by what runs now.
func Judge(r Attempt, e stick.Environment, running stick.Slot, bootID string) Outcome {
	switch {
	case r.Slot == "":
		return None
	case e.Try == r.Slot && bootID == r.BootID:
		return Waiting
	case e.Try == r.Slot:
		return Refused
	case e.Slot == r.Slot:
		return Kept
	case running == r.Slot:
		return OnTrial
	case r.Written || r.Tried:
		return FellBack
	}
	return Cut
}

// Explain says in a sentence what became of the update, and that it was taken unsigned if it was; "" if there was none.
func (r Attempt) Explain(o Outcome) string {
	text := r.explainOutcome(o)
	if text != "" && r.Unsigned != "" {
		text += "; it was taken with --unsigned: " + r.Unsigned
	}
	return text
}

func (r Attempt) explainOutcome(o Outcome) string {
	switch o {
	case Cut:
		return fmt.Sprintf("the update to %s was cut while it was written; nothing has changed: run it again", r.To)
	case Writing:
		return fmt.Sprintf("version %s is being written to slot %s", r.To, r.Slot)
	case Waiting:
		return fmt.Sprintf("version %s is written to slot %s and is tried at the next start: systemctl reboot", r.To, r.Slot)
	case Refused:
		return fmt.Sprintf("version %s was not tried: this machine's firmware does not let the boot loader write to the "+
			"stick; write the stick with `firstlight flash`, which keeps DATA", r.To)
	case OnTrial:
		return fmt.Sprintf("version %s is on trial in slot %s: it is kept when the appliance is ready, else %s is "+
			"started again", r.To, r.Slot, r.From)
	case Kept:
		return fmt.Sprintf("version %s is kept; %s was before it", r.To, r.From)
	case FellBack:
		reached := "it did not come as far as the daemon"
		if r.Reached != "" {
			reached = "it had come to: " + r.Reached
		}
		return fmt.Sprintf("version %s was tried, was not ready in time, and %s runs again; %s", r.To, r.From, reached)
	}
	return ""
}
