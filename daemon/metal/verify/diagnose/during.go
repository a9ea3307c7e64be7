package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/pxe/boottrace"
)

// failureRule makes a situation of an error that the operator or Ironic names. The words are
// those of Ironic 29 and its agent.
func failureRule(name, means, sentence, next string, words ...string) rule {
	return rule{
		name:     name,
		meaning:  means,
		fails:    true,
		percent:  30,
		since:    hostSince,
		matches:  func(v View) bool { return mentions(v, words...) },
		sentence: func(v View) string { return sentence + ": " + errorDetail(v) },
		next:     fixedNext(next),
	}
}

// errorDetail is the error with what the ramdisk's log adds to it.
func errorDetail(v View) string {
	s := firstSentence(hostError(v))
	if v.Log != "" && !strings.Contains(s, v.Log) {
		s += " (ramdisk: " + firstSentence(v.Log) + ")"
	}
	return s
}

// isInterrupted tells whether an error is that of work which Ironic, starting, finds begun by its last life.
func isInterrupted(text string) bool { return strings.Contains(text, "can't be resumed by conductor") }

// isTimeout tells whether the error is a timeout of a ramdisk.
func isTimeout(v View) bool { return mentions(v, "timeout reached while", "waiting for callback") }

// isCallbackTimeout tells whether a timeout of a ramdisk is what went wrong: how far it came on the wire says more
// than the timeout. The operator keeps the error while it tries again; of a machine that is heard at this
// moment it says nothing.
func isCallbackTimeout(v View) bool { return isTimeout(v) && !isActive(v) }

// isActive tells whether a machine that is to boot is heard on the wire, or was so shortly before that the
// next step may follow.
func isActive(v View) bool {
	patience := step
	if slices.Contains([]boottrace.Step{boottrace.StepRamdisk, stepSystem}, furthestMark(v).Step) {
		patience = ramdisk
	}
	return isBooting(v) && currentBoot(v) != nil && v.Now.Sub(v.BootTrace.Last.Time) < patience
}

// errorRules are errors of work that was under way.
var errorRules = []rule{
	{
		name:    "interrupted",
		meaning: "Ironic was at work when the appliance lost its power or Ironic was started again",
		percent: 12,
		since:   hostSince,
		matches: func(v View) bool { return v.Host != nil && isInterrupted(v.Host.Error) },
		sentence: func(v View) string {
			return fmt.Sprintf(
				"was %s when the appliance was started again, which ended that; it is begun anew in some minutes",
				stateName(v),
			)
		},
		next: fixedNext("nothing"),
	},
	failureRule("bmc-refusing", "the BMC took the password in pre-flight and refuses it now", "cannot go on, its BMC refuses user or password",
		"correct bmc.username or bmc.password in site.yaml, then run firstlightd reload", "returned code 401", "returned code 403", "credentials are not valid", "invalid credentials"),
	{
		name:    "bmc-gone",
		meaning: "its BMC stopped answering while it is worked on; Ironic asks it again every few minutes",
		fails:   true,
		percent: 30,
		matches: func(v View) bool {
			return v.Ironic != nil && strings.Contains(
				v.Ironic.Maintenance, "sync_power_state",
			) || mentions(v, "redfish connection failed")
		},
		sentence: fixedSentence("cannot go on: its BMC does not answer Ironic any more, or refuses it"),
		next:     fixedNext("look at the BMC's cable, address, user and password; it goes on by itself some minutes after the BMC answers"),
	},
	{name: "maintenance", meaning: "Ironic was told to keep its hands off", fails: true, percent: 30,
		matches:  func(v View) bool { return v.Ironic != nil && v.Ironic.Maintenance != "" },
		sentence: func(v View) string { return "is in maintenance in Ironic: " + v.Ironic.Maintenance },
		next: func(v View) string {
			return fmt.Sprintf("when it is mended, run: baremetal node maintenance unset metal3~%s", v.Name)
		}},
	failureRule("disk-changed", "right before the image was written, the disk was not what inspection had seen", "was not written to",
		"look at which disk it is; firstlightd why says how to give up what is on it; or put the right disk back, it is tried again by itself", "refused by the appliance:"),
	failureRule("checksum", "the image's digest is another one", "was not installed, its image is damaged or another one",
		"correct os.sha256 in site.yaml, or put the right image there", "failed to verify against checksum", "verifying image checksum", "checksum mismatch"),
	failureRule("disk-too-small", "the image does not fit on the disk", "was not installed, its disk is too small",
		"give it a larger disk, or name another one in rootDevice", "no space left", "is too small", "too big", "larger than the", "not enough space", "requires a minimum"),
	failureRule("no-disk", "the agent finds no disk that the hints name", "was not installed, it has no such disk",
		"correct rootDevice in site.yaml; kubectl -n metal3 get bmh -o yaml shows which disks it has", "no suitable device", "unable to find root device", "root device hints", "no disks"),
	failureRule("disk-broken", "a write to the disk failed (the agent calls it a download that failed)", "was not installed, its disk cannot be written",
		"replace that disk, or name another one in rootDevice; the kernel's log from the ramdisk is below /var/lib/ironic/log/deploy", "unable to write image to device"),
	{
		name:    "image-unreachable",
		meaning: "the agent cannot download the image",
		fails:   true,
		percent: 30,
		since:   hostSince,
		matches: func(v View) bool {
			return mentions(v, "error downloading image", "download of image", "image download") ||
				mentions(
					v, "write_image failed", "execute_deploy_step",
				) && mentions(v, "cannot be reached:", "read timed out", "connection aborted")
		},
		sentence: func(v View) string { return "could not load its image: " + errorDetail(v) },
		next:     fixedNext("look at whether the image's address answers from the provisioning network"),
	},
	failureRule("boot-loader", "the image was written and cannot be made to boot", "was written, but cannot be made to boot",
		"look at whether the image boots by bootMode (UEFI needs an EFI system partition)", "bootloader", "efibootmgr", "efi system partition"),
	{
		name:    "agent-refused",
		meaning: "what called Ironic in its name was refused: it had not the token of this boot, or said more than its own",
		fails:   true,
		percent: 25,
		since:   func(v View) time.Time { return v.Refusal.Time },
		matches: func(v View) bool {
			return isBooting(v) && v.Refusal.Sentence != "" && v.Refusal.Time.After(startedAt(v))
		},
		sentence: func(v View) string { return "is not listened to: " + v.Refusal.Sentence },
		next:     fixedNext("nothing, if it boots again; else look for another machine with its MAC or its address on the provisioning network"),
	},
	{
		name:    "no-callback",
		meaning: "its ramdisk was sent and its agent never called",
		fails:   true,
		percent: 25,
		since:   hostSince,
		matches: func(v View) bool {
			return isCallbackTimeout(v) && slices.Contains(
				way[slices.Index(way, boottrace.StepRamdisk):], furthestMark(v).Step,
			) || stuckRamdisk(v)
		},
		sentence: func(v View) string {
			if furthestMark(v).Step == stepSystem {
				return "loaded its ramdisk and got an address, but the agent in it never called"
			}
			return "loaded its ramdisk, but the agent in it never called"
		},
		next: fixedNext("look at its console: does the ramdisk find its NIC and get an address? A NIC without a driver in Debian's kernel shows there"),
	},
	{
		name:     "boot-timeout",
		meaning:  "Ironic waited in vain for its agent, and it had not come so far on the wire",
		fails:    true,
		percent:  15,
		since:    hostSince,
		matches:  isCallbackTimeout,
		sentence: func(v View) string { return "did not boot in time: " + bootProgressText(v) },
		next:     fixedNext("look at its console, at its boot order (network first, IPv4) and at the cable of its boot NIC; it is tried again by itself"),
	},
	{
		name:    "power-refused",
		meaning: "its BMC does not do what it is told",
		fails:   true,
		percent: 12,
		since:   hostSince,
		matches: func(v View) bool {
			return hostError(v) != "" && isErrorType(
				v, metal3api.PowerManagementError,
			) || mentions(v, "failed to set node power state")
		},
		sentence: func(v View) string { return "cannot be switched on or off: " + errorDetail(v) },
		next:     fixedNext("look at the BMC: restart it, or press the server's power button"),
	},
	{
		name:    "registration",
		meaning: "the BMC answered the pre-flight, and Ironic cannot speak to it now",
		fails:   true,
		percent: 5,
		since:   hostSince,
		matches: func(v View) bool {
			return hostError(v) != "" && isErrorType(
				v, metal3api.RegistrationError, metal3api.ProvisionedRegistrationError,
			)
		},
		sentence: func(v View) string { return "cannot be registered: " + errorDetail(v) },
		next:     fixedNext("look at the BMC's cable, address and password; it is tried again by itself"),
	},
	{
		name:     "error",
		meaning:  "any other error of the operator's or Ironic's",
		fails:    true,
		percent:  20,
		since:    hostSince,
		matches:  func(v View) bool { return hostError(v) != "" && !isTimeout(v) },
		sentence: func(v View) string { return fmt.Sprintf("failed while %s: %s", stateName(v), errorDetail(v)) },
		next:     fixedNext("it is tried again by itself, more and more rarely; firstlightd bundle collects what is needed to find out"),
	},
}

func isErrorType(v View, types ...metal3api.ErrorType) bool {
	return slices.Contains(types, metal3api.ErrorType(v.Host.ErrorType))
}

func isLoaded(m boottrace.Mark) bool { return m.Error == "" && (m.Total == 0 || m.Bytes >= m.Total) }

func stuckRamdisk(v View) bool {
	return stuckAt(v, ramdisk, boottrace.StepRamdisk, stepSystem) && isLoaded(furthestMark(v)) && !agentAlive(v)
}

// imageNotRead tells whether its living agent is to write the image, and loaded none from here.
func imageNotRead(v View) bool {
	return hostState(
		v, "provisioning",
	) && agentAlive(v) && v.Ironic.Step == "write_image" && (currentBoot(v) == nil || furthestMark(v).Step != boottrace.StepImage)
}

// imageElsewhere tells whether the site names the image by an address, which may be another server's.
func imageElsewhere(v View) bool { return v.Node != nil && v.Node.OS.URL != "" }

// bootProgressText is how far a machine came, after a timeout.
func bootProgressText(v View) string {
	if currentBoot(v) == nil {
		return "nothing was heard of it on the provisioning network"
	}

	m := furthestMark(v)
	done := map[boottrace.Step]string{
		boottrace.StepDiscover: "it asked for an address and was given none", boottrace.StepOffer: "it was offered an address and did not take it",
		boottrace.StepLease: "it got an address and loaded nothing", boottrace.StepTFTP: "it loaded " + m.Detail + " and asked for nothing more",
		boottrace.StepBootFile: "it loaded " + m.Detail + " and asked for nothing more", boottrace.StepScript: "it got its script and loaded no kernel",
		boottrace.StepKernel: "it stopped at its kernel, " + formatMegabytes(m),
	}[m.Step]
	if m.Refused != "" {
		done += ": " + m.Refused
	}

	return done
}

// progressRules is work that an agent does, or that needs none.
var progressRules = []rule{
	{name: "unmanaged", meaning: "its BareMetalHost has no BMC, so that Metal3 does nothing with it", percent: 5, fails: true,
		matches:  func(v View) bool { return hostState(v, "unmanaged") },
		sentence: fixedSentence("has no BMC in its BareMetalHost: Metal3 does nothing with it"),
		next:     fixedNext("give it spec.bmc, or add the server to site.yaml with its MAC")},
	{name: "delayed", meaning: "the operator works on as many hosts as it may", percent: 10,
		matches:  func(v View) bool { return v.Host.Operational == "delayed" },
		sentence: fixedSentence("waits its turn: as many servers as may be are worked on already")},
	{name: "registering", meaning: "Ironic speaks to its BMC for the first time", percent: 5, since: hostSince,
		matches:  func(v View) bool { return hostState(v, "", "registering") },
		sentence: fixedSentence("is being registered: Ironic speaks to its BMC")},
	{name: "inspected", meaning: "inspected; it gets its image next", percent: 40, since: hostSince,
		matches:  func(v View) bool { return hostState(v, "available", "ready", "match profile") },
		sentence: fixedSentence("is inspected and gets its image next")},
	{name: "deleting", meaning: "its owner deletes it", percent: 0,
		matches:  func(v View) bool { return hostState(v, "deleting", "powering off before delete") },
		sentence: fixedSentence("is being removed from Metal3, as somebody asked")},
	{
		name:     "writing",
		meaning:  "its agent loads the image and writes it",
		percent:  50,
		progress: transferProgress(35),
		since:    hostSince,
		matches: func(v View) bool {
			return hostState(
				v, "provisioning",
			) && currentBoot(v) != nil && furthestMark(v).Step == boottrace.StepImage && v.Now.Sub(v.BootTrace.Last.Time) < step && !isLoaded(furthestMark(v))
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
		next:     fixedNext("look at whether the image's address answers from the provisioning network, and at the server's console"),
	},
	{
		name:     "writing-unseen",
		meaning:  "its agent writes an image that another server offers: how much of it, nobody here sees",
		percent:  50,
		since:    hostSince,
		matches:  func(v View) bool { return imageNotRead(v) && imageElsewhere(v) },
		sentence: func(v View) string { return "writes its image to disk, from " + string(v.Node.OS.URL) },
	},
	{name: "agent-at-work", meaning: "its agent is alive and does a step of Ironic's", percent: 45, since: hostSince,
		matches: func(v View) bool { return isBooting(v) && v.Host.State != "inspecting" && agentAlive(v) },
		sentence: func(v View) string {
			if v.Ironic.Step == "" {
				return fmt.Sprintf("is %s: its agent is at work", v.Host.State)
			}
			return fmt.Sprintf("is %s: its agent does %s", v.Host.State, strings.ReplaceAll(v.Ironic.Step, "_", " "))
		}},
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
		next: fixedNext("look at its power, its console and its cable; it goes on when the agent calls again, and is begun anew when Ironic's time for it is up"),
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
		sentence: func(v View) string { return fmt.Sprintf("is to be %s, but its power is off", v.Host.State) },
		next:     fixedNext("look at whether the server has mains power and can be switched on by its button; Ironic goes on by itself"),
	},
}

// bootRules is how far a machine came that is to boot the ramdisk.
var bootRules = []rule{
	{
		name:    "wrong-nic",
		meaning: "another NIC of it asks on the provisioning network than bootMAC says",
		percent: 12,
		fails:   true,
		since:   hostSince,
		matches: func(v View) bool { return isBooting(v) && currentBoot(v) == nil && v.OtherNIC != "" },
		sentence: func(v View) string {
			return fmt.Sprintf("boots from its NIC %s, site.yaml says bootMAC %s", v.OtherNIC, v.Node.BootMAC)
		},
		next: fixedNext("plug the cable into the NIC of bootMAC, or correct bootMAC in site.yaml"),
	},
	{
		name:    "dhcp-silent",
		meaning: "it is to boot while our DHCP is silent because of a foreign server",
		percent: 12,
		fails:   true,
		since:   hostSince,
		matches: func(v View) bool {
			return isBooting(v) && v.Foreign != "" && (currentBoot(v) == nil || stuckAt(v, 0, boottrace.StepDiscover))
		},
		sentence: func(v View) string { return "cannot boot: " + v.Foreign },
		next:     fixedNext("switch that DHCP server off or unplug it; everything goes on by itself"),
	},
	{
		name:     "firmware",
		meaning:  "switched on; nothing was heard yet",
		percent:  12,
		since:    hostSince,
		matches:  func(v View) bool { return isBooting(v) && currentBoot(v) == nil && v.Now.Sub(startedAt(v)) < firmware },
		sentence: fixedSentence("is switched on and has not asked for an address yet: its firmware starts"),
	},
	{
		name:     "never-seen",
		meaning:  "switched on, and for ten minutes nothing was heard on the wire",
		percent:  12,
		fails:    true,
		since:    hostSince,
		matches:  func(v View) bool { return isBooting(v) && currentBoot(v) == nil },
		sentence: fixedSentence("was switched on and never heard on the provisioning network"),
		next:     fixedNext("look at the cable of its boot NIC and the switch port's VLAN, at bootMAC in site.yaml, and whether its firmware boots from the network (IPv4)"),
	},
	{name: "dhcp-refused", meaning: "it asks for an address and is refused", percent: 14, fails: true, since: lastSeen,
		matches:  func(v View) bool { return stuckAt(v, 0, boottrace.StepDiscover) && furthestMark(v).Refused != "" },
		sentence: func(v View) string { return "asks for an address and is given none: " + furthestMark(v).Refused },
		next:     fixedNext("make room in networks.provisioning.dhcp.range of site.yaml, or mend what is named")},
	{
		name:     "no-request",
		meaning:  "DISCOVER and OFFER, but no REQUEST",
		percent:  14,
		fails:    true,
		since:    lastSeen,
		matches:  func(v View) bool { return stuckAt(v, step, boottrace.StepDiscover, boottrace.StepOffer) },
		sentence: fixedSentence("asks for an address and does not take the one it is offered: our answers do not reach it, or another server's does"),
		next:     fixedNext("look for another DHCP server and at the switch (port security, spanning tree without edge ports)"),
	},
	{
		name:    "no-tftp",
		meaning: "it has an address and loads no boot program",
		percent: 15,
		fails:   true,
		since:   lastSeen,
		matches: func(v View) bool { return stuckAt(v, step, boottrace.StepLease) },
		sentence: func(v View) string {
			s := fmt.Sprintf("has the address %s and loads no boot program", v.BootTrace.Addr)
			if furthestMark(v).Detail != "" {
				s += " (" + furthestMark(v).Detail + ")"
			}

			for _, m := range v.BootTrace.Marks {
				if m.IsRefused() {
					s += fmt.Sprintf("; it asked for %s: %s", m.Detail, m.Refused)
				}
			}

			return s
		},
		next: fixedNext("look at its console and its boot mode; a firewall between it and the appliance must let TFTP (UDP 69) and HTTP through"),
	},
	{
		name:    "no-script",
		meaning: "it loaded a boot program and asks for no script",
		percent: 16,
		fails:   true,
		since:   lastSeen,
		matches: func(v View) bool { return stuckAt(v, step, boottrace.StepTFTP, boottrace.StepBootFile) },
		sentence: func(v View) string {
			return fmt.Sprintf(
				"loaded %s and asks for no script", furthestMark(v).Detail,
			)
		},
		next: fixedNext("look at its console: iPXE may lack a driver for the NIC, or the switch port is slow to forward (make it an edge port)"),
	},
	{name: "script-refused", meaning: "it asks what to boot and is told to wait", percent: 17, since: lastSeen,
		matches:  func(v View) bool { return stuckAt(v, 0, boottrace.StepScript) && furthestMark(v).Refused != "" },
		sentence: func(v View) string { return "asks what to boot and is told to wait: " + furthestMark(v).Refused }},
	{name: "no-kernel", meaning: "it got its script and loads no kernel", percent: 18, fails: true, since: lastSeen,
		matches:  func(v View) bool { return stuckAt(v, step, boottrace.StepScript) },
		sentence: fixedSentence("got its script and loads no kernel"),
		next:     fixedNext("look at its console for what iPXE says")},
	{
		name:    "load-stalled",
		meaning: "the download of kernel or ramdisk stands still",
		percent: 20,
		fails:   true,
		since:   lastSeen,
		matches: func(v View) bool {
			return stuckAt(v, step, boottrace.StepKernel, boottrace.StepRamdisk) && !isLoaded(furthestMark(v))
		},
		sentence: func(v View) string {
			return fmt.Sprintf("stopped loading %s at %s", furthestMark(v).Detail, formatMegabytes(furthestMark(v)))
		},
		next: fixedNext("look at the cable and the switch: something loses packets; it boots again by itself when Ironic's time is up"),
	},
	{
		name:     "loading",
		meaning:  "it loads kernel or ramdisk",
		percent:  18,
		progress: transferProgress(5),
		since:    lastSeen,
		matches: func(v View) bool {
			return stuckAt(v, 0, boottrace.StepKernel, boottrace.StepRamdisk) && !isLoaded(furthestMark(v))
		},
		sentence: func(v View) string {
			return fmt.Sprintf("loads its %s, %s", furthestMark(v).Step, formatMegabytes(furthestMark(v)))
		},
	},
	{
		name:     "ramdisk-starting",
		meaning:  "the ramdisk was sent; its agent did not call yet",
		percent:  25,
		since:    lastSeen,
		matches:  func(v View) bool { return stuckAt(v, 0, boottrace.StepRamdisk, stepSystem) && !agentAlive(v) },
		sentence: fixedSentence("starts its ramdisk"),
	},
	{
		name:    "netbooting",
		meaning: "between two steps of its network boot",
		percent: 15,
		since:   lastSeen,
		matches: func(v View) bool {
			return stuckAt(
				v, 0, boottrace.StepDiscover, boottrace.StepOffer, boottrace.StepLease, boottrace.StepTFTP,
				boottrace.StepBootFile, boottrace.StepScript, boottrace.StepKernel,
			)
		},
		sentence: func(v View) string {
			return "boots from the network: " + map[boottrace.Step]string{
				boottrace.StepDiscover: "it asks for an address", boottrace.StepOffer: "it is offered an address", boottrace.StepLease: "it has its address",
				boottrace.StepTFTP: "it loads " + furthestMark(v).Detail, boottrace.StepBootFile: "it loads " + furthestMark(v).Detail,
				boottrace.StepScript: "it got its script", boottrace.StepKernel: "it has its kernel"}[furthestMark(v).Step]
		},
	},
}

// rest is what is left.
var rest = []rule{
	{name: "inspecting", meaning: "its agent looks at the hardware", percent: 30, since: hostSince,
		matches:  func(v View) bool { return hostState(v, "inspecting") },
		sentence: fixedSentence("is being inspected")},
	{name: "deprovisioning", meaning: "its system is being taken off", percent: 0, since: hostSince,
		matches:  func(v View) bool { return hostState(v, "deprovisioning") },
		sentence: fixedSentence("is being given back: its system is taken off")},
	{name: "at-work", meaning: "anything else", percent: 45, since: hostSince,
		matches:  func(View) bool { return true },
		sentence: func(v View) string { return "is " + stateName(v) }},
}
