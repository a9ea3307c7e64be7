package verify

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// preflight is what must hold before the first power action on a node.
var preflight = []check[Facts]{
	{"bmc", "the BMC answers and takes user and password, asked with one login", bmcAnswers},
	{"media", "if it is to boot from a disc: its BMC has a drive for it, and its ramdisk an address", discBoots},
	{checkRunning, "it does not run a system that this appliance has no record of", notRunning},
	{"macs", "no other server, and not the appliance, has one of its MACs", macsUnique},
	{"addresses", "nobody uses its static addresses yet (ARP)", addressesFree},
	{"gateway", "the routers that it is given answer (ARP)", routersAnswer},
	{"dns", "the resolvers that it is given answer", resolversAnswer},
	{"dhcp", "no foreign DHCP server answers on the provisioning network", dhcpAlone},
	{"image", "the image is there, and fits the disk that the hints ask for", imageFits},
	{"clock", "the appliance's clock can be right", clockSane},
}

// Preflight answers every check of a node's pre-flight.
func Preflight(f Facts) []status.Check { return runChecks(preflight, f) }

func bmcAnswers(f Facts) status.Check {
	switch {
	case f.Node.BMC == nil && f.Applied && !f.Registered:
		return failedCheck("give it spec.bmc, or delete it and name the server with its MAC in site.yaml",
			"its BareMetalHost has no BMC: Metal3 does nothing with it")
	case f.Node.BMC == nil && f.Registered:
		return skippedCheck("there is no BMC in site.yaml: a person must switch it on")
	case f.Node.BMC == nil && f.Asks:
		return okCheck("there is none in site.yaml, and the node asks on the provisioning network what to boot")
	case f.Node.BMC == nil:
		return failedCheck("switch it on, with the network first in its boot order, or add bmc to it in site.yaml; "+
			"it continues from there", "it has no BMC in site.yaml, and does not ask on the provisioning network what to boot")
	case f.Certificate != bmctrust.Change{}:
		return failedCheck(f.Certificate.Fix(string(f.Node.Name)), "%s", f.Certificate.Text())
	case f.Registered:
		return okCheck("handed over: Ironic speaks to it")
	}
	switch f.BMC.Verdict {
	case "":
		return waitingCheck("not asked yet")
	case bmc.OK:
		return okCheck("%s", f.BMC.Text)
	case bmc.Busy:
		return status.Check{State: status.CheckWaiting, Text: f.BMC.Text, Fix: f.BMC.Fix}
	}
	return failedCheck(f.BMC.Fix, "%s", f.BMC.Text)
}

func discBoots(f Facts) status.Check {
	if !f.Node.BootsFromDisc() {
		return skippedCheck("it boots from the network")
	}

	_, hasLink := f.Node.DiscLink()
	switch {
	case !hasLink:
		return failedCheck("name the server in site.yaml, with a link to provisioning and a static address, or use redfish "+
			"in place of redfish-virtualmedia in spec.bmc.address", "it is to boot from a disc, and nothing gives it an address")
	case f.Registered:
		return okCheck("handed over: Ironic speaks to its BMC")
	case f.DriveError != "":
		return failedCheck("enable virtual media in the BMC's set-up, which may need a licence, or use redfish in place of "+
			"redfish-virtualmedia in bmc.address", "it cannot be given a disc: %s", f.DriveError)
	case f.BMC.Verdict != bmc.OK:
		return skippedCheck("its BMC was not asked for its drives yet") // the check of the BMC stands in the way
	}
	return okCheck("its BMC has a drive for its disc")
}

func macsUnique(f Facts) status.Check {
	if len(nodeMACs(f.Node)) == 0 && needsBMCMAC(f.Node) && !f.Registered {
		switch {
		case f.BootMAC != "":
			return okCheck("%s, as its BMC says", f.BootMAC)
		case f.BootMACError != "":
			return failedCheck("give the node its MAC: macs in site.yaml", "no MAC is known: %s", f.BootMACError)
		}
		return waitingCheck("the BMC is asked for its NICs")
	}

	if len(nodeMACs(f.Node)) == 0 {
		return skippedCheck("site.yaml names no MAC: the BMC's address says which server it is")
	}

	var same []string
	for _, m := range slices.Sorted(maps.Keys(f.DuplicateMACs)) {
		same = append(same, fmt.Sprintf("%s is also that of %s", m, f.DuplicateMACs[m]))
	}

	if len(same) > 0 {
		return failedCheck(
			"check the servers' labels, and correct macs in site.yaml or remove what else claims it", "MAC %s",
			strings.Join(same, "; "),
		)
	}

	return okCheck("%d, nobody else's", len(nodeMACs(f.Node)))
}

// needsBMCMAC reports whether a node can be registered only by a MAC: Metal3 asks for one with Redfish. By IPMI it is
// found by its BMC's address.
func needsBMCMAC(n site.Node) bool {
	return n.BMC != nil && n.BMC.Address.IsRedfish()
}

func addressesFree(f Facts) status.Check {
	wanted := staticAddrs(f.Node)
	if len(wanted) == 0 {
		return skippedCheck("it has no static address")
	}

	own := nodeMACs(f.Node)
	var taken, free, away []string
	for _, a := range wanted {
		r, asked := f.Users[a]
		switch {
		case !asked:
			away = append(away, a.String())
		case r.Problem != "":
			return failedCheck(
				"check the appliance's own links", "whether %s is free cannot be asked: %s", a, r.Problem,
			)
		case r.From == "":
			free = append(free, a.String())
		case slices.Contains(own, site.MAC(r.From)):
			free = append(free, a.String()+" (its present system has it)")
		default:
			taken = append(taken, fmt.Sprintf("%s is used by %s", a, r.From))
		}
	}

	switch {
	case len(taken) > 0:
		return failedCheck(
			"take the address away from that machine, or give the node another one in site.yaml", "address %s",
			strings.Join(taken, "; "),
		)
	case len(free) == 0:
		return skippedCheck("%s cannot be asked from here", strings.Join(away, ", "))
	}

	return okCheck("%s free", strings.Join(free, ", "))
}

func routersAnswer(f Facts) status.Check {
	return judgeReplies(routers(f.Node), f.Routers, "router", "networks.*.gateway")
}

func resolversAnswer(f Facts) status.Check {
	return judgeReplies(resolvers(f.Node), f.Resolvers, "resolver", "networks.*.dns")
}

// judgeReplies judges things of which every one must answer.
func judgeReplies(wanted []netip.Addr, replies map[netip.Addr]Reply, what, field string) status.Check {
	var good, bad, away []string
	for _, a := range wanted {
		r, asked := replies[a]
		switch {
		case !asked:
			away = append(away, a.String())
		case r.Problem != "":
			bad = append(bad, fmt.Sprintf("%s %s: %s", what, a, r.Problem))
		case r.From == "":
			bad = append(bad, fmt.Sprintf("%s %s does not answer", what, a))
		default:
			good = append(good, a.String())
		}
	}

	switch {
	case len(wanted) == 0:
		return skippedCheck("it is given none")
	case len(bad) > 0:
		return failedCheck(
			fmt.Sprintf("switch it on and check its cable, or correct %s in site.yaml", field), "%s",
			strings.Join(bad, "; "),
		)
	case len(good) == 0:
		return skippedCheck("%s cannot be asked from here", strings.Join(away, ", "))
	}

	return okCheck("%s answers", strings.Join(good, ", "))
}

func dhcpAlone(f Facts) status.Check {
	switch {
	case f.Node.BootsFromDisc():
		return skippedCheck("it boots from a disc, and asks nobody for an address")
	case !f.DHCP.Enabled:
		return skippedCheck("site.yaml leaves DHCP on the provisioning network to somebody else")
	case f.DHCP.Phase == "serving", f.DHCP.Phase == "proxy":
		return okCheck("%s", f.DHCP.Text)
	case f.DHCP.Phase == "silent":
		return failedCheck("switch that server off or unplug it; service resumes automatically", "%s", f.DHCP.Text)
	case f.DHCP.Phase == "broken":
		return failedCheck("check the appliance's provisioning NIC and its cable", "%s", f.DHCP.Text)
	}
	return waitingCheck("the network is being listened to")
}

func imageFits(f Facts) status.Check {
	i := f.Image
	switch {
	case i.None:
		return skippedCheck("its BareMetalHost names no image yet")
	case i.Problem != "":
		return failedCheck(i.Fix, "%s", i.Problem)
	case i.Name == "":
		return waitingCheck("not looked for yet")
	case f.Disk > 0 && i.Bytes > f.Disk:
		return failedCheck("give the server a larger disk, name another one in rootDevice, or take a smaller image",
			"%s needs %s, the disk has %s", i.Name, formatSize(i.Bytes), formatSize(f.Disk))
	}

	if d := f.Node.RootDevice; d != nil && d.MinSizeGigabytes > 0 && f.Disk == 0 && i.Bytes > int64(d.MinSizeGigabytes)<<30 {
		return failedCheck(fmt.Sprintf("set rootDevice.minSizeGigabytes to %d or more", (i.Bytes+1<<30-1)>>30),
			"%s needs %s, rootDevice is content with %d GiB", i.Name, formatSize(i.Bytes), d.MinSizeGigabytes)
	}
	if i.Bytes == 0 {
		return okCheck("%s is there", i.Name)
	}

	return okCheck("%s is there, %s", i.Name, formatSize(i.Bytes))
}

func formatSize(bytes int64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}

// timeLimit is how far after the image's making a clock is believed. Certificates of the
// appliance are good for longer.
const timeLimit = 20 * 365 * 24 * time.Hour

func clockSane(f Facts) status.Check {
	c, now := f.Clock, f.Clock.Now.UTC().Format(time.DateTime)
	const fix = "set the appliance's clock in its firmware, or give the site a time server (networks.*.ntp)"
	switch {
	case c.Now.Before(c.Built):
		return failedCheck(
			fix, "the appliance's clock says %s, before this image was made (%s)", now,
			c.Built.UTC().Format(time.DateTime),
		)
	case !c.Built.IsZero() && c.Now.After(c.Built.Add(timeLimit)):
		return failedCheck(
			fix, "the appliance's clock says %s, %d years after this image was made", now,
			int(c.Now.Sub(c.Built).Hours()/24/365),
		)
	case c.Server:
		return okCheck("it says %s, as a time server does", now)
	case c.HasServers:
		return okCheck("it says %s; no time server answered", now)
	}

	return okCheck("it says %s; no time server was named", now)
}
