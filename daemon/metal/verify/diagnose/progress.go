package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/pxe/boottrace"
)

// imageNotRead tells whether its living agent is to write the image, and loaded none from here.
func imageNotRead(v View) bool {
	return hostState(v, "provisioning") && agentAlive(v) && v.Ironic.Step == "write_image" &&
		(currentBoot(v) == nil || furthestMark(v).Step != boottrace.StepImage)
}

// imageElsewhere tells whether the site names the image by an address, which may be another server's.
func imageElsewhere(v View) bool { return v.Node != nil && v.Node.OS.URL != "" }

// progressRules is work that an agent does, or that needs none.
var progressRules = []rule{
	{
		name:     "unmanaged",
		meaning:  "its BareMetalHost has no BMC",
		percent:  5,
		fails:    true,
		matches:  func(v View) bool { return hostState(v, "unmanaged") },
		sentence: fixedSentence("is not switched on: its BareMetalHost has no BMC, so that Metal3 does nothing with it"),
		next:     fixedNext("give it spec.bmc, or delete it and name the server with its MAC in site.yaml"),
	},
	{
		name:     "delayed",
		meaning:  "the operator works on as many hosts as it may",
		percent:  10,
		matches:  func(v View) bool { return v.Host.Operational == "delayed" },
		sentence: fixedSentence("waits its turn: as many servers as may be are worked on already"),
	},
	{
		name:     "registering",
		meaning:  "Ironic speaks to its BMC for the first time",
		percent:  5,
		since:    hostSince,
		matches:  func(v View) bool { return hostState(v, "", "registering") },
		sentence: fixedSentence("is being registered: Ironic speaks to its BMC"),
	},
	{
		name:     "inspected",
		meaning:  "inspected; it gets its image next",
		percent:  40,
		since:    hostSince,
		matches:  func(v View) bool { return hostState(v, "available", "ready", "match profile") },
		sentence: fixedSentence("is inspected and gets its image next"),
	},
	{
		name:     "deleting",
		meaning:  "its owner deletes it",
		percent:  0,
		matches:  func(v View) bool { return hostState(v, "deleting", "powering off before delete") },
		sentence: fixedSentence("is being removed from Metal3, as somebody asked"),
	},
	{
		name:     "writing",
		meaning:  "its agent loads the image and writes it",
		percent:  50,
		progress: transferProgress(35),
		since:    hostSince,
		matches: func(v View) bool {
			return hostState(v, "provisioning") && currentBoot(v) != nil &&
				furthestMark(v).Step == boottrace.StepImage && !isLoaded(furthestMark(v)) &&
				v.Now.Sub(v.BootTrace.Last.Time) < step
		},
		sentence: func(v View) string { return "writes its image to disk, " + formatMegabytes(furthestMark(v)) },
	},
	{
		name:     "agent-no-image",
		meaning:  "its agent is alive, and for ten minutes did not ask for the image",
		percent:  48,
		fails:    true,
		since:    hostSince,
		matches:  func(v View) bool { return imageNotRead(v) && !imageElsewhere(v) && v.Now.Sub(startedAt(v)) >= ramdisk },
		sentence: func(v View) string { return "runs its agent, but that does not load the image" },
		next:     fixedNext("check whether the image's address answers from the provisioning network, and the server's console"),
	},
	{
		name:     "writing-unseen",
		meaning:  "its agent writes an image that another server offers: how much of it, nobody here sees",
		percent:  50,
		since:    hostSince,
		matches:  func(v View) bool { return imageNotRead(v) && imageElsewhere(v) },
		sentence: func(v View) string { return "writes its image to disk, from " + string(v.Node.OS.URL) },
	},
	{
		name:    "agent-at-work",
		meaning: "its agent is alive and does a step of Ironic's",
		percent: 45,
		since:   hostSince,
		matches: func(v View) bool { return isBooting(v) && v.Host.State != "inspecting" && agentAlive(v) },
		sentence: func(v View) string {
			if v.Ironic.Step == "" {
				return fmt.Sprintf("is %s: its agent is at work", v.Host.State)
			}
			return fmt.Sprintf("is %s: its agent does %s", v.Host.State, strings.ReplaceAll(v.Ironic.Step, "_", " "))
		},
	},
	{
		name:    "agent-silent",
		meaning: "its agent called since this began, and for four minutes did not",
		percent: 48,
		fails:   true,
		since:   func(v View) time.Time { return v.Ironic.Heartbeat },
		matches: func(v View) bool {
			return isBooting(v) && v.Ironic != nil && v.Ironic.Heartbeat.After(startedAt(v)) && !agentAlive(v) &&
				(currentBoot(v) == nil || !v.BootTrace.Since.After(v.Ironic.Heartbeat) && v.Now.Sub(v.BootTrace.Last.Time) >= step)
		},
		sentence: func(v View) string {
			s := fmt.Sprintf(
				"is %s, but its agent has not called since %s", v.Host.State,
				v.Ironic.Heartbeat.UTC().Format("15:04:05 UTC"),
			)
			if powerState(v) == "off" {
				s += ", and its power is off"
			}
			return s
		},
		next: fixedNext("check its power, its console and its cable; it continues when the agent calls again, and is started again when Ironic's time for it is up"),
	},
	{
		name:    "switching-on",
		meaning: "it is to boot, and Ironic, which may be slow, is still at preparing that",
		percent: 11,
		since:   hostSince,
		matches: func(v View) bool {
			return isBooting(v) && powerState(v) == "off" && currentBoot(v) == nil &&
				v.Ironic != nil && slices.Contains(ironicActs, v.Ironic.State)
		},
		sentence: func(v View) string { return fmt.Sprintf("is %s: Ironic has not switched it on yet", v.Host.State) },
	},
	{
		name:    "power-off",
		meaning: "it is to boot, and its BMC says that the power is off",
		percent: 12,
		fails:   true,
		since:   hostSince,
		matches: func(v View) bool {
			return isBooting(v) && powerState(v) == "off" && currentBoot(v) == nil && v.Now.Sub(startedAt(v)) >= step
		},
		sentence: func(v View) string { return fmt.Sprintf("is %s, but its power is off", v.Host.State) },
		next:     fixedNext("check whether the server has mains power and can be switched on by its button; Ironic continues automatically"),
	},
}

// ironicActs are Ironic's states in which it prepares a boot; in the states after them it has switched the server on, and
// waits for its agent (Ironic's provision states).
var ironicActs = []string{"inspecting", "deploying", "cleaning"}

// rest is what is left.
var rest = []rule{
	{
		name:     "inspecting",
		meaning:  "its agent examines the hardware",
		percent:  30,
		since:    hostSince,
		matches:  func(v View) bool { return hostState(v, "inspecting") },
		sentence: fixedSentence("is being inspected"),
	},
	{
		name:     "deprovisioning",
		meaning:  "its system is being taken off",
		percent:  0,
		since:    hostSince,
		matches:  func(v View) bool { return hostState(v, "deprovisioning") },
		sentence: fixedSentence("is being given back: its system is taken off"),
	},
	{
		name:     "at-work",
		meaning:  "anything else",
		percent:  45,
		since:    hostSince,
		matches:  func(View) bool { return true },
		sentence: func(v View) string { return "is " + stateName(v) },
	},
}
