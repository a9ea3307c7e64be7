package kud

import "encoding/json"

// ReadDirty reads artifacts/removed.json (docs/kud.md): the nodes by label that a run took out of the
// cluster and could not clear, each with why. An installer that does not write it cleared all.
func ReadDirty(text []byte) map[string]string {
	var r struct {
		Uncleared map[string]string `json:"uncleared"`
	}
	if json.Unmarshal(text, &r) != nil {
		return nil
	}
	return r.Uncleared
}
