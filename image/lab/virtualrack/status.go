package virtualrack

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Status is how a rack stands.
type Status struct {
	Dir      string           `json:"dir"`
	Since    time.Time        `json:"since"` // its supervisor has started
	Machines []Machine        `json:"machines"`
	Clusters []Cluster        `json:"clusters,omitempty"`
	Unknown  []UnknownMachine `json:"strangers,omitempty"` // that the appliance sees or knows, and the site does not name
	Over     bool             `json:"over"`                // nothing more is to come: every node is proven and every cluster ready, or something has failed
	Failed   bool             `json:"failed"`              // with Over
	Dead     bool             `json:"dead,omitempty"`      // with Failed: the appliance itself does not run, and nothing mends that by itself
	Text     string           `json:"text,omitempty"`
	Outside  map[string]int   `json:"outside"` // addresses outside the rack, with the frames that were for them
	Faults   []string         `json:"faults,omitempty"`
}

// Cluster is how one workload cluster of a rack stands.
type Cluster struct {
	Name    string        `json:"name"`
	Phase   string        `json:"phase"` // of its Provisioning, in lower case
	Since   time.Time     `json:"since"` // in this phase
	Percent int           `json:"percent"`
	Nodes   string        `json:"nodes,omitempty"` // installed of all, 2/3
	Why     string        `json:"why,omitempty"`   // what it does or waits for, in the appliance's words
	Error   string        `json:"error,omitempty"`
	Members []ClusterNode `json:"members,omitempty"`
}

// ClusterNode is one node of a cluster.
type ClusterNode struct {
	Name   string   `json:"name"` // in the cluster
	Server string   `json:"server,omitempty"`
	Roles  []string `json:"roles"` // master, worker
	Phase  string   `json:"phase"` // in the appliance's words
	Why    string   `json:"why,omitempty"`
}

func (m ClusterNode) String() string {
	text := fmt.Sprintf(
		"%-12s %-12s %-14s %s", m.Name, cmp.Or(m.Server, "no server"), strings.Join(m.Roles, ", "), m.Phase,
	)
	if m.Why != "" {
		text += ": " + m.Why
	}
	return text
}

// Machine is how one machine of a rack stands.
type Machine struct {
	Name    string     `json:"name"`
	On      bool       `json:"on"`
	Paused  bool       `json:"paused,omitempty"` // its time stands still
	Phase   string     `json:"phase"`
	Since   time.Time  `json:"since"` // in this phase
	Percent int        `json:"percent"`
	Why     string     `json:"why,omitempty"`  // what it does or waits for, in the appliance's words
	Next    string     `json:"next,omitempty"` // what a person can do
	Error   string     `json:"error,omitempty"`
	Last    string     `json:"last,omitempty"`  // line of its serial console
	CPU     float64    `json:"cpu"`             // seconds
	Share   float64    `json:"share,omitempty"` // of this computer's processors, that it is throttled to; 0: it is free
	Cables  []Cable    `json:"cables"`
	Boot    string     `json:"boot,omitempty"`    // device that its BMC was told last
	Command string     `json:"command,omitempty"` // QEMU's, to be pasted into a shell in Dir
	Stages  []Duration `json:"stages,omitempty"`
}

// UnknownMachine is what the appliance says of a machine that is not one of the rack's under its name: a
// MAC address on the wire that no node of the site has, or a host of another name.
type UnknownMachine struct {
	Name    string `json:"name"`              // MAC address, or name of the host
	Machine string `json:"machine,omitempty"` // of the rack whose card has that address
	Why     string `json:"why"`
	Next    string `json:"next,omitempty"` // what a person can do
}

func (x UnknownMachine) String() string {
	text := x.Name
	if x.Machine != "" {
		text += " (of " + x.Machine + ")"
	}

	if text += ": " + x.Why; x.Next != "" {
		text += "; " + x.Next
	}

	return text
}

// Cable is a NIC's port of the switch.
type Cable struct {
	Network string        `json:"network"`
	Fault   vswitch.Fault `json:"fault"`
	vswitch.Stats
}

// Duration is how long a stage of the appliance took, as it says itself.
type Duration struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}
