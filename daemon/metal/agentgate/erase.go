package agentgate

import (
	"encoding/json"
	"net/http"

	"firstlight.dev/firstlight/assets/inspection"
)

// EraseReport is what the ramdisk says of a disk that it has erased (overlays/ramdisk, firstlight_eraser.py).
type EraseReport struct {
	Disk struct {
		Name   string `json:"name"`
		Serial string `json:"serial"`
		WWN    string `json:"wwn"`
	} `json:"disk"`
	Holds  inspection.Disk `json:"holds"` // what it holds now
	Method string          `json:"method"`
	// Compared is how many blocks of it held data before; each reads as something else now (firstlight_samples.py).
	Compared int `json:"compared"`
	// Unattached is how many namespaces of its drive no system sees, so that they were not erased (NVMe); -1: not known.
	Unattached int `json:"unattached"`
}

// answerErase says whether a disk of a node may be erased, as answerWrite does.
func (g *Gate) answerErase(w http.ResponseWriter, r *http.Request, v View, body []byte) *Refusal {
	var asked WriteRequest
	if err := json.Unmarshal(body, &asked); err != nil || asked.Disk.Name == "" {
		return &Refusal{ReasonBody, "a question about no disk"}
	}
	if !v.Current {
		return &Refusal{Reason: ReasonNotYet}
	}

	why, err := g.MayErase(r.Context(), v.Boot.Host, asked)
	return g.answerErasure(w, v, "agent: its disk may be erased", asked.Disk.Name, why, err)
}

// answerErased takes the word of a ramdisk that it has erased a disk.
func (g *Gate) answerErased(w http.ResponseWriter, r *http.Request, v View, body []byte) *Refusal {
	var done EraseReport
	if err := json.Unmarshal(body, &done); err != nil || done.Disk.Name == "" {
		return &Refusal{ReasonBody, "a report of no disk"}
	}
	if !v.Current {
		return &Refusal{Reason: ReasonNotYet}
	}

	done.Method = clean(done.Method)
	why, err := g.NoteErased(r.Context(), v.Boot.Host, done)
	return g.answerErasure(w, v, "agent: its disk was erased", done.Disk.Name, why, err)
}

func (g *Gate) answerErasure(w http.ResponseWriter, v View, what, disk, why string, err error) *Refusal {
	switch {
	case err != nil:
		g.Log.Warn("agent: it is not known yet whether its disk is to be erased", "host", v.Boot.Host, "error", err)
		return &Refusal{Reason: ReasonNotYet}
	case why != "":
		return &Refusal{ReasonDisk, why}
	}

	g.Log.Info(what, "host", v.Boot.Host, "disk", clean(disk))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
