package diagnose

import (
	"fmt"
	"slices"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// serviceRules is what a node that was installed can be, or is meant to be left as.
var serviceRules = []rule{
	{name: "restoring", meaning: "the API had lost it; it is taken over again from its record", percent: 90,
		matches:  func(v View) bool { return v.Host.Paused && isBlocked(v) },
		sentence: func(v View) string { return "was in service and is being taken over again: " + v.Blocked.Sentence }},
	{
		name:     "paused",
		meaning:  "its host has the annotation baremetalhost.metal3.io/paused",
		fails:    true,
		matches:  func(v View) bool { return v.Host.Paused },
		sentence: func(v View) string { return "is paused: Metal3 leaves it as it is, " + stateName(v) },
		next: func(v View) string {
			return fmt.Sprintf(
				"to go on, run: kubectl -n metal3 annotate bmh %s baremetalhost.metal3.io/paused-", v.Name,
			)
		},
	},
	{name: "bmc-lost", meaning: "it is in service, and its BMC does not answer any more", percent: 90, fails: true,
		matches: func(v View) bool { return v.Host.InService() && hostError(v) != "" },
		sentence: func(v View) string {
			return "is in service and left alone, but it cannot be switched on or off: " + firstSentence(hostError(v))
		},
		next: fixedNext("check the BMC's cable, address and password")},
	{
		name:     "off",
		meaning:  "installed, and its BMC says that the power is off",
		percent:  90,
		fails:    true,
		since:    deployedAt,
		matches:  func(v View) bool { return isSilent(v) && powerState(v) == "off" && v.Now.Sub(v.Host.Deployed) >= step },
		sentence: fixedSentence("is installed and switched off"),
		next:     fixedNext("press its power button, or set spec.online of its BareMetalHost"),
	},
	{
		name:    "disk-not-booting",
		meaning: "installed, and its firmware asks the network again and again",
		percent: 90,
		fails:   true,
		since:   deployedAt,
		matches: func(v View) bool {
			m := diskScript(v)
			return isSilent(v) && m.Count > 2 && m.Time.After(v.Host.Deployed)
		},
		sentence: fixedSentence("is installed, but its firmware does not start the disk: it asks the network again and again what to boot"),
		next:     fixedNext("check bootMode in site.yaml (UEFI or legacy must be what the firmware does) and the firmware's boot order"),
	},
	{
		name:    "switch-on",
		meaning: "installed, without a BMC that could switch it on again, and silent for three minutes",
		percent: 90,
		fails:   true,
		since:   deployedAt,
		matches: func(v View) bool {
			return isSilent(v) && v.Node != nil && v.Node.BMC == nil && v.Now.Sub(v.Host.Deployed) >= step &&
				v.Now.Sub(v.Host.Deployed) < starting
		},
		sentence: fixedSentence("is installed and switched off itself; no BMC can switch it on"),
		next:     fixedNext("press its power button"),
	},
	{
		name:    "booted-silent",
		meaning: "installed, and for twenty minutes nobody answers SSH",
		percent: 92,
		fails:   true,
		since:   deployedAt,
		matches: func(v View) bool { return isSilent(v) && v.Now.Sub(v.Host.Deployed) >= starting },
		sentence: func(v View) string {
			c, _ := firstProblem(v.Checks)
			return "is installed and does not answer: " + c.Text
		},
		next: fixedNext("check its console; check links in site.yaml: does the appliance have a way to one of its addresses?"),
	},
	{name: "starting", meaning: "installed; its system starts", percent: 92, since: deployedAt,
		matches: isSilent, sentence: fixedSentence("is installed and starts its own system")},
	{name: "stranger", meaning: "at its address another machine answers", percent: 92, fails: true, since: deployedAt,
		matches: answeredWith(shell.OtherMachine), sentence: installedBut, next: wayOut},
	{
		name:     "locked-out",
		meaning:  "it answers SSH and does not let the appliance in",
		percent:  92,
		fails:    true,
		since:    deployedAt,
		matches:  answeredWith(shell.Locked),
		sentence: installedBut,
		next:     wayOut,
	},
	{
		name:     "odd-system",
		meaning:  "it lets the appliance in, and the commands of any Linux do not work",
		percent:  92,
		fails:    true,
		since:    deployedAt,
		matches:  answeredWith(shell.Odd),
		sentence: installedBut,
		next:     wayOut,
	},
	nicBroken,
	{
		name:     "wrong-network",
		meaning:  "installed; links, addresses, router or resolver are not as given",
		percent:  95,
		fails:    true,
		since:    deployedAt,
		matches:  checkFailing("links", "addresses", "gateway", "dns"),
		sentence: installedBut,
		next:     wayOut,
	},
	{name: "wrong-clock", meaning: "installed, and its clock is off", percent: 95, fails: true, since: deployedAt,
		matches: checkFailing("clock"), sentence: installedBut, next: wayOut},
	{name: "checking", meaning: "installed; its checks are being asked", percent: 95, since: deployedAt,
		matches:  func(v View) bool { return v.Host.InService() },
		sentence: fixedSentence("is installed and being proven")},
}

// diskScript is the mark of being told to boot the disk.
func diskScript(v View) boottrace.Mark {
	if v.BootTrace == nil {
		return boottrace.Mark{}
	}

	i := slices.IndexFunc(v.BootTrace.Marks, func(m boottrace.Mark) bool {
		return m.Step == boottrace.StepScript && m.Detail == "disk" && !m.ByAnother
	})
	if i < 0 {
		return boottrace.Mark{}
	}

	return v.BootTrace.Marks[i]
}

func isSilent(v View) bool {
	return v.Host.InService() && !v.Verified && (v.Answer == shell.Silent || v.Answer == "")
}

func powerState(v View) string {
	switch {
	case v.Ironic != nil && v.Ironic.Power == "power off":
		return "off"
	case v.Ironic != nil && v.Ironic.Power == "power on":
		return "on"
	case v.Ironic == nil && v.Host != nil && !v.Host.PoweredOn:
		return "off"
	}
	return ""
}

func answeredWith(verdict shell.Verdict) func(View) bool {
	return func(v View) bool {
		_, failed := firstProblem(v.Checks)
		return v.Host.InService() && failed && v.Answer == verdict
	}
}

func checkFailing(checks ...string) func(View) bool {
	return func(v View) bool {
		c, failed := firstProblem(v.Checks)
		return v.Host.InService() && failed && slices.Contains(checks, c.Name)
	}
}

func installedBut(v View) string {
	c, _ := firstProblem(v.Checks)
	return "is installed, but " + c.Text
}

func wayOut(v View) string {
	c, _ := firstProblem(v.Checks)
	if c.State != status.CheckFailed {
		return ""
	}
	return c.Fix
}
