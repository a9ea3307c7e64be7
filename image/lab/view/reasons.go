// Package view shows a rack to people: what it is, does and waits for, as it changes.
package view

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"firstlight.dev/firstlight/image/lab/virtualrack"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Reasons are what a rack does and waits for, in words.
type Reasons struct {
	Machines []machineReason              `json:"machines"`
	Unknown  []virtualrack.UnknownMachine `json:"strangers,omitempty"` // machines that the site does not name
	Clusters []clusterReason              `json:"clusters"`
}

type machineReason struct {
	virtualrack.Machine
	Text string `json:"text"`
}

type clusterReason struct {
	virtualrack.Cluster
	Text string `json:"text"`
}

// ListReasons lists those of the machine that is named, or of all machines and clusters.
func ListReasons(s virtualrack.Status, name []string, now time.Time) Reasons {
	r := Reasons{Machines: []machineReason{}, Clusters: []clusterReason{}}
	for _, m := range s.Machines {
		if len(name) == 0 || name[0] == m.Name {
			r.Machines = append(r.Machines, machineReason{m, describeMachine(m, now)})
		}
	}

	if len(name) > 0 {
		return r
	}

	r.Unknown = s.Unknown
	for _, c := range s.Clusters {
		text := fmt.Sprintf(
			"cluster %s: %s for %s; %s", c.Name, c.Phase, now.Sub(c.Since).Round(time.Second), cmp.Or(c.Error, c.Why),
		)
		r.Clusters = append(r.Clusters, clusterReason{c, text})
	}

	return r
}

// Write writes a sentence a line.
func (r Reasons) Write(w io.Writer) error {
	for _, m := range r.Machines {
		if _, err := fmt.Fprintln(w, m.Text); err != nil {
			return err
		}
	}

	for _, x := range r.Unknown {
		if _, err := fmt.Fprintln(w, x); err != nil {
			return err
		}
	}

	for _, c := range r.Clusters {
		if _, err := fmt.Fprintln(w, c.Text); err != nil {
			return err
		}
	}

	return nil
}

// describeMachine is a machine in words: the appliance's, or what this side of the wire sees.
func describeMachine(m virtualrack.Machine, now time.Time) string {
	text := fmt.Sprintf("%s: %s for %s", m.Name, m.Phase, now.Sub(m.Since).Round(time.Second))
	switch {
	case m.Why != "" || m.Error != "":
		text += "; " + cmp.Or(m.Why, m.Error)
	case m.Phase == virtualrack.PhaseOff || m.Phase == virtualrack.PhaseWaiting && !m.On:
		text += "; it has no power, and the appliance has not spoken of it"
	case m.Last != "":
		text += "; the appliance has not spoken of it; its console says: " + m.Last
	}

	if m.Next != "" {
		text += "; " + m.Next
	}

	if m.Share > 0 {
		text += fmt.Sprintf("; it is throttled to %v processors of this computer", m.Share)
	}

	for _, cable := range m.Cables {
		if cable.Fault != (vswitch.Fault{}) {
			text += fmt.Sprintf("; its cable to %s %s", cable.Network, cable.Fault)
		}
	}

	return text
}
