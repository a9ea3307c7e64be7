package bmcpassword

import "firstlight.dev/firstlight/daemon/appliance/vault"

// Accepts is which password a BMC was found to accept in this round.
type Accepts string

const (
	AcceptsUnknown    Accepts = ""
	AcceptsNext       Accepts = "next"
	AcceptsPresent    Accepts = "present"
	AcceptsNotNext    Accepts = "not the next"    // the present one was not tried
	AcceptsNotPresent Accepts = "not the present" // the next one was not tried
	AcceptsNeither    Accepts = "neither"
)

// Given is what Ironic is given for the hosts of an account: what their Secrets say.
type Given string

const (
	GivenUnknown Given = ""
	GivenPresent Given = "present"
	GivenOther   Given = "other"
)

// Step is what comes next for an account.
type Step string

const (
	StepNone       Step = ""
	StepWait       Step = "wait"
	StepAsk        Step = "ask"         // the BMC is asked to take the next password
	StepTryNext    Step = "try-next"    // log in with it
	StepTryPresent Step = "try-present" // log in with the present one
	StepSwitch     Step = "switch"      // the next becomes the present one, from which the Secrets are made
	StepDrop       Step = "drop"        // the next is forgotten: the BMC takes the present one, and is not asked again
	StepPass       Step = "pass"        // the Secrets are made again
	StepForget     Step = "forget"      // the former is forgotten
)

// View is all that a step is decided on.
type View struct {
	Account vault.BMCAccount // what is on DATA
	Accepts Accepts
	Given   Given
	Edited  bool   // the site says another password than when the next was minted
	Busy    bool   // Ironic works on a host behind the BMC
	MayTry  bool   // a login that may be wrong does not lock the account
	Refusal string // what the BMC said to being asked, if that means that it has the present one; "": nothing
}

// Decide is pure. A password that the BMC may have is never forgotten: the next one goes only after a login with the
// present one, and the present one only after a login with the next.
func Decide(v View) Step {
	a := v.Account
	switch {
	case a.Next == "" && a.Former == "":
		return StepNone
	case a.Next == "":
		return decideGiven(v.Given)
	case !a.Asked && v.Edited:
		return StepDrop
	case !a.Asked:
		return decideAsk(v)
	}

	switch v.Accepts {
	case AcceptsNext:
		return StepSwitch
	case AcceptsPresent:
		if v.Edited || v.Refusal != "" {
			return StepDrop
		}
		return decideAsk(v)
	case AcceptsNeither:
		return StepWait
	}

	switch {
	case !v.MayTry:
		return StepWait
	case v.Accepts == AcceptsNotNext, v.Accepts == AcceptsUnknown && v.Refusal != "":
		return StepTryPresent
	}
	return StepTryNext
}

// decideGiven passes the present password on to Ironic.
func decideGiven(g Given) Step {
	switch g {
	case GivenPresent:
		return StepForget
	case GivenOther:
		return StepPass
	}
	return StepWait
}

// decideAsk has the BMC asked unless that would cut Ironic short, or be one login too many.
func decideAsk(v View) Step {
	if v.Busy || !v.MayTry {
		return StepWait
	}
	return StepAsk
}
