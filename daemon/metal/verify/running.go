package verify

import (
	"fmt"
	"slices"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// checkRunning is the name of the check that keeps a running server from being reset.
const checkRunning = "running"

// notRunning holds a server that may be in service although this appliance knows nothing of it: after the first look,
// nothing less than a reset tells whether a system of its own is on its disk. What the appliance itself has seen boot
// from the network since it started runs no system of its own (docs/decisions/0019).
func notRunning(f Facts) status.Check {
	fix := fmt.Sprintf("if it is in service, adopt it with: firstlightd adopt %s; if it may be installed, switch it off",
		f.Node.Name)
	answers := runningAddress(f)
	switch {
	case f.Registered, f.Recorded:
		return okCheck("known to this appliance")
	case answers != "":
		return failedCheck(fix, "it runs, and this appliance has no record of it: %s answers with its MAC", answers)
	case f.Netbooted:
		return okCheck("it boots from the network")
	case f.Node.BMC == nil:
		return skippedCheck("it has no BMC that could say whether it is on, and does not answer")
	case f.BMC.Verdict == bmc.OK && f.BMC.On:
		return failedCheck(fix, "it runs, and this appliance has no record of it: its BMC says that it is on")
	case f.BMC.Verdict == bmc.OK:
		return okCheck("it is off")
	}
	return skippedCheck("its BMC has not said whether it is on") // the check of the BMC stands in the way
}

// runningAddress is a static address of the node that answers with one of its MACs and that is none the appliance has
// leased to it: a ramdisk has leases alone.
func runningAddress(f Facts) string {
	own := nodeMACs(f.Node)
	for _, a := range staticAddrs(f.Node) {
		if slices.Contains(own, site.MAC(f.Users[a].From)) && !slices.Contains(f.Leased, a) {
			return a.String()
		}
	}
	return ""
}

// isNetbooted reports whether the last that a machine of the node got from the appliance keeps it there: ramdisk, or
// the wait for one. A machine that was sent on to its disk runs what is on it. What another machine asked for in its
// name, and was served or refused, says nothing of it.
func isNetbooted(n site.Node, traces []boottrace.Trace) bool {
	own := nodeMACs(n)
	for _, t := range traces {
		i := slices.IndexFunc(t.Marks, func(m boottrace.Mark) bool { return m.Step == boottrace.StepScript })
		if i < 0 || t.Marks[i].ByAnother || !slices.Contains(own, site.MAC(t.MAC)) {
			continue
		}
		switch t.Marks[i].Detail {
		case pxe.ActionInspect.String(), pxe.ActionRamdisk.String(), pxe.ActionWait.String():
			return true
		}
	}
	return false
}
