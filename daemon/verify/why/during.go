package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/pxe/record"
)

func containsAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// failure makes a situation of an error that the operator or Ironic names. The words are
// those of Ironic 29 and its agent.
func failure(name, means, sentence, next string, words ...string) situation {
	return situation{name: name, means: means, fails: true, percent: 30, since: hostSince,
		when: func(v View) bool { return says(v, words...) },
		say:  func(v View) string { return sentence + ": " + detail(v) },
		next: fix(next)}
}

// detail is the error with what the ramdisk's log adds to it.
func detail(v View) string {
	s := text(hostError(v))
	if v.Log != "" && !strings.Contains(s, v.Log) {
		s += " (ramdisk: " + text(v.Log) + ")"
	}
	return s
}

// interrupted tells whether an error is that of work which Ironic, starting, finds begun by its last life.
func interrupted(text string) bool { return strings.Contains(text, "can't be resumed by conductor") }

// timeout tells whether the error is a timeout of a ramdisk.
func timeout(v View) bool { return says(v, "timeout reached while", "waiting for callback") }

// callback tells whether a timeout of a ramdisk is what went wrong: how far it came on the wire says more
// than the timeout. The operator keeps the error while it tries again; of a machine that is heard at this
// moment it says nothing.
func callback(v View) bool { return timeout(v) && !astir(v) }

// astir tells whether a machine that is to boot is heard on the wire, or was so shortly before that the
// next step may follow.
func astir(v View) bool {
	patience := step
	if slices.Contains([]record.Step{record.StepRamdisk, stepSystem}, far(v).Step) {
		patience = ramdisk
	}
	return booting(v) && boot(v) != nil && v.Now.Sub(v.Wire.Last.Time) < patience
}

// wrong are errors of work that was under way.
var wrong = []situation{
	{name: "interrupted", means: "Ironic was at work when the appliance lost its power or Ironic was started again", percent: 12, since: hostSince,
		when: func(v View) bool { return v.Host != nil && interrupted(v.Host.Error) },
		say: func(v View) string {
			return fmt.Sprintf("was %s when the appliance was started again, which ended that; it is begun anew in some minutes", stateName(v))
		},
		next: fix("nothing")},
	failure("bmc-refusing", "the BMC took the password in pre-flight and refuses it now", "cannot go on, its BMC refuses user or password",
		"correct bmc.username or bmc.password in site.yaml, then run firstlightd reload", "returned code 401", "returned code 403", "credentials are not valid", "invalid credentials"),
	{name: "bmc-gone", means: "its BMC stopped answering while it is worked on; Ironic asks it again every few minutes", fails: true, percent: 30,
		when: func(v View) bool {
			return v.Ironic != nil && strings.Contains(v.Ironic.Maintenance, "sync_power_state") || says(v, "redfish connection failed")
		},
		say:  say("cannot go on: its BMC does not answer Ironic any more, or refuses it"),
		next: fix("look at the BMC's cable, address, user and password; it goes on by itself some minutes after the BMC answers")},
	{name: "maintenance", means: "Ironic was told to keep its hands off", fails: true, percent: 30,
		when: func(v View) bool { return v.Ironic != nil && v.Ironic.Maintenance != "" },
		say:  func(v View) string { return "is in maintenance in Ironic: " + v.Ironic.Maintenance },
		next: func(v View) string {
			return fmt.Sprintf("when it is mended, run: baremetal node maintenance unset metal3~%s", v.Name)
		}},
	failure("checksum", "the image's digest is another one", "was not installed, its image is damaged or another one",
		"correct os.sha256 in site.yaml, or put the right image there", "failed to verify against checksum", "verifying image checksum", "checksum mismatch"),
	failure("disk-too-small", "the image does not fit on the disk", "was not installed, its disk is too small",
		"give it a larger disk, or name another one in rootDevice", "no space left", "is too small", "too big", "larger than the", "not enough space", "requires a minimum"),
	failure("no-disk", "the agent finds no disk that the hints name", "was not installed, it has no such disk",
		"correct rootDevice in site.yaml; kubectl -n metal3 get bmh -o yaml shows which disks it has", "no suitable device", "unable to find root device", "root device hints", "no disks"),
	failure("disk-broken", "a write to the disk failed (the agent calls it a download that failed)", "was not installed, its disk cannot be written",
		"replace that disk, or name another one in rootDevice; the kernel's log from the ramdisk is below /var/lib/ironic/log/deploy", "unable to write image to device"),
	{name: "image-unreachable", means: "the agent cannot download the image", fails: true, percent: 30, since: hostSince,
		when: func(v View) bool {
			return says(v, "error downloading image", "download of image", "image download") ||
				says(v, "write_image failed", "execute_deploy_step") && says(v, "cannot be reached:", "read timed out", "connection aborted")
		},
		say:  func(v View) string { return "could not load its image: " + detail(v) },
		next: fix("look at whether the image's address answers from the provisioning network")},
	failure("boot-loader", "the image was written and cannot be made to boot", "was written, but cannot be made to boot",
		"look at whether the image boots by bootMode (UEFI needs an EFI system partition)", "bootloader", "efibootmgr", "efi system partition"),
	{name: "no-callback", means: "its ramdisk was sent and its agent never called", fails: true, percent: 25, since: hostSince,
		when: func(v View) bool {
			return callback(v) && slices.Contains(way[slices.Index(way, record.StepRamdisk):], far(v).Step) || stuckRamdisk(v)
		},
		say: func(v View) string {
			if far(v).Step == stepSystem {
				return "loaded its ramdisk and got an address, but the agent in it never called"
			}
			return "loaded its ramdisk, but the agent in it never called"
		},
		next: fix("look at its console: does the ramdisk find its NIC and get an address? A NIC without a driver in Debian's kernel shows there")},
	{name: "boot-timeout", means: "Ironic waited in vain for its agent, and it had not come so far on the wire", fails: true, percent: 15, since: hostSince,
		when: callback,
		say:  func(v View) string { return "did not boot in time: " + wireText(v) },
		next: fix("look at its console, at its boot order (network first, IPv4) and at the cable of its boot NIC; it is tried again by itself")},
	{name: "power-refused", means: "its BMC does not do what it is told", fails: true, percent: 12, since: hostSince,
		when: func(v View) bool {
			return hostError(v) != "" && v.Host.ErrorType == "power management error" || says(v, "failed to set node power state")
		},
		say:  func(v View) string { return "cannot be switched on or off: " + detail(v) },
		next: fix("look at the BMC: restart it, or press the server's power button")},
	{name: "registration", means: "the BMC answered the pre-flight, and Ironic cannot speak to it now", fails: true, percent: 5, since: hostSince,
		when: func(v View) bool { return hostError(v) != "" && containsAny(v.Host.ErrorType, "registration error") },
		say:  func(v View) string { return "cannot be registered: " + detail(v) },
		next: fix("look at the BMC's cable, address and password; it is tried again by itself")},
	{name: "error", means: "any other error of the operator's or Ironic's", fails: true, percent: 20, since: hostSince,
		when: func(v View) bool { return hostError(v) != "" && !timeout(v) },
		say:  func(v View) string { return fmt.Sprintf("failed while %s: %s", stateName(v), detail(v)) },
		next: fix("it is tried again by itself, more and more rarely; firstlightd bundle collects what is needed to find out")},
}

func loaded(m record.Mark) bool { return m.Error == "" && (m.Total == 0 || m.Bytes >= m.Total) }

func stuckRamdisk(v View) bool {
	return at(v, ramdisk, record.StepRamdisk, stepSystem) && loaded(far(v)) && !alive(v)
}

// unread tells whether its living agent is to write the image, and loaded none from here.
func unread(v View) bool {
	return hostState(v, "provisioning") && alive(v) && v.Ironic.Step == "write_image" && (boot(v) == nil || far(v).Step != record.StepImage)
}

// elsewhere tells whether the site names the image by an address, which may be another server's.
func elsewhere(v View) bool { return v.Node != nil && v.Node.OS.URL != "" }

// wireText is how far a machine came, after a timeout.
func wireText(v View) string {
	if boot(v) == nil {
		return "nothing was heard of it on the provisioning network"
	}
	m := far(v)
	done := map[record.Step]string{
		record.StepDiscover: "it asked for an address and was given none", record.StepOffer: "it was offered an address and did not take it",
		record.StepLease: "it got an address and loaded nothing", record.StepTFTP: "it loaded " + m.Detail + " and asked for nothing more",
		record.StepBootFile: "it loaded " + m.Detail + " and asked for nothing more", record.StepScript: "it got its script and loaded no kernel",
		record.StepKernel: "it stopped at its kernel, " + megabytes(m),
	}[m.Step]
	if m.Refused != "" {
		done += ": " + m.Refused
	}
	return done
}

// underway is work that an agent does, or that needs none.
var underway = []situation{
	{name: "no-bmc", means: "site.yaml gives it no BMC", percent: 5, fails: true,
		when: func(v View) bool { return hostState(v, "unmanaged") },
		say:  say("has no BMC in site.yaml: the appliance cannot switch it on"),
		next: fix("add bmc to this node in site.yaml")},
	{name: "delayed", means: "the operator works on as many hosts as it may", percent: 10,
		when: func(v View) bool { return v.Host.Operational == "delayed" },
		say:  say("waits its turn: as many servers as may be are worked on already")},
	{name: "registering", means: "Ironic speaks to its BMC for the first time", percent: 5, since: hostSince,
		when: func(v View) bool { return hostState(v, "", "registering") },
		say:  say("is being registered: Ironic speaks to its BMC")},
	{name: "inspected", means: "inspected; it gets its image next", percent: 40, since: hostSince,
		when: func(v View) bool { return hostState(v, "available", "ready", "match profile") },
		say:  say("is inspected and gets its image next")},
	{name: "deleting", means: "its owner deletes it", percent: 0,
		when: func(v View) bool { return hostState(v, "deleting", "powering off before delete") },
		say:  say("is being removed from Metal3, as somebody asked")},
	{name: "writing", means: "its agent loads the image and writes it", percent: 50, since: hostSince,
		when: func(v View) bool {
			return hostState(v, "provisioning") && boot(v) != nil && far(v).Step == record.StepImage && v.Now.Sub(v.Wire.Last.Time) < step && !loaded(far(v))
		},
		say: func(v View) string { return "writes its image to disk, " + megabytes(far(v)) }},
	{name: "agent-no-image", means: "its agent is alive, and for ten minutes did not ask for the image", percent: 48, fails: true, since: hostSince,
		when: func(v View) bool { return unread(v) && !elsewhere(v) && v.Now.Sub(begun(v)) >= ramdisk },
		say:  func(v View) string { return "runs its agent, but that does not load the image" },
		next: fix("look at whether the image's address answers from the provisioning network, and at the server's console")},
	{name: "writing-unseen", means: "its agent writes an image that another server offers: how much of it, nobody here sees", percent: 50, since: hostSince,
		when: func(v View) bool { return unread(v) && elsewhere(v) },
		say:  func(v View) string { return "writes its image to disk, from " + string(v.Node.OS.URL) }},
	{name: "agent-at-work", means: "its agent is alive and does a step of Ironic's", percent: 45, since: hostSince,
		when: func(v View) bool { return booting(v) && v.Host.State != "inspecting" && alive(v) },
		say: func(v View) string {
			if v.Ironic.Step == "" {
				return fmt.Sprintf("is %s: its agent is at work", v.Host.State)
			}
			return fmt.Sprintf("is %s: its agent does %s", v.Host.State, strings.ReplaceAll(v.Ironic.Step, "_", " "))
		}},
	{name: "agent-silent", means: "its agent called since this began, and for four minutes did not", percent: 48, fails: true,
		since: func(v View) time.Time { return v.Ironic.Heartbeat },
		when: func(v View) bool {
			return booting(v) && v.Ironic != nil && v.Ironic.Heartbeat.After(begun(v)) && !alive(v) &&
				(boot(v) == nil || !v.Wire.Since.After(v.Ironic.Heartbeat) && v.Now.Sub(v.Wire.Last.Time) >= step)
		},
		say: func(v View) string {
			s := fmt.Sprintf("is %s, but its agent has not called since %s", v.Host.State, v.Ironic.Heartbeat.UTC().Format("15:04:05 UTC"))
			if power(v) == "off" {
				s += ", and its power is off"
			}
			return s
		},
		next: fix("look at its power, its console and its cable; it goes on when the agent calls again, and is begun anew when Ironic's time for it is up")},
	{name: "power-off", means: "it is to boot, and its BMC says that the power is off", percent: 12, fails: true, since: hostSince,
		when: func(v View) bool {
			return booting(v) && power(v) == "off" && boot(v) == nil && v.Now.Sub(begun(v)) >= step
		},
		say:  func(v View) string { return fmt.Sprintf("is to be %s, but its power is off", v.Host.State) },
		next: fix("look at whether the server has mains power and can be switched on by its button; Ironic goes on by itself")},
}

// onTheWire is how far a machine came that is to boot the ramdisk.
var onTheWire = []situation{
	{name: "wrong-nic", means: "another NIC of it asks on the provisioning network than bootMAC says", percent: 12, fails: true, since: hostSince,
		when: func(v View) bool { return booting(v) && boot(v) == nil && v.OtherNIC != "" },
		say: func(v View) string {
			return fmt.Sprintf("boots from its NIC %s, site.yaml says bootMAC %s", v.OtherNIC, v.Node.BootMAC)
		},
		next: fix("plug the cable into the NIC of bootMAC, or correct bootMAC in site.yaml")},
	{name: "dhcp-silent", means: "it is to boot while our DHCP is silent because of a foreign server", percent: 12, fails: true, since: hostSince,
		when: func(v View) bool {
			return booting(v) && v.Foreign != "" && (boot(v) == nil || at(v, 0, record.StepDiscover))
		},
		say:  func(v View) string { return "cannot boot: " + v.Foreign },
		next: fix("switch that DHCP server off or unplug it; everything goes on by itself")},
	{name: "firmware", means: "switched on; nothing was heard yet", percent: 12, since: hostSince,
		when: func(v View) bool { return booting(v) && boot(v) == nil && v.Now.Sub(begun(v)) < firmware },
		say:  say("is switched on and has not asked for an address yet: its firmware starts")},
	{name: "never-seen", means: "switched on, and for ten minutes nothing was heard on the wire", percent: 12, fails: true, since: hostSince,
		when: func(v View) bool { return booting(v) && boot(v) == nil },
		say:  say("was switched on and never heard on the provisioning network"),
		next: fix("look at the cable of its boot NIC and the switch port's VLAN, at bootMAC in site.yaml, and whether its firmware boots from the network (IPv4)")},
	{name: "dhcp-refused", means: "it asks for an address and is refused", percent: 14, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, 0, record.StepDiscover) && far(v).Refused != "" },
		say:  func(v View) string { return "asks for an address and is given none: " + far(v).Refused },
		next: fix("make room in networks.provisioning.dhcp.range of site.yaml, or mend what is named")},
	{name: "no-request", means: "DISCOVER and OFFER, but no REQUEST", percent: 14, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, step, record.StepDiscover, record.StepOffer) },
		say:  say("asks for an address and does not take the one it is offered: our answers do not reach it, or another server's does"),
		next: fix("look for another DHCP server and at the switch (port security, spanning tree without edge ports)")},
	{name: "no-tftp", means: "it has an address and loads no boot program", percent: 15, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, step, record.StepLease) },
		say: func(v View) string {
			s := fmt.Sprintf("has the address %s and loads no boot program", v.Wire.Addr)
			if far(v).Detail != "" {
				s += " (" + far(v).Detail + ")"
			}
			for _, m := range v.Wire.Marks {
				if m.NotGiven() {
					s += fmt.Sprintf("; it asked for %s: %s", m.Detail, m.Refused)
				}
			}
			return s
		},
		next: fix("look at its console and its boot mode; a firewall between it and the appliance must let TFTP (UDP 69) and HTTP through")},
	{name: "no-script", means: "it loaded a boot program and asks for no script", percent: 16, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, step, record.StepTFTP, record.StepBootFile) },
		say:  func(v View) string { return fmt.Sprintf("loaded %s and asks for no script", far(v).Detail) },
		next: fix("look at its console: iPXE may lack a driver for the NIC, or the switch port is slow to forward (make it an edge port)")},
	{name: "script-refused", means: "it asks what to boot and is told to wait", percent: 17, since: lastSeen,
		when: func(v View) bool { return at(v, 0, record.StepScript) && far(v).Refused != "" },
		say:  func(v View) string { return "asks what to boot and is told to wait: " + far(v).Refused }},
	{name: "no-kernel", means: "it got its script and loads no kernel", percent: 18, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, step, record.StepScript) },
		say:  say("got its script and loads no kernel"),
		next: fix("look at its console for what iPXE says")},
	{name: "load-stalled", means: "the download of kernel or ramdisk stands still", percent: 20, fails: true, since: lastSeen,
		when: func(v View) bool { return at(v, step, record.StepKernel, record.StepRamdisk) && !loaded(far(v)) },
		say:  func(v View) string { return fmt.Sprintf("stopped loading %s at %s", far(v).Detail, megabytes(far(v))) },
		next: fix("look at the cable and the switch: something loses packets; it boots again by itself when Ironic's time is up")},
	{name: "loading", means: "it loads kernel or ramdisk", percent: 18, since: lastSeen,
		when: func(v View) bool { return at(v, 0, record.StepKernel, record.StepRamdisk) && !loaded(far(v)) },
		say:  func(v View) string { return fmt.Sprintf("loads its %s, %s", far(v).Step, megabytes(far(v))) }},
	{name: "ramdisk-starting", means: "the ramdisk was sent; its agent did not call yet", percent: 25, since: lastSeen,
		when: func(v View) bool { return at(v, 0, record.StepRamdisk, stepSystem) && !alive(v) },
		say:  say("starts its ramdisk")},
	{name: "netbooting", means: "between two steps of its network boot", percent: 15, since: lastSeen,
		when: func(v View) bool {
			return at(v, 0, record.StepDiscover, record.StepOffer, record.StepLease, record.StepTFTP, record.StepBootFile, record.StepScript, record.StepKernel)
		},
		say: func(v View) string {
			return "boots from the network: " + map[record.Step]string{
				record.StepDiscover: "it asks for an address", record.StepOffer: "it is offered an address", record.StepLease: "it has its address",
				record.StepTFTP: "it loads " + far(v).Detail, record.StepBootFile: "it loads " + far(v).Detail,
				record.StepScript: "it got its script", record.StepKernel: "it has its kernel"}[far(v).Step]
		}},
}

// rest is what is left.
var rest = []situation{
	{name: "inspecting", means: "its agent looks at the hardware", percent: 30, since: hostSince,
		when: func(v View) bool { return hostState(v, "inspecting") },
		say:  say("is being inspected")},
	{name: "deprovisioning", means: "its system is being taken off", percent: 0, since: hostSince,
		when: func(v View) bool { return hostState(v, "deprovisioning") },
		say:  say("is being given back: its system is taken off")},
	{name: "at-work", means: "anything else", percent: 45, since: hostSince,
		when: func(View) bool { return true },
		say:  func(v View) string { return "is " + stateName(v) }},
}
