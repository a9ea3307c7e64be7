package status

import (
	"cmp"
	"regexp"
	"strings"
	"time"
)

// UnknownMachine is a machine that neither the site nor a host names, as its own ramdisk described it, or of which only
// the BMC is known, as that answered. Nothing of it is trusted; all of it is bounded and printable.
type UnknownMachine struct {
	MAC    string        `json:"mac"` // that it booted from, which the appliance saw itself; "": it did not boot
	Time   time.Time     `json:"time"`
	Model  string        `json:"model,omitempty"` // manufacturer and product
	Serial string        `json:"serial,omitempty"`
	CPUs   int           `json:"cpus,omitempty"` // threads
	CPU    string        `json:"cpu,omitempty"`  // its model
	Arch   string        `json:"arch,omitempty"`
	Memory int64         `json:"memory,omitempty"` // bytes
	BMC    string        `json:"bmc,omitempty"`    // address, as the machine's own interface to it says
	BMCURL string        `json:"bmcURL,omitempty"` // as bmc.address of site.yaml has it; "": by IPMI, at that address
	Found  string        `json:"found,omitempty"`  // why a BMC is there, where the machine did not say it
	Mode   string        `json:"bootMode,omitempty"`
	Disks  []UnknownDisk `json:"disks,omitempty"`
	NICs   []UnknownNIC  `json:"nics,omitempty"`

	// By the site's policy (discover): the name that it gets as a node, why it is none yet and what to do, and whether it
	// awaits approval. Empty without a policy.
	Node   string `json:"node,omitempty"`
	Why    string `json:"why,omitempty"`
	Fix    string `json:"fix,omitempty"`
	Awaits bool   `json:"awaitsApproval,omitempty"`
}

// Key tells unknown machines apart: the MAC, and the BMC's address of one that did not boot.
func (u UnknownMachine) Key() string { return cmp.Or(u.MAC, u.BMC) }

// Approval names the machine as it is shown, to approve it and no other one that gets its name meanwhile: NODE/MAC/BMC,
// without what is not known of it. name is that of its node.
func (u UnknownMachine) Approval(name string) string {
	all := []string{name}
	for _, part := range []string{u.MAC, u.BMC} {
		if part != "" {
			all = append(all, part)
		}
	}
	return strings.Join(all, "/")
}

// BMCAddress is where its BMC is, as bmc.address of site.yaml has it: BMCURL, or by IPMI at BMC.
func (u UnknownMachine) BMCAddress() string {
	switch {
	case u.BMCURL != "":
		return u.BMCURL
	case strings.Contains(u.BMC, ":"): // IPv6
		return "ipmi://[" + u.BMC + "]"
	}
	return "ipmi://" + u.BMC
}

// UnknownDisk is one disk of an unknown machine.
type UnknownDisk struct {
	Name   string `json:"name"`
	Model  string `json:"model,omitempty"`
	Serial string `json:"serial,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// UnknownNIC is one NIC of an unknown machine.
type UnknownNIC struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	Link bool   `json:"link"`
}

// harmless are the characters of names, models and serial numbers: none that YAML, a shell or a terminal acts on.
var harmless = regexp.MustCompile(`[^A-Za-z0-9 ._:/()@+-]+`)

// maxWord is how long a word of an UnknownMachine may be.
const maxWord = 64

// Word is what is kept of a text that a machine or its BMC says.
func Word(s string) string {
	s = strings.Join(strings.Fields(harmless.ReplaceAllString(s[:min(len(s), 4*maxWord)], " ")), " ")
	return strings.TrimSpace(s[:min(len(s), maxWord)])
}
