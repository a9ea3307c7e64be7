package why

import (
	"fmt"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/verify/bmc"
	"firstlight.dev/firstlight/pxe/record"
)

// How long what usually takes seconds may take before it is called stuck.
const (
	firmware = 10 * time.Minute // from power to the first packet: large servers count their memory
	step     = 3 * time.Minute  // between two steps on the wire
	ramdisk  = 10 * time.Minute // from the ramdisk's last byte to its agent's first call, and from that to the image
	starting = 20 * time.Minute // from installed to a login: the firmware once more, and a first boot
	handing  = 2 * time.Minute  // from a passed pre-flight to a host
)

// situations is the list. What stands further up wins: what is certain before what is likely,
// what failed before what goes on.
var situations = slices.Concat(stale, strangers, before, service, wrong, underway, onTheWire, rest)

// stale is when what is known of hosts is old: nothing that follows may be told as of now.
var stale = []situation{
	{name: "api-silent", means: "the API server stopped answering: the BareMetalHosts are those of an earlier time",
		when: func(v View) bool { return !v.Silent.IsZero() && (v.Node != nil || v.Host != nil) },
		say: func(v View) string {
			state := "not handed over"
			switch {
			case v.Proven:
				state = "installed and proven"
			case v.Host != nil:
				state = stateName(v)
			}
			return fmt.Sprintf("was %s at %s; nothing newer is known, the API server has not answered since", state, v.Silent.UTC().Format("2006-01-02 15:04:05 UTC"))
		},
		next:  fix("look at firstlightd status and at the API server's log below /var/log/pods; it goes on by itself when that answers, and running nodes are left alone"),
		since: func(v View) time.Time { return v.Silent }},
}

// strangers are machines that the site does not name.
var strangers = []situation{
	{name: "not-in-site", means: "a machine on the provisioning network that site.yaml does not name",
		when: func(v View) bool { return v.Node == nil && v.Host == nil },
		say:  say("is not in site.yaml: when it boots from the network it is looked at, and never written to"),
		next: fix("add it to nodes in site.yaml with this MAC, if it is to be installed"), since: func(v View) time.Time {
			if v.Wire == nil {
				return time.Time{}
			}
			return v.Wire.First
		}},
	{name: "removed", means: "a host whose node was taken out of site.yaml",
		when: func(v View) bool { return v.Node == nil },
		say:  func(v View) string { return "is not in site.yaml any more: it is left as it is, " + stateName(v) },
		next: func(v View) string {
			return fmt.Sprintf("to give it up, run: kubectl -n metal3 delete bmh %s (docs/metal.md says what that does)", v.Name)
		}},
}

// preflight makes a situation of a failed check.
func preflight(name, check, means string, verdicts ...bmc.Verdict) situation {
	return situation{name: name, means: means, fails: true, percent: 0, since: asked,
		when: func(v View) bool {
			c, failed := problem(v.Preflight)
			return !v.Passed && failed && c.Name == check && (v.Host == nil || hostState(v, "available", "ready")) &&
				(len(verdicts) == 0 || slices.Contains(verdicts, v.BMC))
		},
		say: func(v View) string {
			c, _ := problem(v.Preflight)
			if v.Host != nil {
				return "gets no image yet: " + c.Text
			}
			return "is not switched on: " + c.Text
		},
		next: func(v View) string { c, _ := problem(v.Preflight); return c.Fix }}
}

// before is what comes before the first power action.
var before = []situation{
	{name: "proven", means: "every check of the installed system held", percent: 100, since: deployed,
		when: func(v View) bool { return v.Proven && v.Host != nil && v.Held == "" && hostError(v) == "" },
		say:  say("is installed and proven")},
	{name: "appliance-starting", means: "the appliance itself is not ready to hand nodes over",
		when: func(v View) bool { return v.Appliance != "" },
		say:  func(v View) string { return "waits for the appliance: " + v.Appliance }},
	preflight("bmc-silent", "bmc", "pre-flight: the BMC does not answer", bmc.Silent),
	preflight("bmc-refused", "bmc", "pre-flight: the BMC refuses user or password", bmc.Refused),
	preflight("bmc-unfit", "bmc", "pre-flight: the BMC answers and cannot be used", bmc.Unfit),
	preflight("mac-twice", "macs", "pre-flight: something else has one of its MACs"),
	preflight("address-taken", "addresses", "pre-flight: somebody uses its static address"),
	preflight("router-silent", "gateway", "pre-flight: a router that it is given does not answer"),
	preflight("resolver-silent", "dns", "pre-flight: a resolver that it is given does not answer"),
	preflight("foreign-dhcp", "dhcp", "pre-flight: a foreign DHCP server is on the provisioning network"),
	preflight("image-unfit", "image", "pre-flight: its image is not there, or does not fit"),
	preflight("clock-wrong", "clock", "pre-flight: the appliance's clock cannot be right"),
	{name: "preflight", means: "its pre-flight is being asked", percent: 1, since: asked,
		when: func(v View) bool { return v.Host == nil && !v.Passed && v.Held == "" },
		say: func(v View) string {
			if c, _ := problem(v.Preflight); c.Name != "" {
				return fmt.Sprintf("is not switched on yet: pre-flight waits for %s: %s", c.Name, c.Text)
			}
			return "is not switched on yet: its pre-flight is being asked"
		}},
	{name: "held", means: "the hand-over holds it back: a person must decide", fails: true, percent: 10, since: asked,
		when: func(v View) bool {
			return v.Held != "" && !disks(v) && !containsAny(v.Held, "is not empty", "is not known what its disk") && (v.Host == nil || !v.Host.Paused)
		},
		say:  func(v View) string { return "is held back: " + v.Held },
		next: fix("mend what is named, in site.yaml or on the server")},
	{name: "disk-ambiguous", means: "inspection found none or several disks that rootDevice fits", fails: true, percent: 40,
		when: disks,
		say:  func(v View) string { return "is not written to: " + v.Held },
		next: fix("name exactly one disk in rootDevice, best by its serialNumber or wwn, then run firstlightd reload")},
	{name: "disk-not-empty", means: "the disk holds data, and site.yaml gives no consent", fails: true, percent: 40,
		when: func(v View) bool {
			return v.Host != nil && containsAny(v.Held, "is not empty", "is not known what its disk")
		},
		say:  func(v View) string { return "is not written to: " + v.Held },
		next: fix("look at what is on that disk; set overwrite: true for this node in site.yaml if it may be lost, then run firstlightd reload")},
	{name: "absent", means: "pre-flight passed, and there is still no BareMetalHost", fails: true, percent: 2, since: asked,
		when: func(v View) bool { return v.Host == nil && v.Now.Sub(v.Asked) >= handing },
		say:  say("is in site.yaml and has no BareMetalHost"),
		next: fix("look at firstlightd status and journalctl -u firstlightd for what keeps it from being made")},
	{name: "handing-over", means: "pre-flight passed; its BareMetalHost is being made", percent: 2, since: asked,
		when: func(v View) bool { return v.Host == nil },
		say:  say("passed its pre-flight and is being handed over")},
}

func disks(v View) bool {
	return v.Host != nil && containsAny(v.Held, "rootDevice fits", "found no disk")
}

func stateName(v View) string {
	if v.Host.State == "" {
		return "not registered"
	}
	return v.Host.State
}

// service is what a node that was installed can be, or is meant to be left as.
var service = []situation{
	{name: "restoring", means: "the API had lost it; it is taken over again from its record", percent: 90,
		when: func(v View) bool { return v.Host.Paused && v.Held != "" },
		say:  func(v View) string { return "was in service and is being taken over again: " + v.Held }},
	{name: "paused", means: "its host has the annotation baremetalhost.metal3.io/paused", fails: true,
		when: func(v View) bool { return v.Host.Paused },
		say:  func(v View) string { return "is paused: Metal3 leaves it as it is, " + stateName(v) },
		next: func(v View) string {
			return fmt.Sprintf("to go on, run: kubectl -n metal3 annotate bmh %s baremetalhost.metal3.io/paused-", v.Name)
		}},
	{name: "bmc-lost", means: "it is in service, and its BMC does not answer any more", percent: 90, fails: true,
		when: func(v View) bool { return v.Host.InService() && hostError(v) != "" },
		say: func(v View) string {
			return "is in service and left alone, but it cannot be switched on or off: " + text(hostError(v))
		},
		next: fix("look at the BMC's cable, address and password")},
	{name: "off", means: "installed, and its BMC says that the power is off", percent: 90, fails: true, since: deployed,
		when: func(v View) bool { return silent(v) && power(v) == "off" && v.Now.Sub(v.Host.Deployed) >= step },
		say:  say("is installed and switched off"),
		next: fix("press its power button, or set spec.online of its BareMetalHost")},
	{name: "disk-not-booting", means: "installed, and its firmware asks the network again and again", percent: 90, fails: true, since: deployed,
		when: func(v View) bool {
			m := diskScript(v)
			return silent(v) && m.Count > 2 && m.Time.After(v.Host.Deployed)
		},
		say:  say("is installed, but its firmware does not start the disk: it asks the network again and again what to boot"),
		next: fix("look at bootMode in site.yaml (UEFI or legacy must be what the firmware does) and at the firmware's boot order")},
	{name: "booted-silent", means: "installed, and for twenty minutes nobody answers SSH", percent: 92, fails: true, since: deployed,
		when: func(v View) bool { return silent(v) && v.Now.Sub(v.Host.Deployed) >= starting },
		say: func(v View) string {
			c, _ := problem(v.Checks)
			return "is installed and does not answer: " + c.Text
		},
		next: fix("look at its console; look at links in site.yaml: does the appliance have a way to one of its addresses?")},
	{name: "starting", means: "installed; its system starts", percent: 92, since: deployed,
		when: silent, say: say("is installed and starts its own system")},
	{name: "stranger", means: "at its address another machine answers", percent: 92, fails: true, since: deployed,
		when: answers("stranger"), say: installedBut, next: wayOut},
	{name: "locked-out", means: "it answers SSH and does not let the appliance in", percent: 92, fails: true, since: deployed,
		when: answers("locked"), say: installedBut, next: wayOut},
	{name: "odd-system", means: "it lets the appliance in, and the commands of any Linux do not work", percent: 92, fails: true, since: deployed,
		when: answers("odd"), say: installedBut, next: wayOut},
	{name: "wrong-network", means: "installed; links, addresses, router or resolver are not as given", percent: 95, fails: true, since: deployed,
		when: failing("links", "addresses", "gateway", "dns"), say: installedBut, next: wayOut},
	{name: "wrong-clock", means: "installed, and its clock is off", percent: 95, fails: true, since: deployed,
		when: failing("clock"), say: installedBut, next: wayOut},
	{name: "checking", means: "installed; its checks are being asked", percent: 95, since: deployed,
		when: func(v View) bool { return v.Host.InService() },
		say:  say("is installed and being proven")},
}

// diskScript is the mark of being told to boot the disk.
func diskScript(v View) record.Mark {
	if v.Wire == nil {
		return record.Mark{}
	}
	i := slices.IndexFunc(v.Wire.Marks, func(m record.Mark) bool { return m.Step == record.StepScript && m.Detail == "disk" })
	if i < 0 {
		return record.Mark{}
	}
	return v.Wire.Marks[i]
}

func silent(v View) bool {
	return v.Host.InService() && !v.Proven && (v.Answer == "silent" || v.Answer == "")
}

func power(v View) string {
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

func answers(verdict string) func(View) bool {
	return func(v View) bool {
		_, failed := problem(v.Checks)
		return v.Host.InService() && failed && string(v.Answer) == verdict
	}
}

func failing(checks ...string) func(View) bool {
	return func(v View) bool {
		c, failed := problem(v.Checks)
		return v.Host.InService() && failed && slices.Contains(checks, c.Name)
	}
}

func installedBut(v View) string {
	c, _ := problem(v.Checks)
	return "is installed, but " + c.Text
}

func wayOut(v View) string {
	c, _ := problem(v.Checks)
	if c.State != status.CheckFailed {
		return ""
	}
	return c.Fix
}
