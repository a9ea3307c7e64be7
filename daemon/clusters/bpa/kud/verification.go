package kud

import (
	"encoding/json"
	"time"
)

// Verification is what an installer saw when it tried the cluster, artifacts/verification.json
// (docs/kud.md). An installer need not write it.
type Verification struct {
	Time   time.Time `json:"time"`
	Nodes  []string  `json:"nodes"` // labels of those that were tried
	Checks []Check   `json:"checks"`
}

// Check is one thing that was tried.
type Check struct {
	Name    string `json:"name"`
	Passed  bool   `json:"passed"`
	Message string `json:"message,omitempty"` // what was seen; why it did not pass
}

// ReadVerification reads the file; nil if it is not there, says nothing, or cannot be read.
func ReadVerification(text []byte) *Verification {
	var v Verification
	if json.Unmarshal(text, &v) != nil || v.Time.IsZero() || len(v.Checks) == 0 {
		return nil
	}
	return &v
}
