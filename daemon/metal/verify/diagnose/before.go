package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// How long what usually takes seconds may take before it is called stuck.
const (
	firmware = 10 * time.Minute // from power to the first packet: large servers count their memory
	step     = 3 * time.Minute  // between two steps on the wire
	ramdisk  = 10 * time.Minute // from the ramdisk's last byte to its agent's first call, and from that to the image
	starting = 20 * time.Minute // from installed to a login: the firmware once more, and a first boot
	handing  = 10 * time.Minute // from a passed pre-flight to a host, once the appliance hands over
)

// rules is the list. What stands further up wins: what is certain before what is likely,
// what failed before what goes on.
var rules = slices.Concat(
	staleRules, ownerRules, unknownMachineRules, preflightRules, serviceRules, errorRules, progressRules, discRules, bootRules, rest,
)

// staleRules is when what is known of hosts is old: nothing that follows may be told as of now.
var staleRules = []rule{
	{
		name:    "api-silent",
		meaning: "the API server stopped answering: the BareMetalHosts are those of an earlier time",
		matches: func(v View) bool { return !v.Silent.IsZero() && (v.Node != nil || v.Host != nil) },
		sentence: func(v View) string {
			state := "not handed over"
			switch {
			case v.Verified:
				state = "installed and proven"
			case v.Host != nil:
				state = stateName(v)
			}
			return fmt.Sprintf(
				"was %s at %s; nothing newer is known, the API server has not answered since", state,
				v.Silent.UTC().Format("2006-01-02 15:04:05 UTC"),
			)
		},
		next:  fixedNext("check firstlightd status and the API server's log below /var/log/pods; it continues automatically when that answers, and running nodes are left alone"),
		since: func(v View) time.Time { return v.Silent },
		progress: func(v View) int {
			if v.Verified {
				return 100
			}
			return 0
		},
	},
}

// unknownMachineRules are machines that the site does not name.
var unknownMachineRules = []rule{
	{
		name:    "not-matched",
		meaning: "a machine on the provisioning network while nodes without a MAC are not inspected yet",
		matches: func(v View) bool { return v.Node == nil && v.Host == nil && len(v.Unmatched) > 0 },
		sentence: func(v View) string {
			return "may be " + unmatchedText(v.Unmatched) + ": it is known when it was inspected, and not written to before"
		},
		since: func(v View) time.Time {
			if v.BootTrace == nil {
				return time.Time{}
			}
			return v.BootTrace.First
		},
	},
	{
		name:     "not-in-site",
		meaning:  "a machine on the provisioning network that site.yaml does not name",
		matches:  func(v View) bool { return v.Node == nil && v.Host == nil },
		sentence: fixedSentence("is not in site.yaml: when it boots from the network it is looked at, and never written to"),
		next:     fixedNext("add it to nodes in site.yaml with this MAC, if it is to be installed"),
		since: func(v View) time.Time {
			if v.BootTrace == nil {
				return time.Time{}
			}
			return v.BootTrace.First
		},
	},
	{
		name:     "removed",
		meaning:  "a host whose node was taken out of site.yaml",
		matches:  func(v View) bool { return v.Node == nil && v.FromSite },
		sentence: func(v View) string { return "is not in site.yaml any more: it is left as it is, " + stateName(v) },
		next: func(v View) string {
			return fmt.Sprintf(
				"to give it up, run: kubectl -n metal3 delete bmh %s (docs/metal.md says what that does)", v.Name,
			)
		},
	},
	{
		name:     "external",
		meaning:  "a host that someone applied as externally provisioned",
		matches:  func(v View) bool { return v.Node == nil && hostState(v, "externally provisioned") },
		sentence: fixedSentence("is externally provisioned: the appliance neither installs nor verifies it"),
	},
	{
		name:     "applied",
		meaning:  "a host that someone applied, a moment ago",
		matches:  func(v View) bool { return v.Node == nil },
		sentence: fixedSentence("was applied to the API, and its checks begin"),
	},
}

// preflightRule makes a situation of a failed check.
func preflightRule(name, check, means string, verdicts ...bmc.Verdict) rule {
	return rule{
		name:    name,
		meaning: means,
		fails:   true,
		percent: 0,
		since:   preflightSince,
		matches: func(v View) bool {
			c, failed := firstProblem(v.Preflight)
			return !v.Passed && failed && c.Name == check && (v.Host == nil || hostState(v, "available", "ready")) &&
				(len(verdicts) == 0 || slices.Contains(verdicts, v.BMC))
		},
		sentence: func(v View) string {
			c, _ := firstProblem(v.Preflight)
			if v.Host != nil {
				return "gets no image yet: " + c.Text
			}
			return "is not switched on: " + c.Text
		},
		next: func(v View) string { c, _ := firstProblem(v.Preflight); return c.Fix },
	}
}

// preflightRules is what comes before the first power action.
var preflightRules = []rule{
	{
		name:    "bmc-changed",
		meaning: "what answers as its BMC has another certificate than before: it is told no password",
		fails:   true,
		since:   func(v View) time.Time { return v.Certificate.At },
		matches: func(v View) bool { return v.Certificate != bmctrust.Change{} },
		sentence: func(v View) string {
			if v.Host != nil && v.Host.InService() {
				return "is in service and left alone, but it cannot be switched on or off: " + v.Certificate.Text()
			}
			return "is held: " + v.Certificate.Text()
		},
		next: func(v View) string { return v.Certificate.Fix(v.Name) },
		progress: func(v View) int {
			if v.Host != nil && v.Host.InService() {
				return 90
			}
			return 0
		},
	},
	{name: "proven", meaning: "every check of the installed system held", percent: 100, since: deployedAt,
		matches:  func(v View) bool { return v.Verified && v.Host != nil && !isBlocked(v) && hostError(v) == "" },
		sentence: fixedSentence("is installed and proven")},
	{name: "appliance-starting", meaning: "the appliance itself is not ready to hand nodes over",
		matches:  func(v View) bool { return v.Appliance != "" },
		sentence: func(v View) string { return "waits for the appliance: " + v.Appliance }},
	preflightRule("no-bmc", "bmc", "site.yaml gives it no BMC, and it does not boot from the network", ""),
	preflightRule("bmc-silent", "bmc", "pre-flight: the BMC does not answer", bmc.Silent),
	preflightRule("bmc-refused", "bmc", "pre-flight: the BMC refuses user or password", bmc.Refused),
	preflightRule("bmc-unfit", "bmc", "pre-flight: the BMC answers and cannot be used", bmc.Unfit),
	preflightRule(
		"no-drive", "media", "pre-flight: it is to boot from a disc, and its BMC has no drive, or its ramdisk no address",
	),
	preflightRule("running", "running", "pre-flight: it runs, and this appliance has no record of it"),
	preflightRule("mac-twice", "macs", "pre-flight: something else has one of its MACs"),
	preflightRule("address-taken", "addresses", "pre-flight: somebody uses its static address"),
	preflightRule("router-silent", "gateway", "pre-flight: a router that it is given does not answer"),
	preflightRule("resolver-silent", "dns", "pre-flight: a resolver that it is given does not answer"),
	preflightRule("foreign-dhcp", "dhcp", "pre-flight: a foreign DHCP server is on the provisioning network"),
	preflightRule("image-unfit", "image", "pre-flight: its image is not there, or does not fit"),
	preflightRule("clock-wrong", "clock", "pre-flight: the appliance's clock cannot be right"),
	{name: "preflight", meaning: "its pre-flight is being asked", percent: 1, since: preflightSince,
		matches: func(v View) bool { return v.Host == nil && !v.Passed && !isBlocked(v) },
		sentence: func(v View) string {
			if c, _ := firstProblem(v.Preflight); c.Name != "" {
				return fmt.Sprintf("is not switched on yet: pre-flight waits for %s: %s", c.Name, c.Text)
			}
			return "is not switched on yet: its pre-flight is being asked"
		}},
	{
		name:    "held",
		meaning: "the hand-over holds it back: a person must decide",
		fails:   true,
		percent: 10,
		since:   preflightSince,
		matches: func(v View) bool {
			return isBlocked(v) && !isBlockedFor(
				v, metal3.ReasonDiskAmbiguous,
			) && v.Blocked.Reason != metal3.ReasonDiskNotEmpty && v.Blocked.Reason != metal3.ReasonInstalled &&
				v.Blocked.Reason != metal3.ReasonUnsigned && (v.Host == nil || !v.Host.Paused)
		},
		sentence: func(v View) string { return "is held back: " + v.Blocked.Sentence },
		next:     fixedNext("fix what is named, in site.yaml or on the server"),
	},
	controllerBroken,
	{
		name:     "disk-ambiguous",
		meaning:  "inspection found none or several disks that rootDevice fits",
		fails:    true,
		percent:  40,
		matches:  func(v View) bool { return isBlockedFor(v, metal3.ReasonDiskAmbiguous) },
		sentence: func(v View) string { return "is not written to: " + v.Blocked.Sentence },
		next:     fixedNext("name exactly one disk in rootDevice, best by its serialNumber or wwn, then run firstlightd reload"),
	},
	{
		name:     "disk-not-empty",
		meaning:  "the disk holds data, or was not seen, and site.yaml gives no consent to lose it",
		fails:    true,
		percent:  40,
		matches:  func(v View) bool { return isBlockedFor(v, metal3.ReasonDiskNotEmpty) },
		sentence: func(v View) string { return "is not written to: " + v.Blocked.Sentence },
		next:     fixedNext("check what is on that disk; if it may be lost, give the consent that is named, in site.yaml, then run firstlightd reload"),
	},
	{
		name:     "installed-before",
		meaning:  "a disk says that an appliance installed this server, and this one has no record of it",
		fails:    true,
		percent:  40,
		matches:  func(v View) bool { return isBlockedFor(v, metal3.ReasonInstalled) },
		sentence: func(v View) string { return "is not written to: " + v.Blocked.Sentence },
		next:     fixedNext("take it back with firstlightd adopt, or give the consent that is named"),
	},
	{
		name:     "image-unsigned",
		meaning:  "site.yaml requires signed images, and none of its keys has signed this one",
		fails:    true,
		percent:  40,
		matches:  func(v View) bool { return isBlockedFor(v, metal3.ReasonUnsigned) },
		sentence: func(v View) string { return "is not written to: " + v.Blocked.Sentence },
		next: fixedNext("do what is named, or name an image that is signed or of the stick, or another key in images.keys of " +
			"site.yaml, then run firstlightd reload; it continues automatically"),
	},
	{
		name:    "absent",
		meaning: "pre-flight passed, and there is still no BareMetalHost",
		fails:   true,
		percent: 2,
		since:   preflightSince,
		matches: func(v View) bool {
			return v.Host == nil && !v.HandingSince.IsZero() &&
				v.Now.Sub(v.PreflightSince) >= handing && v.Now.Sub(v.HandingSince) >= handing
		},
		sentence: fixedSentence("is in site.yaml and has no BareMetalHost"),
		next:     fixedNext("check firstlightd status and journalctl -u firstlightd for what keeps it from being made"),
	},
	{
		name:     "handing-over",
		meaning:  "pre-flight passed; its BareMetalHost is being made",
		percent:  2,
		since:    preflightSince,
		matches:  func(v View) bool { return v.Host == nil },
		sentence: fixedSentence("passed its pre-flight and is being handed over"),
	},
}

func isBlocked(v View) bool { return v.Blocked.Reason != "" }

func isBlockedFor(v View, reason metal3.Reason) bool {
	return v.Host != nil && v.Blocked.Reason == reason
}

func stateName(v View) string {
	if v.Host.State == "" {
		return "not registered"
	}
	return v.Host.State
}

// unmatchedText names the nodes, at least one, of which a machine may be one.
func unmatchedText(nodes []string) string {
	const most = 3
	switch {
	case len(nodes) == 1:
		return nodes[0] + ", whose MAC is not known yet"
	case len(nodes) <= most:
		return "one of " + strings.Join(nodes, ", ") + ", whose MACs are not known yet"
	default:
		return fmt.Sprintf("one of %d nodes whose MACs are not known yet", len(nodes))
	}
}
