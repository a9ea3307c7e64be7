package sitesource

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/status"
)

// record is what is known of the source, over restarts.
type record struct {
	Source  string    `json:"source"`            // its address and folder; another source begins again
	Applied string    `json:"applied,omitempty"` // revision whose site document holds
	At      time.Time `json:"at,omitzero"`       // when it was applied
	Changes []string  `json:"changes,omitempty"` // what it changed in the site
	Objects string    `json:"objects,omitempty"` // revision whose objects are in the API

	Offered string    `json:"offered,omitempty"` // newest revision there, if it is not applied
	Refusal string    `json:"refusal,omitempty"` // why, if a person must change it
	Waiting string    `json:"waiting,omitempty"` // why, if it is tried again
	Lost    string    `json:"lost,omitempty"`    // why the source cannot be read; "" if it can
	Behind  time.Time `json:"behind,omitzero"`   // since when one of these is so
}

// readRecord reads one; the zero record if there is none of this source.
func readRecord(path, source string) (record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{Source: source}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read record of the source: %w", err)
	}

	var r record
	if json.Unmarshal(text, &r) != nil || r.Source != source {
		return record{Source: source}, nil
	}
	return r, nil
}

// save writes the record that follows from was, unless that one was forgotten meanwhile.
func (r record) save(path string, was record) (isSaved bool, err error) {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return false, fmt.Errorf("encode record of the source: %w", err)
	}
	unlock, err := atomicfile.LockDir(filepath.Dir(path))
	if err != nil {
		return false, fmt.Errorf("save record of the source: %w", err)
	}
	defer unlock()
	if have, err := readRecord(path, r.Source); err != nil || !reflect.DeepEqual(have, was) {
		return false, err
	}
	if err := atomicfile.WriteChanged(path, append(text, '\n'), 0o600); err != nil {
		return false, fmt.Errorf("save record of the source: %w", err)
	}
	return true, nil
}

// Forget removes the record of what was applied: the next revision is taken wherever it comes from. A step that began
// before is done again.
func Forget(path string) error {
	unlock, err := atomicfile.LockDir(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("forget the source: %w", err)
	}
	defer unlock()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the source: %w", err)
	}
	return nil
}

// isCurrent reports whether all of a revision is applied.
func (r record) isCurrent(revision string) bool {
	return r.Applied == revision && r.Objects == revision
}

// outcome is what came of asking the source once; the zero outcome is that all of it is applied.
type outcome struct {
	offered string // revision that is not applied, or not all of it
	refusal string // why, if a person must change it
	waiting string // why, if it is tried again
	lost    string // why the source could not be read; nothing else is known then
}

// after is the record after an outcome at a time.
func (r record) after(o outcome, now time.Time) record {
	r.Lost = o.lost
	if o.lost == "" {
		r.Offered, r.Refusal, r.Waiting = o.offered, o.refusal, o.waiting
	}
	switch isBehind := r.Lost != "" || r.Offered != ""; {
	case !isBehind:
		r.Behind = time.Time{}
	case r.Behind.IsZero():
		r.Behind = now.UTC().Truncate(time.Second)
	}
	return r
}

// status is the record as people and programs see it.
func (r record) status() *status.Source {
	s := &status.Source{
		From:     r.Source,
		Revision: r.Applied,
		Applied:  r.At,
		Changes:  r.Changes,
		Offered:  r.Offered,
		Behind:   r.Behind,
		Refused:  r.Refusal,
		Error:    cmp.Or(r.Lost, r.Waiting),
	}
	switch {
	case r.Refusal != "":
		s.State = status.SourceRefused
	case r.Lost != "":
		s.State = status.SourceLost
	case r.Offered != "" || r.Applied == "":
		s.State = status.SourceWorking
	default:
		s.State = status.SourceCurrent
	}
	return s
}
