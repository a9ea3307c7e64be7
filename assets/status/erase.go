package status

import (
	"fmt"
	"strings"
	"time"
)

// Erase is what `firstlightd erase` is answered.
type Erase struct {
	Node string `json:"node"`
	// Host is the UID of the node's BareMetalHost, and Inspected when the inspection ended that saw these disks: another
	// server may have the same name, and disks of the same names.
	Host      string    `json:"host,omitempty"`
	Inspected time.Time `json:"inspected,omitzero"`

	Disks []EraseDisk `json:"disks"`          // that are erased, or would be
	Kept  []EraseDisk `json:"kept,omitempty"` // all others of the server

	Word  string `json:"word,omitempty"` // confirms all of the above, and nothing else; see NewWord
	Begun bool   `json:"begun"`          // false: it was not confirmed
	// Cancelled is whether it was taken back before anything was written; nothing else is said then.
	Cancelled bool `json:"cancelled,omitempty"`
}

// EraseDisk is one disk of a server.
type EraseDisk struct {
	Name      string   `json:"name"`
	Serial    string   `json:"serial,omitempty"`
	WWN       string   `json:"wwn,omitempty"`
	Bytes     int64    `json:"bytes"`
	Holds     []string `json:"holds,omitempty"`     // what the inspection saw on it; none on a blank disk, or one that is kept
	Installed string   `json:"installed,omitempty"` // which node of which site is on it
}

// NewWord is the word by which an erasure is confirmed: it is about the host, the inspection and the disks.
func (e Erase) NewWord() string {
	return newWord(e.Host, e.Inspected.UTC().Format(time.RFC3339Nano), strings.Join(e.Lines(), "\n"))
}

// Lines say of each disk of the server what becomes of it.
func (e Erase) Lines() (lines []string) {
	for _, d := range e.Disks {
		lines = append(lines, "Erased: "+d.Text())
	}
	for _, d := range e.Kept {
		lines = append(lines, "Left alone: "+d.Text())
	}
	return lines
}

// Text is the disks that are erased, for people.
func (e Erase) Text() string {
	var all []string
	for _, d := range e.Disks {
		all = append(all, d.Text())
	}
	return strings.Join(all, "; ")
}

// Text is a disk for people.
func (d EraseDisk) Text() string {
	text := fmt.Sprintf("%s %d GB", d.Name, d.Bytes/1e9)
	if d.Serial != "" {
		text += " serialNumber " + d.Serial
	}
	if d.WWN != "" {
		text += " wwn " + d.WWN
	}
	if len(d.Holds) > 0 {
		text += ", holds " + strings.Join(d.Holds, ", ")
	}
	if d.Installed != "" {
		text += ", installed as " + d.Installed
	}
	return text
}
