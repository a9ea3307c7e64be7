package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// Findings is what an installed node was found to be.
type Findings struct {
	Node   site.Node  // with its defaults
	Host   *fact.Host // nil: there is none
	Answer shell.Answer

	// LeasesIPv6 reports whether a link's address by DHCP is one of IPv6; nil: none is.
	LeasesIPv6 func(l site.Link) bool
}

// verificationChecks is what must hold of a node before it counts as launched.
var verificationChecks = []check[Findings]{
	{"installed", "its BareMetalHost is provisioned", checkInstalled},
	{"login", "it lets the appliance in by SSH, with the host key that was made for it", checkLogin},
	{"links", "every link of the site is there and has a carrier", linksUp},
	{"addresses", "every link has the address that it was given", addressesMatch},
	{"gateway", "it has the default router that it was given, and that one answers it", routerFromNode},
	{"dns", "its resolvers answer it", resolversFromNode},
	{"clock", "its clock agrees with the appliance's within five seconds", clockRight},
	{"iommu", "its IOMMU is on, if it is asked for (`iommu`)", iommuOn},
}

// VerifyNode answers every check of an installed node.
func VerifyNode(f Findings) []status.Check { return runChecks(verificationChecks, f) }

func checkInstalled(f Findings) status.Check {
	switch {
	case f.Host == nil:
		return waitingCheck("there is no host of that name")
	case f.Host.InService():
		return okCheck("%s", f.Host.State)
	case f.Host.State == "":
		return waitingCheck("not registered yet")
	}
	return waitingCheck("%s", f.Host.State)
}

func checkLogin(f Findings) status.Check {
	a := f.Answer
	switch a.Verdict {
	case "":
		return waitingCheck("not asked yet")
	case shell.Silent:
		return waitingCheck("%s", a.Text)
	case shell.Reached:
		return okCheck("at %s", a.Address)
	case shell.OtherMachine:
		return failedCheck("check which machine has that address; if this server was installed by other means, remove it from site.yaml", "%s", a.Text)
	case shell.Locked:
		return failedCheck("check the node's console for what cloud-init or Ignition says; the image must read a config drive: "+
			"cloud-init by the data source ConfigDrive, Ignition as on the platform openstack", "%s", a.Text)
	}
	return failedCheck("the image must be a Linux with a POSIX shell and iproute2", "%s", a.Text)
}

// iommuOn looks whether devices have groups, which they have only with an IOMMU at work.
func iommuOn(f Findings) status.Check {
	r := f.Answer.Report
	switch {
	case !f.Node.IOMMU:
		return skippedCheck("it is not asked for")
	case f.Answer.Verdict != shell.Reached:
		return waitingCheck("not asked yet")
	case r.IOMMUGroups > 0:
		return okCheck("%d groups of devices", r.IOMMUGroups)
	case !slices.Contains(r.CmdLine, "intel_iommu=on"):
		return failedCheck(
			"its boot loader does not give intel_iommu=on iommu=pt; an image of your own needs them in its configuration",
			"the IOMMU is off: it was started without intel_iommu=on",
		)
	}
	return failedCheck(
		"turn on VT-d (Intel) or AMD-Vi and SVM (AMD) in the server's setup, then restart it", "it has no IOMMU",
	)
}

// nodeLinks are the site's links of a node. One that names none asks DHCP on every NIC; only the
// NIC it boots from must then be plugged in.
func nodeLinks(n site.Node) []site.Link {
	if len(n.Links) > 0 || n.BootMAC == "" {
		return n.Links
	}
	return []site.Link{{MAC: n.BootMAC, Address: site.LinkAddress{Method: "dhcp"}}}
}

// linkLabel is how people know a link.
func linkLabel(l site.Link) string {
	var macs []string
	for _, m := range linkMACs(l) {
		macs = append(macs, string(m))
	}

	text := strings.Join(macs, "+")
	if l.Network != "" {
		text = l.Network + " (" + text + ")"
	}

	if l.VLAN != 0 {
		text += fmt.Sprintf(" VLAN %d", l.VLAN)
	}

	return text
}

// findCarrier finds the interface that a link is on the node, and what is wrong with it.
func findCarrier(l site.Link, r shell.Report) (on shell.NIC, problem string) {
	var base shell.NIC
	for _, mac := range linkMACs(l) {
		i := slices.IndexFunc(r.NICs, func(n shell.NIC) bool { return n.MAC == string(mac) && n.VLAN == 0 })
		if i < 0 {
			return on, fmt.Sprintf("no NIC has the MAC %s", mac)
		}
		if !r.NICs[i].Up {
			return on, fmt.Sprintf("%s (%s) has no carrier", r.NICs[i].Name, mac)
		}

		base = r.NICs[i]
		if l.Bond == nil {
			continue
		}
		if base.Master == "" {
			return on, fmt.Sprintf("%s (%s) is in no bond", base.Name, mac)
		}
		if base, _ = r.NIC(base.Master); !base.Up {
			return on, fmt.Sprintf("bond %s is down", r.NICs[i].Master)
		}
	}

	if l.VLAN == 0 {
		return base, ""
	}

	i := slices.IndexFunc(r.NICs, func(n shell.NIC) bool { return n.VLAN == l.VLAN && n.Parent == base.Name })
	if i < 0 {
		return on, fmt.Sprintf("%s has no VLAN %d", base.Name, l.VLAN)
	}
	if !r.NICs[i].Up {
		return on, fmt.Sprintf("%s has no carrier", r.NICs[i].Name)
	}

	return r.NICs[i], ""
}

const linkFix = "check the cable, the switch port and its VLANs, or correct links in site.yaml"

func linksUp(f Findings) status.Check {
	if f.Answer.Verdict != shell.Reached {
		return waitingCheck("not asked yet")
	}

	var up []string
	for _, l := range nodeLinks(f.Node) {
		on, problem := findCarrier(l, f.Answer.Report)
		if problem == "" && l.Address.Method == "static" && on.MTU < l.MTU {
			problem = fmt.Sprintf("%s takes packets of %d bytes, site.yaml says %d", on.Name, on.MTU, l.MTU)
		}

		if problem != "" {
			return failedCheck(linkFix, "link %s: %s", linkLabel(l), problem)
		}

		up = append(up, on.Name)
	}

	if len(up) == 0 {
		return skippedCheck("site.yaml names no link and no MAC")
	}

	return okCheck("%s", strings.Join(up, ", "))
}

func addressesMatch(f Findings) status.Check {
	if f.Answer.Verdict != shell.Reached {
		return waitingCheck("not asked yet")
	}

	var given []string
	for _, l := range nodeLinks(f.Node) {
		on, problem := findCarrier(l, f.Answer.Report)
		if problem != "" {
			return waitingCheck("its links come first")
		}

		has := on.Addresses
		if m, found := f.Answer.Report.NIC(on.Master); found { // a bridge has the address of its port
			has = append(slices.Clone(has), m.Addresses...)
		}

		isIPv6 := f.LeasesIPv6 != nil && f.LeasesIPv6(l)
		var addresses []string
		for _, p := range has {
			if p.Addr().Is6() == isIPv6 && p.Addr().IsGlobalUnicast() {
				addresses = append(addresses, p.String())
			}
		}

		text := strings.Join(addresses, ", ")
		if text == "" {
			text = "no address"
		}

		switch {
		case l.Address.Method == "static" && !slices.Contains(has, l.Address.Prefix):
			return failedCheck("check what cloud-init or Ignition reports on the node's console; an image whose network neither of them configures cannot be used with static addresses",
				"link %s: %s has %s, site.yaml says %s", linkLabel(l), on.Name, text, l.Address.Prefix)
		case l.Address.Method == "dhcp" && len(addresses) == 0:
			return failedCheck(
				"check whether the DHCP server of that network answers this MAC",
				"link %s: %s got no address by DHCP", linkLabel(l), on.Name,
			)
		case l.Address.Method == "none" && len(addresses) > 0:
			return failedCheck(
				"check what configures it on the node, or correct links in site.yaml",
				"link %s: %s has %s, site.yaml says none", linkLabel(l), on.Name, text,
			)
		case l.Address.Method == "static":
			given = append(given, l.Address.Prefix.String())
		case l.Address.Method == "dhcp":
			given = append(given, text+" by DHCP")
		}
	}

	if len(given) == 0 {
		return skippedCheck("it is given none")
	}

	return okCheck("%s", strings.Join(given, ", "))
}

func routerFromNode(f Findings) status.Check {
	if f.Answer.Verdict != shell.Reached {
		return waitingCheck("not asked yet")
	}

	r := f.Answer.Report
	wanted := routers(f.Node)
	for _, gateway := range wanted {
		if !slices.ContainsFunc(r.Defaults, func(d shell.Route) bool { return d.Via == gateway }) {
			return failedCheck(
				"check what cloud-init or Ignition reports on the node's console", "it has no default route through %s", gateway,
			)
		}
	}

	for _, d := range r.Defaults {
		// What its DHCP server gave it. A router that announces itself (RFC 4861) was given by nobody, and
		// its link-local address means nothing without the NIC.
		if len(routers(f.Node)) == 0 && d.Via.IsValid() && !d.Via.IsLinkLocalUnicast() && !slices.Contains(
			wanted, d.Via,
		) {
			wanted = append(wanted, d.Via)
		}
	}

	return fromNode(wanted, func(a netip.Addr) error {
		if r.Routers[a] == "" {
			return fmt.Errorf("router %s does not answer it", a)
		}
		return nil
	}, "check the router and the network between; correct gateway in site.yaml if it is another one")
}

func resolversFromNode(f Findings) status.Check {
	if f.Answer.Verdict != shell.Reached {
		return waitingCheck("not asked yet")
	}

	wanted := resolvers(f.Node)
	if len(wanted) == 0 {
		wanted = f.Answer.Report.Resolvers
	}

	return fromNode(wanted, func(a netip.Addr) error {
		packet := f.Answer.Report.DNS[a]
		if packet == nil {
			return fmt.Errorf("resolver %s does not answer it", a)
		}
		if err := f.Answer.Question.CheckAnswer(packet); err != nil {
			return fmt.Errorf("resolver %s: %w", a, err)
		}

		return nil
	}, "check the resolver and the way to it; correct dns in site.yaml if it is another one")
}

// fromNode judges things of which every one must answer.
func fromNode(wanted []netip.Addr, check func(netip.Addr) error, fix string) status.Check {
	var good []string
	for _, a := range wanted {
		if err := check(a); err != nil {
			return failedCheck(fix, "%v", err)
		}
		good = append(good, a.String())
	}

	if len(good) == 0 {
		return skippedCheck("it is given none")
	}

	return okCheck("%s answers", strings.Join(good, ", "))
}

// drift is how far a node's clock may be off.
const drift = 5 * time.Second

func clockRight(f Findings) status.Check {
	a := f.Answer
	switch {
	case a.Verdict != shell.Reached:
		return waitingCheck("not asked yet")
	case a.Report.Time.IsZero():
		return failedCheck("the image must have the command date", "it does not tell its time")
	}

	ahead := a.Report.Time.Sub(a.AskedAt)
	if ahead.Abs() <= drift+a.Doubt {
		return okCheck("right")
	}

	where, by := "ahead", ahead
	if by < 0 {
		where, by = "behind", -by
	}

	return failedCheck(
		"the node asks the appliance for the time (NTP); check whether an NTP client runs on it",
		"it is %s %s of the appliance", by.Round(time.Second), where,
	)
}
