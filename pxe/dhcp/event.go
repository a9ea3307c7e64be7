package dhcp

import (
	"net"
	"net/netip"
	"time"

	"firstlight.dev/firstlight/pxe"
)

// Events hears what the server does. Methods are called from the packet loop: they must
// return at once.
type Events interface {
	DHCP(Event)
	DHCPStatus(Status)
}

// Kind is what happened; the values are words for logs and metrics.
type Kind string

// Kinds of events.
const (
	KindDiscover Kind = "discover" // a machine asks
	KindOffer    Kind = "offer"    // an address was offered, or a boot file by proxy
	KindAck      Kind = "ack"      // a lease on disk was acknowledged, or an INFORM answered
	KindNak      Kind = "nak"      // a request was denied
	KindRelease  Kind = "release"  // a machine gave its address back
	KindDecline  Kind = "decline"  // a machine found its address in use
	KindRefuse   Kind = "refuse"   // no answer; Reason and Text say why
	KindPanic    Kind = "panic"    // a handler panicked and was recovered: a fault of ours
)

// Event is one thing that happened to a machine.
type Event struct {
	Kind    Kind
	Machine pxe.Machine
	Addr    netip.Addr // offered, acknowledged, denied or declined
	File    string     // boot file or script URL that was sent
	Reason  Reason     // constant; set with KindRefuse and KindNak, and when a boot file was withheld
	Text    string     // the reason in a sentence for people
	Flood   bool       // more of these come than a log should take: count it, do not print it
}

// Reason is a short constant, fit for a metric's label.
type Reason string

// Reasons.
const (
	ReasonMalformed      Reason = "malformed"     // not a DHCP packet we can read
	ReasonBOOTP          Reason = "bootp"         // no message type: plain BOOTP
	ReasonUnknownRelay   Reason = "unknown-relay" // giaddr is in none of our subnets
	ReasonPoolEmpty      Reason = "pool-empty"    // no address left for strangers
	ReasonUnknownMachine Reason = "stranger"      // the subnet has no pool for unknown machines
	ReasonOtherServer    Reason = "other-server"  // the machine chose another server
	ReasonNotYours       Reason = "not-yours"     // the address belongs to another machine
	ReasonWrongNet       Reason = "wrong-network" // the address is of another network
	ReasonNoRecord       Reason = "no-record"     // INIT-REBOOT of a machine we do not know: RFC 2131 4.3.2 asks for silence
	ReasonUnexpected     Reason = "unexpected"    // a message that servers do not answer
	ReasonSilent         Reason = "silent"        // a foreign DHCP server is there
	ReasonArchUnknown    Reason = "arch-unknown"  // no boot file for this architecture
	ReasonBootRefused    Reason = "boot-refused"  // the policy says: boot nothing
	ReasonBootDisk       Reason = "boot-disk"     // the policy says: boot the local disk, so no file is offered
	ReasonStorage        Reason = "storage"       // the lease could not be written
	ReasonBusy           Reason = "busy"          // too many requests wait for the disk
	ReasonDuplicateMAC   Reason = "duplicate-mac" // two machines use one MAC (their UUIDs differ)
	ReasonNotInUse       Reason = "not-in-use"    // a declined address that no other machine has
	ReasonDeclineLimit   Reason = "decline-limit" // a machine declines more than one address a minute
	ReasonProxy          Reason = "proxy"         // addresses are another server's business
)

// Phase is what the server as a whole does.
type Phase string

// Phases.
const (
	PhaseProbing Phase = "probing" // listening for others before serving
	PhaseServing Phase = "serving"
	PhaseProxy   Phase = "proxy"  // boot files only
	PhaseSilent  Phase = "silent" // a foreign server is there
	PhaseBroken  Phase = "broken" // no interface, or leases cannot be written
)

// Status is the server's state in one sentence and its parts.
type Status struct {
	Phase   Phase     `json:"phase"`
	Since   time.Time `json:"since"`
	Text    string    `json:"text"`              // for people: what is and what to do
	Foreign []Foreign `json:"foreign,omitempty"` // the servers that answered the last probe
}

// Foreign is a DHCP server that is not us.
type Foreign struct {
	Server    netip.Addr       `json:"server"` // its server identifier
	Source    netip.Addr       `json:"source"` // address the packet came from
	MAC       net.HardwareAddr `json:"-"`
	MACText   string           `json:"mac"` // of the frame: the server itself, or the relay before it
	Offered   netip.Addr       `json:"offered"`
	Appliance string           `json:"appliance,omitempty"` // identity of another Firstlight appliance, "" otherwise
}
