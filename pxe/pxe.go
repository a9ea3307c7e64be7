// Package pxe holds what the protocol servers below it share: the one question they
// ask, and the record of where each machine last was. The servers (dhcp, tftp, http,
// ipxe) know nothing of Ironic or Kubernetes; all policy enters through Booter.
package pxe

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
)

// Where boot programs and scripts are found on the HTTP server. DHCP advertises
// http://ADDR:PORT + BootPath + NAME to UEFI HTTP boot, NAME alone by TFTP, and
// http://ADDR:PORT + ScriptPath + MAC (lower case, with hyphens) to iPXE. BMCs are
// told http://ADDR:PORT + DiscPath. GRUB asks for GRUBConfig by the protocol that loaded it, a name that is compiled
// into Debian's, and is told there http://ADDR:PORT + GRUBPath + MAC.
const (
	BootPath   = "/boot/"
	ScriptPath = "/ipxe/"
	GRUBPath   = "/grub/"
	GRUBConfig = "grub/grub.cfg"
	DiscPath   = "/disc.iso"
)

// Booter decides what a machine boots. It is asked for every DHCP answer that could
// carry a boot file and for every script, and must answer from memory, in microseconds:
// what it says now and what the power controller does must come from the same decision.
type Booter interface {
	Boot(ctx context.Context, m Machine) Boot
}

// Machines finds the machine behind an address: the lease table of pxe/dhcp. TFTP and
// HTTP see only addresses; every refusal, log line and record needs the machine.
// MachineAt must be answered from memory; false means no lease was given to addr.
type Machines interface {
	MachineAt(addr netip.Addr) (Machine, bool)
}

// Machine is what the wire tells about a client.
type Machine struct {
	MAC      net.HardwareAddr // chaddr of DHCP, or the address an iPXE script was asked for
	Addr     netip.Addr       // address leased to it, if any
	UUID     string           // option 97 (RFC 4578 2.3), lower case, "" if absent
	Arch     uint16           // option 93 (RFC 4578 2.1), IANA processor architecture types
	Firmware Firmware
}

// Firmware is the program that asks.
type Firmware int

const (
	FirmwareUnknown  Firmware = iota
	FirmwarePXE               // PXEClient: loads by TFTP
	FirmwareHTTPBoot          // HTTPClient: UEFI HTTP boot (UEFI 2.x, 24.7)
	FirmwareIPXE              // iPXE: user class "iPXE" or option 175
	FirmwareGRUB              // GRUB, which speaks HTTP alone
)

// Action is what a machine shall do.
type Action int

const (
	ActionRefuse  Action = iota // boot nothing from here; Reason is shown to it
	ActionDisk                  // boot the local disk
	ActionInspect               // boot the ramdisk to be inspected; nothing is written
	ActionRamdisk               // boot the deploy ramdisk
	ActionWait                  // ask again every ten seconds; Reason is shown to it
)

// String is the word used in logs, metrics and files: refuse, disk, inspect, ramdisk, wait.
func (a Action) String() string {
	switch a {
	case ActionDisk:
		return "disk"
	case ActionInspect:
		return "inspect"
	case ActionRamdisk:
		return "ramdisk"
	case ActionWait:
		return "wait"
	default:
		return "refuse"
	}
}

// Boot is the answer. Kernel, Initrd and Args matter only with ActionInspect and
// ActionRamdisk; Script, if set, is the path below the HTTP root of a finished iPXE
// script (Ironic's conductor writes those) and wins over them.
type Boot struct {
	Action Action
	Reason string   // one sentence for people; required with ActionRefuse and ActionWait
	Script string   // path below the HTTP root, e.g. pxelinux.cfg/52-54-00-00-00-01
	Kernel string   // path below the HTTP root, or an http(s) URL
	Initrd []string // likewise, in order
	Args   []string // one kernel argument each; BOOTIF and initrd= are added by pxe/ipxe and pxe/grub
	Token  Secret   // put where an argument or Script says ${token}; never logged
	Mint   bool     // a Minter makes the Token, when the script is handed out

	// SecureBoot has firmware load signed boot programs, shim and GRUB, in place of iPXE: the machine's may enforce Secure
	// Boot, which DHCP cannot tell.
	SecureBoot bool
}

// Minter makes the token of one boot. It is asked when the script is about to be handed to m, and only if m has
// the address that asks: whoever shows the token later is the machine that was given this script.
type Minter interface {
	Mint(m Machine, b Boot) (Secret, error)
}

// Secret prints as [redacted]; Reveal is the only way to its text.
type Secret string

// String hides the text from fmt and slog.
func (Secret) String() string { return "[redacted]" }

// GoString hides the text from %#v.
func (Secret) GoString() string { return "[redacted]" }

// LogValue hides the text from slog handlers that do not use String.
func (Secret) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// MarshalText hides the text from JSON and YAML.
func (Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Reveal returns the text.
func (s Secret) Reveal() string { return string(s) }
