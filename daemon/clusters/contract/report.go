package contract

import (
	"encoding/json"
	"time"
)

// Progress is what an installer may say of itself while it runs, FileProgress.
type Progress struct {
	Percent int               `json:"percent"`
	Doing   string            `json:"doing"`
	Nodes   map[string]string `json:"nodes"`           // label to what it does or waits for
	Ready   []string          `json:"ready,omitempty"` // labels of the nodes that are Ready in the cluster
}

// ReadProgress reads FileProgress; what is torn or out of bounds says nothing.
func ReadProgress(text []byte) Progress {
	var p Progress
	if json.Unmarshal(text, &p) != nil {
		return Progress{}
	}

	p.Percent = min(max(p.Percent, 0), 100)
	return p
}

// Verification is what an installer saw when it tried the cluster, FileVerification. An installer need not write
// it, and may write more.
type Verification struct {
	Time   time.Time `json:"time"`
	Nodes  []string  `json:"nodes"`  // labels of those that were tried
	Passed bool      `json:"passed"` // all checks did; readers ask the checks
	Checks []Check   `json:"checks"`
}

// Check is one thing that was tried.
type Check struct {
	Name    string `json:"name"`
	Passed  bool   `json:"passed"`
	Message string `json:"message,omitempty"` // what was seen; why it did not pass
}

// ReadVerification reads FileVerification; nil if it is not there, says nothing, or cannot be read.
func ReadVerification(text []byte) *Verification {
	var v Verification
	if json.Unmarshal(text, &v) != nil || v.Time.IsZero() || len(v.Checks) == 0 {
		return nil
	}
	return &v
}

// Removed is what became of the nodes that a run took out of the cluster, FileRemoved. An installer that does not
// write it cleared all.
type Removed struct {
	Dirty map[string]string `json:"uncleared"` // label to why, of nodes that could not be cleared
}

// ReadRemoved reads FileRemoved; a file that is not there or cannot be read names no node.
func ReadRemoved(text []byte) Removed {
	var r Removed
	if json.Unmarshal(text, &r) != nil {
		return Removed{}
	}
	return r
}
