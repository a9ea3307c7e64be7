// Package discovery makes nodes of machines that boot from the network and that the site does not name, as far as the
// site's policy allows (discover in site.yaml), and of servers whose BMC leased an address. A machine that it accepts
// is a node of the site from then on, for everything else on the appliance; one that it does not accept stays an
// unknown machine, with the reason.
//
// What a machine says of itself is a claim. It decides which BMC is asked; whether that BMC is its own, the BMC's answer
// must not contradict. What is decided is in Decide, a pure function; Finder does it.
package discovery

import (
	"fmt"
	"net/netip"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// Reason says why a machine is not a node, for code; people get the sentence of Finding.Text.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonBMCNone      Reason = "no-bmc"            // it names no BMC
	ReasonBMCOutside   Reason = "bmc-outside"       // its BMC is in no network where the site has BMCs
	ReasonBMCKnown     Reason = "bmc-known"         // its BMC is that of a node
	ReasonBMCShared    Reason = "bmc-shared"        // another machine names the same BMC
	ReasonSerialNone   Reason = "no-serial"         // it has no serial number to be named by
	ReasonSerialShared Reason = "serial-shared"     // another machine or node has that serial number
	ReasonNameTaken    Reason = "name-taken"        // the name that it would get is another's
	ReasonFull         Reason = "full"              // there are as many as the policy allows
	ReasonRefused      Reason = "logins-refused"    // its BMC refused every login
	ReasonTrying       Reason = "trying"            // its BMC is asked now
	ReasonWaiting      Reason = "waiting"           // its BMC is asked again later
	ReasonOff          Reason = "bmc-says-off"      // the machine runs, and that BMC says that its server is off
	ReasonApproval     Reason = "awaiting-approval" // all is well, and a person must say so
	ReasonNode         Reason = "node"              // it is one
)

// Known is a node or host that must not get a second machine.
type Known struct {
	Name   string
	MACs   []string // lower case
	BMC    string   // address or host name; "": none
	Serial string   // "": not known
}

// Machine is a machine that the policy may accept, as it is kept on DATA.
type Machine struct {
	status.UnknownMachine
	Name     site.Name `json:"name"`
	Approved bool      `json:"approved"` // it is a node
	Username string    `json:"username"` // that its BMC took
	Password string    `json:"password"`
}

// isUnasked reports whether of a machine no more is known than where its BMC is.
func (m Machine) isUnasked() bool { return m.MAC == "" && m.Username == "" }

// Lease is an address that the appliance gave on the network of BMCs.
type Lease struct {
	Addr netip.Addr
	MAC  string // lower case
}

// LeasedBMC is a BMC that has a lease.
type LeasedBMC struct {
	Lease
	Presence bmc.Presence
}

// machine is the server of a BMC that was told no login yet.
func (b LeasedBMC) machine(now time.Time) status.UnknownMachine {
	u := status.UnknownMachine{
		BMC:   b.Addr.String(),
		Found: fmt.Sprintf("%s leased %s and %s", b.MAC, b.Addr, b.Presence),
		Time:  now,
	}
	if !b.Presence.IPMI {
		u.BMCURL = string(b.Presence.Address(b.Addr)) + "/redfish/v1/Systems/ID" // it says which with the login
	}
	return u
}

// Tries are what became of logins to one BMC.
type Tries struct {
	At      []time.Time `json:"at"`                // of the last ones
	Refused []string    `json:"refused,omitempty"` // keys of logins: they are not tried again
	Text    string      `json:"text,omitempty"`    // what the last one ended with, for people
	Off     bool        `json:"off,omitempty"`     // the last one was taken, and the BMC said that its server is off
	Silent  bool        `json:"silent,omitempty"`  // the last one was neither taken nor refused
}

// Limits of logins to one BMC: what locks accounts is many wrong ones in a short time.
const (
	triesPerHour = 2
	tryWindow    = time.Hour
	tryPause     = 10 * time.Minute // after one that nobody answered
)

// View is all that is known when it is decided.
type View struct {
	Policy   *site.Discover
	Known    []Known                 // nodes of site.yaml, and hosts that are not of Machines
	Unknown  []status.UnknownMachine // machines that booted lately
	BMCs     []LeasedBMC             // that answer; none where the policy leaves them alone
	Machines []Machine               // those whose BMC took a login, and nodes
	Tries    map[string]Tries        // by the BMC's address
	Keys     []string                // of Policy.Credentials
	Now      time.Time
}

// Finding is what is decided of one machine.
type Finding struct {
	Machine Machine
	Reason  Reason
	Other   string    // the machine or node that stands in the way, or what the BMC said
	Login   int       // index of the login to try now; -1: none
	Due     time.Time // when the BMC is asked again
	Accept  bool      // it becomes a node now, without a person
}

// isIn reports whether an address is in one of some networks.
func isIn(addr string, networks []netip.Prefix) bool {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}
