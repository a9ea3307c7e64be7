package diagnose

import (
	"net/netip"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/pxe/boottrace"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(minutes float64) time.Time {
	return now.Add(-time.Duration(minutes * float64(time.Minute)))
}

// base is a node of the site whose pre-flight passed an hour ago.
func base() View {
	return View{Now: now, Name: "node-1", Passed: true, PreflightSince: ago(60), Preflight: []status.Check{{Name: "bmc", State: status.CheckOK}},
		Node: &site.Node{Name: "node-1", BootMAC: "52:54:00:00:00:01"}}
}

// host is base with a host in a state since some minutes.
func host(state string, minutes float64) View {
	v := base()
	v.Host = &fact.Host{Name: "node-1", State: state, Operational: "OK", PoweredOn: true, Online: true, Since: ago(minutes)}
	if v.Host.InService() {
		v.Host.Deployed = ago(minutes)
	}
	return v
}

// wire is a host that boots, with the marks of its boot; the last one is so many minutes old.
func wire(state string, minutes float64, marks ...boottrace.Mark) View {
	v := host(state, minutes+2)
	v.BootTrace = &boottrace.Trace{MAC: "52:54:00:00:00:01", Addr: netip.MustParseAddr("172.22.0.33"), Since: ago(minutes + 1)}
	for i := range marks {
		marks[i].Count = max(marks[i].Count, 1)
		marks[i].Time = ago(minutes + float64(len(marks)-1-i)/10)
	}
	v.BootTrace.Marks, v.BootTrace.Last = marks, marks[len(marks)-1]
	return v
}

func failed(v View, message string) View {
	v.Host.Operational, v.Host.Error, v.Host.Errors = "error", message, 1
	return v
}

func checks(v View, name string, state status.CheckState, text, fix string) View {
	v.Answer = "reached"
	v.Checks = []status.Check{{Name: "installed", State: status.CheckOK}, {Name: name, State: state, Text: text, Fix: fix}}
	return v
}

func refusedBy(check, text, fix string, verdict bmc.Verdict) View {
	v := base()
	v.Passed, v.PreflightSince, v.BMC = false, ago(2), verdict
	v.Preflight = []status.Check{{Name: check, State: status.CheckFailed, Text: text, Fix: fix}}
	return v
}

var (
	discover = boottrace.Mark{Step: boottrace.StepDiscover}
	offer    = boottrace.Mark{Step: boottrace.StepOffer, Detail: "undionly.kpxe"}
	lease    = boottrace.Mark{Step: boottrace.StepLease, Detail: "undionly.kpxe"}
	tftp     = boottrace.Mark{Step: boottrace.StepTFTP, Detail: "undionly.kpxe", Bytes: 100, Total: 100}
	script   = boottrace.Mark{Step: boottrace.StepScript, Detail: "inspect"}
	kernel   = boottrace.Mark{Step: boottrace.StepKernel, Detail: "ramdisk/kernel", Bytes: 100, Total: 100}
	initrd   = boottrace.Mark{Step: boottrace.StepRamdisk, Detail: "ramdisk/initramfs", Bytes: 80e6, Total: 80e6}
	part     = boottrace.Mark{Step: boottrace.StepRamdisk, Detail: "ramdisk/initramfs", Bytes: 12e6, Total: 80e6}
	image    = boottrace.Mark{Step: boottrace.StepImage, Detail: "images/debian-13.raw", Bytes: 500e6, Total: 1000e6}
	disc     = boottrace.Mark{Step: boottrace.StepDisc, Detail: "disc.iso", Bytes: 90e6, Total: 150e6}
)

// fromDisc is that node with a BMC that gives it a disc.
func fromDisc(v View) View {
	v.Node.BMC = &site.BMC{Address: "redfish-virtualmedia://10.30.0.101/redfish/v1/Systems/1"}
	return v
}

func deadline(v View) View { return failed(v, "timeout reached while inspecting the node") }

// cases are one view per situation, in the order of the list.
func cases() map[string]View {
	change := func(v View, do func(*View)) View { do(&v); return v }
	return map[string]View{
		"api-silent":  change(host("provisioning", 5), func(v *View) { v.Silent = time.Date(2026, 3, 1, 10, 4, 5, 0, time.UTC) }),
		"not-in-site": change(wire("inspecting", 1, discover), func(v *View) { v.Node, v.Host, v.BootTrace.First = nil, nil, ago(7) }),
		"not-matched": change(wire("inspecting", 1, discover), func(v *View) {
			v.Node, v.Host, v.BootTrace.First, v.Unmatched = nil, nil, ago(7), []string{"node-2", "node-3"}
		}),
		"removed":  change(host("provisioned", 60), func(v *View) { v.Node, v.FromSite = nil, true }),
		"external": change(host("externally provisioned", 60), func(v *View) { v.Node = nil }),
		"applied":  change(host("", 1), func(v *View) { v.Node = nil }),
		"proven":   change(host("provisioned", 60), func(v *View) { v.Verified = true }),
		"appliance-starting": change(base(), func(v *View) {
			v.Appliance, v.Preflight, v.Passed = "Kubernetes starts: the API server to answer", nil, false
		}),
		"no-bmc":      refusedBy("bmc", "it has no BMC in site.yaml, and does not ask on the provisioning network what to boot", "switch it on", ""),
		"switch-on":   change(host("provisioned", 5), func(v *View) { v.Node, v.Answer = &site.Node{}, "" }),
		"bmc-silent":  refusedBy("bmc", "the BMC 10.30.0.101:623 does not answer", "check the BMC's cable", bmc.Silent),
		"bmc-refused": refusedBy("bmc", `the BMC 10.30.0.101:623 refuses the password of user "admin"`, "correct bmc.password", bmc.Refused),
		"bmc-unfit":   refusedBy("bmc", "the BMC 10.30.0.101:443 has no /redfish/v1/Systems/9", "correct the path of bmc.address", bmc.Unfit),
		"bmc-changed": change(refusedBy("bmc", "its certificate is another one", "", bmc.Changed), func(v *View) {
			v.Certificate = bmctrust.Change{
				Endpoint: "10.30.0.101:443",
				Pinned:   strings.Repeat("12", 32),
				Since:    ago(60 * 24 * 30),
				Other:    strings.Repeat("ab", 32),
				At:       ago(3),
			}
		}),
		"running":         refusedBy("running", "it runs, and this appliance has no record of it: its BMC says that it is on", "if it is in service, adopt it with: firstlightd adopt node-1; if it may be installed, switch it off", bmc.OK),
		"no-drive":        refusedBy("media", "it cannot be given a disc: the BMC lists no virtual drive for CDs or DVDs", "enable virtual media in the BMC's set-up", bmc.OK),
		"mac-twice":       refusedBy("macs", "MAC 52:54:00:00:00:01 is also that of host other", "check the servers' labels", bmc.OK),
		"address-taken":   refusedBy("addresses", "address 10.10.110.21 is used by 52:54:00:99:99:99", "take the address away from that machine", bmc.OK),
		"router-silent":   refusedBy("gateway", "router 10.10.110.1 does not answer", "switch it on", bmc.OK),
		"resolver-silent": refusedBy("dns", "resolver 10.10.110.2 does not answer", "switch it on", bmc.OK),
		"foreign-dhcp":    refusedBy("dhcp", "DHCP server 172.22.0.250 answers on eth1: staying silent", "switch that server off", bmc.OK),
		"image-unfit":     refusedBy("image", "debian-13 needs 9.0 GiB, rootDevice is content with 8 GiB", "set rootDevice.minSizeGigabytes to 9 or more", bmc.OK),
		"clock-wrong":     refusedBy("clock", "the appliance's clock says 2001-01-01 00:00:00, before this image was made", "set the clock", bmc.OK),
		"preflight": change(base(), func(v *View) {
			v.Passed, v.Preflight = false, []status.Check{{Name: "bmc", State: status.CheckWaiting, Text: "not asked yet"}}
		}),
		"held": change(host("provisioned", 60), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonDecision, Sentence: `it is in service with image "a", site.yaml names "b"; to install that, run: kubectl …`}
		}),
		"controller-broken": change(host("available", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonDiskAmbiguous, Sentence: "the inspection found no disk that rootDevice fits"}
			v.Host.Broken = []inspection.Device{{
				Address: "0000:5e:00.0", Class: "010400", Vendor: "8086", Device: "2826", Modules: []string{"megaraid_sas"},
			}}
		}),
		"disk-ambiguous": change(host("available", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonDiskAmbiguous, Sentence: "rootDevice fits 2 disks (/dev/sda, /dev/sdb); name one of: …"}
		}),
		"disk-not-empty": change(host("available", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonDiskNotEmpty, Sentence: "its disk /dev/sda is not empty, it holds: gpt, ext4; " +
				"if that may be lost, set overwrite: data-3f2a90c1d4e7 for it in site.yaml and run: firstlightd reload"}
		}),
		"installed-before": change(host("available", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonInstalled, Sentence: "its disk /dev/sda was installed by this site on 2026-11-26 11:22 " +
				"as node-1; to take it back as it is, run: firstlightd adopt node-1; to install it again and lose that, set overwrite: " +
				"data-3f2a90c1d4e7 for it in site.yaml and run: firstlightd reload"}
		}),
		"image-unsigned": change(host("available", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonUnsigned, Sentence: metal3.ImageTrust{Required: true}.CheckImage(&metal3api.Image{
				URL: "http://172.22.0.1:6180/artifacts/alpha/beta/debian-12", ChecksumType: metal3api.SHA256,
				Checksum: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			})}
		}),
		"absent":       change(base(), func(v *View) { v.PreflightSince, v.HandingSince = ago(12), ago(11) }),
		"handing-over": change(base(), func(v *View) { v.PreflightSince, v.HandingSince = ago(12), ago(9) }),
		"restoring": change(host("provisioned", 5), func(v *View) {
			v.Host.Paused, v.Blocked = true, metal3.Block{Reason: metal3.ReasonBackup, Sentence: `host node-1 is "" in the API`}
		}),
		"replacing": change(host("provisioned", 5), func(v *View) {
			v.Blocked = metal3.Block{Reason: metal3.ReasonReplacing, Sentence: "it " + metal3.Replacement{}.Sentence()}
		}),
		"erasing": change(host("available", 5), func(v *View) {
			v.Host.Paused = true
			v.Erasure = &metal3.Erasure{Host: "uid", Asked: ago(5), Disks: []metal3.ErasedDisk{
				{WriteDisk: metal3.WriteDisk{Name: "/dev/sda", Serial: "S3Z9"}},
			}}
		}),
		"erase-lost": change(host("available", 5), func(v *View) {
			v.Host.UID = "uid"
			v.Erasure = &metal3.Erasure{Host: "uid", Asked: ago(50), Ended: ago(5), Lost: true}
		}),
		"erase-failed": change(host("available", 5), func(v *View) {
			v.Host.UID = "uid"
			v.Erasure = &metal3.Erasure{Host: "uid", Asked: ago(50), Ended: ago(5), Disks: []metal3.ErasedDisk{
				{WriteDisk: metal3.WriteDisk{Name: "/dev/sda", Serial: "S3Z9"}},
			}, Failure: "Timeout reached while cleaning the node."}
		}),
		"paused":   change(host("available", 5), func(v *View) { v.Host.Paused = true }),
		"bmc-lost": change(failed(host("provisioned", 60), "IPMI call failed: power status."), func(v *View) { v.Verified = true }),
		"off":      change(host("provisioned", 5), func(v *View) { v.Answer, v.Ironic = "silent", &fact.Ironic{Power: "power off"} }),
		"disk-not-booting": change(wire("provisioned", 1, discover, lease, boottrace.Mark{Step: boottrace.StepScript, Detail: "disk", Count: 4}), func(v *View) {
			v.Answer = "silent"
		}),
		"booted-silent": change(checks(host("provisioned", 21), "login", status.CheckWaiting, "nothing answers SSH at 10.10.110.21", ""), func(v *View) { v.Answer = "silent" }),
		"starting":      change(host("provisioned", 1), func(v *View) { v.Answer = "silent" }),
		"stranger": change(checks(host("provisioned", 1), "login", status.CheckFailed, "at 10.10.110.21 another machine answers", "check which machine has that address"), func(v *View) {
			v.Answer = "stranger"
		}),
		"locked-out": change(checks(host("provisioned", 1), "login", status.CheckFailed, "it does not let the appliance's key in", "check the node's console"), func(v *View) { v.Answer = "locked" }),
		"odd-system": change(checks(host("provisioned", 1), "login", status.CheckFailed, "its shell does not answer as Linux does", "the image must be a Linux"), func(v *View) { v.Answer = "odd" }),
		"nic-broken": change(checks(host("provisioned", 1), "links", status.CheckFailed, "it has no link eno2", "look at the link"), func(v *View) {
			v.Host.Broken = []inspection.Device{{Address: "0000:3c:00.0", Class: "020000", Vendor: "14e4", Device: "164e"}}
		}),
		"wrong-network": checks(host("provisioned", 1), "gateway", status.CheckFailed, "router 10.10.110.1 does not answer it", "check the router"),
		"wrong-clock":   checks(host("provisioned", 1), "clock", status.CheckFailed, "it is 1h0m0s behind of the appliance", "check whether an NTP client runs on it"),
		"checking":      checks(host("provisioned", 1), "links", status.CheckWaiting, "not asked yet", ""),
		"bmc-gone": change(host("provisioning", 5), func(v *View) {
			v.Ironic = &fact.Ironic{Maintenance: "During sync_power_state, max retries exceeded for node 4298, node state None does not match expected state 'power on'."}
		}),
		"bmc-refusing": failed(host("provisioning", 5), "Image provisioning failed: Failed to prepare to deploy: Redfish exception occurred. "+
			"Error: HTTP GET https://10.30.0.101/redfish/v1/Systems/1 returned code 401."),
		"disc-refused": failed(fromDisc(host("inspecting", 2)), "Failed to inspect hardware. Reason: unable to start inspection: HTTP POST "+
			"https://10.30.0.101/redfish/v1/Managers/1/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia returned code 500."),
		"disc-unread":  fromDisc(host("inspecting", 11)),
		"disc-silent":  fromDisc(wire("inspecting", 21, disc)),
		"disc-waiting": fromDisc(host("inspecting", 4)),
		"disc-ignored": fromDisc(wire("inspecting", 0, discover, offer, lease)),
		"disc-booting": fromDisc(wire("inspecting", 4, disc)),
		"maintenance":  change(host("inspecting", 1), func(v *View) { v.Ironic = &fact.Ironic{Maintenance: "somebody looks at it"} }),
		"checksum": failed(host("provisioning", 5), "Image provisioning failed: Deploy step deploy.deploy failed: Error verifying image checksum: "+
			"Image failed to verify against checksum. location: http://172.22.0.1:6180/images/x; image ID: None"),
		"disk-too-small": change(failed(host("provisioning", 5), "Image provisioning failed: Deploy step deploy.write_image failed"), func(v *View) {
			v.Log = "qemu-img: error while writing: No space left on device"
		}),
		"no-disk": failed(host("provisioning", 5), "Image provisioning failed: Error finding the disk: No suitable device was found for deployment using these hints {'serial': 's== X'}"),
		"disk-broken": failed(host("provisioning", 5), "Image provisioning failed: Error downloading image: Download of image x failed: "+
			"Unable to write image to device /dev/sda. Error: [Errno 5] Input/output error"),
		"image-unreachable": failed(host("provisioning", 5), "Image provisioning failed: Error downloading image: Download of image x failed: URL: http://10.9.9.9/x; "+
			"time: 60 seconds. Error: connection timed out"),
		"boot-loader": failed(host("provisioning", 5), "Image provisioning failed: Failed to install a bootloader when deploying node"),
		"disk-changed": failed(host("provisioning", 5), "Image provisioning failed: Deploy step deploy.write_image failed on node 1: "+
			"Deploy step failed: refused by the appliance: disk /dev/sda is not as inspection saw it, it holds: gpt"),
		"agent-refused": change(wire("inspecting", 3, discover, lease, tftp, script, kernel, initrd), func(v *View) {
			v.Refusal = Refusal{"the token of its boot was used from another address: 172.22.0.66", ago(1)}
		}),
		"no-callback":   wire("inspecting", 11, discover, lease, tftp, script, kernel, initrd),
		"boot-timeout":  deadline(wire("inspecting", 30, discover, offer, lease)),
		"power-refused": change(failed(host("inspecting", 5), "PowerOn operation failed: IPMI call failed"), func(v *View) { v.Host.ErrorType = "power management error" }),
		"interrupted":   failed(host("inspecting", 5), "The inspecting state can't be resumed by conductor firstlight. Moving to fail state."),
		"registration":  change(failed(host("registering", 5), "Failed to get power state for node"), func(v *View) { v.Host.ErrorType = "registration error" }),
		"error":         failed(host("preparing", 5), "something that nobody has seen yet"),
		"unmanaged":     host("unmanaged", 5),
		"delayed":       change(host("available", 5), func(v *View) { v.Host.Operational = "delayed" }),
		"registering":   host("registering", 1),
		"inspected":     host("available", 1),
		"deleting":      host("deleting", 1),
		"writing":       wire("provisioning", 0, image),
		"agent-no-image": change(host("provisioning", 11), func(v *View) {
			v.Ironic = &fact.Ironic{Heartbeat: ago(1), Step: "write_image"}
		}),
		"writing-unseen": change(host("provisioning", 12), func(v *View) {
			v.Node.OS.URL = "http://10.9.9.9/x.raw"
			v.Ironic = &fact.Ironic{Heartbeat: ago(1), Step: "write_image"}
		}),
		"agent-at-work": change(host("provisioning", 2), func(v *View) { v.Ironic = &fact.Ironic{Heartbeat: ago(1), Step: "erase_devices_metadata"} }),
		"agent-silent": change(host("provisioning", 12), func(v *View) {
			v.Ironic = &fact.Ironic{Heartbeat: ago(5), Step: "write_image", Power: "power on"}
		}),
		"switching-on":   change(host("inspecting", 4), func(v *View) { v.Ironic = &fact.Ironic{State: "inspecting", Power: "power off"} }),
		"power-off":      change(host("inspecting", 4), func(v *View) { v.Ironic = &fact.Ironic{State: "inspect wait", Power: "power off"} }),
		"wrong-nic":      change(host("inspecting", 4), func(v *View) { v.OtherNIC = "52:54:00:00:00:02" }),
		"dhcp-silent":    change(host("inspecting", 1), func(v *View) { v.Foreign = "DHCP server 172.22.0.250 answers on eth1: staying silent" }),
		"firmware":       host("inspecting", 4),
		"never-seen":     host("inspecting", 11),
		"bmc-unnamed":    change(host("inspecting", 11), func(v *View) { v.Node.BootMAC, v.Node.MACs = "", nil }),
		"dhcp-refused":   wire("inspecting", 0, boottrace.Mark{Step: boottrace.StepDiscover, Refused: "no address is left in 172.22.0.10-172.22.0.100"}),
		"no-request":     wire("inspecting", 4, discover, offer),
		"no-tftp":        wire("inspecting", 4, discover, offer, lease),
		"no-script":      wire("inspecting", 4, discover, offer, lease, tftp),
		"script-refused": wire("inspecting", 1, tftp, boottrace.Mark{Step: boottrace.StepScript, Refused: "host node-1 is inspecting, but Ironic has not prepared its boot yet"}),
		"no-kernel":      wire("inspecting", 4, tftp, discover, offer, lease, script),
		"load-stalled":   wire("inspecting", 4, script, kernel, part),
		"loading":        wire("inspecting", 0, script, kernel, part),
		// The ramdisk asks for its address after the ramdisk was sent, and names no boot file.
		"ramdisk-starting": wire("inspecting", 1, script, kernel, initrd, discover, boottrace.Mark{Step: boottrace.StepOffer}, boottrace.Mark{Step: boottrace.StepLease}),
		"netbooting":       wire("inspecting", 1, discover, offer, lease),
		"inspecting":       wire("inspecting", 1, initrd, boottrace.Mark{Step: boottrace.StepImage, Detail: "x", Bytes: 1, Total: 1}),
		"deprovisioning":   change(wire("deprovisioning", 1, initrd, image), func(v *View) {}),
		"at-work":          host("some new state", 1),
	}
}
