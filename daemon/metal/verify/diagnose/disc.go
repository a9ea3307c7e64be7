package diagnose

import (
	"fmt"
	"slices"
	"time"

	"firstlight.dev/firstlight/pxe/boottrace"
)

// discBoot is how long a server may take from the last byte of its disc to its agent's first call: it has all of its
// firmware's start still before it, and some BMCs read the disc at once.
const discBoot = firmware + ramdisk

// bootsFromDisc reports whether the ramdisk of a node that is to boot comes from a disc.
func bootsFromDisc(v View) bool { return v.Node != nil && v.Node.BootsFromDisc() && isBooting(v) }

// hasAgentCalled reports whether the agent did since what the host is at began, or lately: it may have been there
// before.
func hasAgentCalled(v View) bool {
	return agentAlive(v) || v.Ironic != nil && v.Ironic.Heartbeat.After(startedAt(v))
}

// checkWay begins the advice where a BMC does not get its disc.
const checkWay = "check whether the BMC has a way to the appliance (HTTP, port 6181: its gateway, the VLAN, filters " +
	"between them), "

// What becomes of a disc that is not booted from.
var (
	discRefused = failure{
		name:     "disc-refused",
		meaning:  "its BMC does not take the disc that Ironic names, or cannot load it",
		sentence: "boots from no disc, its BMC does not take it",
		next:     checkWay + "whether another disc is in its virtual drive, and its own log; it is retried automatically",
		words: []string{
			"virtualmedia.insertmedia",
			"virtualmedia.ejectmedia",
			"virtual media mount",
			"inserting virtual media",
			"no suitable virtual media",
		},
	}.rule()

	discUnread = rule{
		name:    "disc-unread",
		meaning: "it was switched on, and for ten minutes its BMC read nothing of the disc that it was given",
		fails:   true,
		percent: 12,
		since:   hostSince,
		matches: func(v View) bool {
			return bootsFromDisc(v) && currentBoot(v) == nil && powerState(v) != "off" && !hasAgentCalled(v) &&
				(isCallbackTimeout(v) || v.Now.Sub(startedAt(v)) >= firmware)
		},
		sentence: fixedSentence("was switched on, and its BMC has read nothing of its disc"),
		next: fixedNext(
			checkWay + "whether it asks from the address in bmc.address, and what it says of its virtual drive",
		),
	}

	discSilent = rule{
		name:    "disc-silent",
		meaning: "its BMC read its disc, and no agent called in twenty minutes",
		fails:   true,
		percent: 20,
		since:   hostSince,
		matches: func(v View) bool {
			return bootsFromDisc(v) && furthestMark(v).Step == boottrace.StepDisc &&
				(isCallbackTimeout(v) || stuckAt(v, discBoot, boottrace.StepDisc) && !agentAlive(v))
		},
		sentence: func(v View) string {
			read := formatMegabytes(furthestMark(v))
			return fmt.Sprintf("did not come up from its disc: its BMC read it, %s, and no agent called", read)
		},
		next: fixedNext("check its console: does it start from the virtual CD (boot order, Secure Boot), and does its " +
			"ramdisk have the address of its link to provisioning, with that NIC's cable in the right network?"),
	}
)

// networkSteps are those of a boot from the network.
var networkSteps = way[:slices.Index(way, boottrace.StepDisc)]

// discRules is how far a machine came that is to boot from a disc.
var discRules = []rule{
	{
		name:     "disc-waiting",
		meaning:  "it was given a disc, of which its BMC has read nothing yet",
		percent:  12,
		since:    hostSince,
		matches:  func(v View) bool { return bootsFromDisc(v) && currentBoot(v) == nil && !hasAgentCalled(v) },
		sentence: fixedSentence("is to boot from a disc, of which its BMC has read nothing yet"),
	},
	{
		name:    "disc-ignored",
		meaning: "it asks on the network what to boot, and not its disc",
		percent: 12,
		fails:   true,
		since:   lastSeen,
		matches: func(v View) bool {
			return bootsFromDisc(v) && slices.Contains(networkSteps, furthestMark(v).Step) &&
				v.Now.Sub(v.BootTrace.Last.Time) < time.Minute
		},
		sentence: fixedSentence("asks on the network what to boot, instead of booting from its disc"),
		next: fixedNext("check its boot order: the virtual CD comes first when its BMC says so; a firmware that ignores " +
			"that needs an update"),
	},
	{
		name:    "disc-booting",
		meaning: "its BMC reads its disc, or has read it; its agent did not call yet",
		percent: 18,
		since:   lastSeen,
		matches: func(v View) bool { return bootsFromDisc(v) && stuckAt(v, 0, boottrace.StepDisc) && !agentAlive(v) },
		sentence: func(v View) string {
			return fmt.Sprintf("boots from its disc, which its BMC has read up to %s", formatMegabytes(furthestMark(v)))
		},
	},
}
