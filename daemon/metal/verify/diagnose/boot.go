package diagnose

import (
	"fmt"

	"firstlight.dev/firstlight/pxe/boottrace"
)

func isLoaded(m boottrace.Mark) bool { return m.Error == "" && (m.Total == 0 || m.Bytes >= m.Total) }

func stuckRamdisk(v View) bool {
	return stuckAt(v, ramdisk, boottrace.StepRamdisk, stepSystem) && isLoaded(furthestMark(v)) && !agentAlive(v)
}

// bootProgressText is how far a machine came, after a timeout.
func bootProgressText(v View) string {
	if currentBoot(v) == nil {
		return "nothing was heard of it on the provisioning network"
	}

	m := furthestMark(v)
	done := map[boottrace.Step]string{
		boottrace.StepDiscover: "it asked for an address and was given none",
		boottrace.StepOffer:    "it was offered an address and did not take it",
		boottrace.StepLease:    "it got an address and loaded nothing",
		boottrace.StepTFTP:     "it loaded " + m.Detail + " and asked for nothing more",
		boottrace.StepBootFile: "it loaded " + m.Detail + " and asked for nothing more",
		boottrace.StepScript:   "it got its script and loaded no kernel",
		boottrace.StepKernel:   "it stopped at its kernel, " + formatMegabytes(m),
	}[m.Step]
	if m.Refused != "" {
		done += ": " + m.Refused
	}

	return done
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
		next:     fixedNext("switch that DHCP server off or unplug it; everything continues automatically"),
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
		name:    "bmc-unnamed",
		meaning: "a node without a MAC was switched on, and for ten minutes no inventory named its BMC",
		percent: 12,
		fails:   true,
		since:   hostSince,
		matches: func(v View) bool {
			return isBooting(v) && currentBoot(v) == nil && v.Node != nil && v.Node.BootMAC == "" && len(v.Node.MACs) == 0
		},
		sentence: fixedSentence("was switched on, and no machine that booted said that its BMC is this one"),
		next: fixedNext("check firstlightd unknown: if its server is there, its system sees no BMC; give bootMAC in site.yaml, " +
			"or spec.bootMACAddress of its BareMetalHost. If it is not: at its cable, the switch port's VLAN and its boot order"),
	},
	{
		name:     "never-seen",
		meaning:  "switched on, and for ten minutes nothing was heard on the wire",
		percent:  12,
		fails:    true,
		since:    hostSince,
		matches:  func(v View) bool { return isBooting(v) && currentBoot(v) == nil },
		sentence: fixedSentence("was switched on and never heard on the provisioning network"),
		next:     fixedNext("check the cable of its boot NIC and the switch port's VLAN, bootMAC in site.yaml, and whether its firmware boots from the network (IPv4)"),
	},
	{
		name:     "dhcp-refused",
		meaning:  "it asks for an address and is refused",
		percent:  14,
		fails:    true,
		since:    lastSeen,
		matches:  func(v View) bool { return stuckAt(v, 0, boottrace.StepDiscover) && furthestMark(v).Refused != "" },
		sentence: func(v View) string { return "asks for an address and is given none: " + furthestMark(v).Refused },
		next:     fixedNext("make room in networks.provisioning.dhcp.range of site.yaml, or fix what is named"),
	},
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
		next: fixedNext("check its console and its boot mode; a firewall between it and the appliance must let TFTP (UDP 69) and HTTP through"),
	},
	{
		name:    "no-script",
		meaning: "it loaded a boot program and asks for no script",
		percent: 16,
		fails:   true,
		since:   lastSeen,
		matches: func(v View) bool { return stuckAt(v, step, boottrace.StepTFTP, boottrace.StepBootFile) },
		sentence: func(v View) string {
			return fmt.Sprintf("loaded %s and asks for no script", furthestMark(v).Detail)
		},
		next: fixedNext("check its console: Secure Boot refuses iPXE (give it bootMode: UEFISecureBoot), or iPXE lacks " +
			"a driver for the NIC, or the switch port is slow to forward (make it an edge port)"),
	},
	{
		name:     "script-refused",
		meaning:  "it asks what to boot and is told to wait",
		percent:  17,
		since:    lastSeen,
		matches:  func(v View) bool { return stuckAt(v, 0, boottrace.StepScript) && furthestMark(v).Refused != "" },
		sentence: func(v View) string { return "asks what to boot and is told to wait: " + furthestMark(v).Refused },
	},
	{
		name:     "no-kernel",
		meaning:  "it got its script and loads no kernel",
		percent:  18,
		fails:    true,
		since:    lastSeen,
		matches:  func(v View) bool { return stuckAt(v, step, boottrace.StepScript) },
		sentence: fixedSentence("got its script and loads no kernel"),
		next:     fixedNext("check its console for what iPXE or GRUB says"),
	},
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
		next: fixedNext("check the cable and the switch: something loses packets; it boots again automatically when Ironic's time is up"),
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
				boottrace.StepDiscover: "it asks for an address",
				boottrace.StepOffer:    "it is offered an address",
				boottrace.StepLease:    "it has its address",
				boottrace.StepTFTP:     "it loads " + furthestMark(v).Detail,
				boottrace.StepBootFile: "it loads " + furthestMark(v).Detail,
				boottrace.StepScript:   "it got its script",
				boottrace.StepKernel:   "it has its kernel",
			}[furthestMark(v).Step]
		},
	},
}
