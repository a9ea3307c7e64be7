package agentgate

import (
	"encoding/json"
	"net/http"

	"firstlight.dev/firstlight/assets/hostkey"
	"firstlight.dev/firstlight/assets/inspection"
)

// WriteRequest is what the ramdisk asks right before it writes to a disk (overlays/ramdisk, firstlight_writer.py):
// which disk, and what it holds at this moment.
type WriteRequest struct {
	Disk struct {
		Name   string `json:"name"`
		Serial string `json:"serial"`
		WWN    string `json:"wwn"`
	} `json:"disk"`
	Holds inspection.Disk `json:"holds"`
	// HostKey is the public half of the SSH host key that the ramdisk has made for the system it is about to write, as
	// in authorized_keys; "": its config drive has no place for one.
	HostKey string `json:"hostKey"`
	// Bytes is the size of a disk that is to be erased, and Others how many more the server has (firstlight_eraser.py).
	Bytes  int64 `json:"bytes"`
	Others int   `json:"others"`
}

// answerWrite says whether a node's disk may be written to. Anything but 204 means that it may not: with 503 the
// ramdisk asks again.
func (g *Gate) answerWrite(w http.ResponseWriter, r *http.Request, v View, body []byte) *Refusal {
	var asked WriteRequest
	if err := json.Unmarshal(body, &asked); err != nil || asked.Disk.Name == "" {
		return &Refusal{ReasonBody, "a question about no disk"}
	}
	if asked.HostKey != "" {
		key, err := hostkey.Parse(asked.HostKey)
		if err != nil {
			return &Refusal{ReasonBody, err.Error()}
		}
		asked.HostKey = key
	}
	if !v.Current {
		return &Refusal{Reason: ReasonNotYet}
	}

	why, err := g.MayWrite(r.Context(), v.Boot.Host, asked)
	switch {
	case err != nil:
		g.Log.Warn("agent: it is not known yet whether its disk may be written to", "host", v.Boot.Host, "error", err)
		return &Refusal{Reason: ReasonNotYet}
	case why != "":
		return &Refusal{ReasonDisk, why}
	}

	g.Log.Info("agent: its disk may be written to", "host", v.Boot.Host, "disk", clean(asked.Disk.Name))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
