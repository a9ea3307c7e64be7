package status

import "time"

// Source is how the source stands that the site has the appliance follow.
type Source struct {
	From     string      `json:"from"` // address and folder, without credentials
	State    SourceState `json:"state"`
	Revision string      `json:"revision,omitempty"` // what was applied last: BRANCH@sha1:COMMIT, or sha256:DIGEST of a bucket
	Applied  time.Time   `json:"applied,omitzero"`
	Changes  []string    `json:"changes,omitempty"` // what it changed in the site, without values
	Offered  string      `json:"offered,omitempty"` // newest revision of the source, if it is not applied
	Behind   time.Time   `json:"behind,omitzero"`   // since when the appliance is not as the source says, or does not know
	Refused  string      `json:"refused,omitempty"` // why Offered is not applied, and what to do
	Error    string      `json:"error,omitempty"`   // why the source cannot be read
}

// SourceState is one word for a source.
type SourceState string

// The states of a source.
const (
	SourceCurrent SourceState = "current" // all that it has is applied
	SourceWorking SourceState = "working" // it is being read or applied
	SourceRefused SourceState = "refused" // its newest revision is not applied, and a person must change it
	SourceLost    SourceState = "lost"    // it cannot be read; the appliance continues as it is
)
