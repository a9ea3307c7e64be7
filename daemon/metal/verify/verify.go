// Package verify keeps two promises about every node of the site. Before a node is switched
// on for the first time, its pre-flight has passed: nothing is written to a server that
// cannot become what the site says. And what is called launched is launched: every node is
// installed and was asked, from itself, whether it can do its work.
//
// What is found out is put into Facts and Findings; what follows from them is decided by
// pure functions (Preflight, Prove, Judge); Engine asks, remembers and tells. docs/verify.md
// lists every check.
package verify

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// Facts is what was found out about a node before it is switched on.
type Facts struct {
	Node          site.Node           // with its defaults
	Applied       bool                // it was made from a BareMetalHost that someone applied
	Registered    bool                // it has its BareMetalHost: Ironic speaks to its BMC
	Recorded      bool                // a backup on DATA has it, or it is named there by one that cannot be read
	Netbooted     bool                // it was last seen booting from the network since the appliance started
	Leased        []netip.Addr        // what it was leased
	BMC           bmc.Answer          // zero: not asked
	Certificate   bmctrust.Change     // what stands between the BMC and its password; zero: nothing
	Asks          bool                // it asked lately on the provisioning network what to boot
	BootMAC       string              // that the BMC names, of a node without any; "": not asked, or not known
	BootMACError  string              // why it is not known
	DriveError    string              // why its BMC has no drive for a disc; "": it has, or was not asked
	DuplicateMACs map[site.MAC]string // MACs of the node that something else has as well: what that is
	Users         map[netip.Addr]Reply
	Routers       map[netip.Addr]Reply
	Resolvers     map[netip.Addr]Reply
	DHCP          DHCP
	Image         Image
	Disk          int64 // bytes of the disk to install on; 0: not inspected
	Clock         Clock
}

// Reply is what came back from an address. An address that is in no map cannot be asked
// from here: the appliance is not in its network.
type Reply struct {
	From    string // the MAC that answered, or "yes"; "": nobody did
	Problem string // why it could not be asked, or what is wrong with the answer
}

// DHCP is how the provisioning network's DHCP stands.
type DHCP struct {
	Enabled bool   // the appliance gives addresses there
	Phase   string // of package pxe/dhcp: probing, serving, proxy, silent, broken
	Text    string // what it says of itself
}

// Image is the operating system that the node is to have.
type Image struct {
	Name    string
	None    bool   // it asks for none yet
	Bytes   int64  // on a disk; 0: not known
	Problem string // why it cannot be had
	Fix     string
}

// Clock is what the appliance thinks of its time.
type Clock struct {
	Now        time.Time
	Built      time.Time // of the image: no moment before it can be now
	Server     bool      // a time server answered
	HasServers bool      // the site names time servers
}

// check is one question of a list: its name, what it asks, and the answer.
type check[F any] struct {
	Name  string
	Asks  string // for docs/verify.md
	judge func(F) status.Check
}

// runChecks judges every check of a list, in its order.
func runChecks[F any](list []check[F], f F) []status.Check {
	out := make([]status.Check, len(list))
	for i, c := range list {
		out[i] = c.judge(f)
		out[i].Name = c.Name
	}
	return out
}

func okCheck(format string, args ...any) status.Check {
	return status.Check{State: status.CheckOK, Text: fmt.Sprintf(format, args...)}
}

func skippedCheck(format string, args ...any) status.Check {
	return status.Check{State: status.CheckSkipped, Text: fmt.Sprintf(format, args...)}
}

func waitingCheck(format string, args ...any) status.Check {
	return status.Check{State: status.CheckWaiting, Text: fmt.Sprintf(format, args...)}
}

// failedCheck is a failure with the way out of it.
func failedCheck(fix, format string, args ...any) status.Check {
	return status.Check{State: status.CheckFailed, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// AllPassed tells whether every check holds or has nothing to ask. No checks at all have not.
func AllPassed(checks []status.Check) bool {
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(c status.Check) bool {
		return c.State != status.CheckOK && c.State != status.CheckSkipped
	})
}

// FirstProblem is the first check that stands in the way: a failed one before one that waits.
func FirstProblem(checks []status.Check) (status.Check, bool) {
	for _, state := range []status.CheckState{status.CheckFailed, status.CheckWaiting} {
		if i := slices.IndexFunc(checks, func(c status.Check) bool { return c.State == state }); i >= 0 {
			return checks[i], true
		}
	}
	return status.Check{}, false
}

// nodeMACs are all MACs by which a node of the site is known.
func nodeMACs(n site.Node) []site.MAC {
	var all []site.MAC
	add := func(list ...site.MAC) {
		for _, m := range list {
			if m != "" && !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	add(n.BootMAC)
	add(n.MACs...)
	for _, l := range n.Links {
		add(linkMACs(l)...)
	}

	return all
}

// linkMACs are the MACs of a link, those of its bond if it has one.
func linkMACs(l site.Link) []site.MAC {
	if l.Bond != nil {
		return l.Bond.MACs
	}
	if l.MAC == "" {
		return nil
	}
	return []site.MAC{l.MAC}
}

// staticAddrs are the node's own addresses, those of IPv4 first.
func staticAddrs(n site.Node) []netip.Addr {
	var all []netip.Addr
	for _, l := range n.Links {
		if a := l.Address.Prefix.Addr(); l.Address.Method == "static" && !a.IsLinkLocalUnicast() {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	return all
}

// routers and resolvers are what the site gives the node, each once.
func routers(n site.Node) []netip.Addr {
	var all []netip.Addr
	for _, l := range n.Links {
		if l.Gateway.IsValid() && !slices.Contains(all, l.Gateway) {
			all = append(all, l.Gateway)
		}
	}
	return all
}

func resolvers(n site.Node) []netip.Addr {
	var all []netip.Addr
	for _, l := range n.Links {
		for _, d := range l.DNS {
			if !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	return all
}
