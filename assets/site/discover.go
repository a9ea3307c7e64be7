package site

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Discover is the policy by which machines that boot from the network become nodes although the site does not name
// them.
type Discover struct {
	Count       int            `yaml:"count" min:"1" max:"1000" required:"true" doc:"How many machines become nodes, at most."`
	Approve     string         `yaml:"approve" enum:"each|none" default:"each" doc:"each: a machine becomes a node when firstlightd approve names it. none: as soon as its BMC takes a login."`
	Names       string         `yaml:"names" pattern:"^([a-z0-9][a-z0-9-]{0,39})?[{](serial|number)[}](-?[a-z0-9][a-z0-9-]{0,15})?$" hint:"a name with {serial} or {number} in it, such as node-{serial}" default:"node-{serial}" doc:"Names of the nodes. {serial} is the serial number of the machine, so that its name is the same on a new stick; {number} counts."`
	Credentials []Login        `yaml:"credentials" default:"nodeDefaults.bmc" doc:"Logins to try on BMCs in this order: two tries per BMC and hour, and none again that was refused."`
	BMCs        []netip.Prefix `yaml:"bmcs" default:"networks.bmc.cidr, else networks.baremetal.cidr" doc:"Where BMCs are. One elsewhere is told nothing."`
	Leases      bool           `yaml:"leases" default:"false" doc:"Ask BMCs, too, that lease an address from the appliance on networks.bmc: their servers may be off, and are switched on once they are nodes."`
}

// Approvals of a Discover.
const (
	ApproveEach = "each"
	ApproveNone = "none"
)

// Places for what differs in Discover.Names.
const (
	SerialPlace = "{serial}"
	NumberPlace = "{number}"
)

func (d *Discover) withDefaults(s *Site) *Discover {
	if d == nil {
		return nil
	}

	d = cloneOrZero(d)
	d.Approve = cmp.Or(d.Approve, ApproveEach)
	d.Names = cmp.Or(d.Names, "node-"+SerialPlace)
	if len(d.Credentials) == 0 && s.NodeDefaults.BMC != (Login{}) {
		d.Credentials = []Login{s.NodeDefaults.BMC}
	}
	if len(d.BMCs) == 0 {
		d.BMCs = bmcNetworks(s.Networks)
	}
	return d
}

// bmcNetworks is where BMCs are as far as the site says.
func bmcNetworks(n Networks) []netip.Prefix {
	for _, network := range []*Network{n.BMC, n.Baremetal} {
		if network != nil && network.CIDR.IsValid() {
			return []netip.Prefix{network.CIDR}
		}
	}
	return nil
}

// CountNodes is how many nodes the site names and may discover, in all.
func (s *Site) CountNodes() int {
	if s.Discover == nil {
		return len(s.Nodes)
	}
	return len(s.Nodes) + s.Discover.Count
}

func (r *reader) checkDiscover(s *Site) {
	const path = "discover"
	d := s.Discover.withDefaults(s)
	if d == nil {
		return
	}

	switch {
	case len(d.Credentials) == 0:
		r.Report(path, "there is no login to try on BMCs; add credentials here, or nodeDefaults.bmc")
	case len(d.Credentials) > 8:
		r.Report(path+".credentials", "%d logins are hours of tries for each BMC; give at most 8", len(d.Credentials))
	}

	for i, l := range s.Discover.Credentials {
		at := fmt.Sprintf("%s.credentials[%d]", path, i)
		if l.Username == "" || l.Password.IsZero() {
			r.Report(at, "username and password belong together; give both")
		} else if slices.ContainsFunc(s.Discover.Credentials[:i], l.equals) {
			r.Report(at, "this login is given twice; keep one")
		}
	}

	if len(d.BMCs) == 0 {
		r.Report(path, "nothing says where the BMCs are; add networks.bmc.cidr, or bmcs here")
	}
	for i, p := range s.Discover.BMCs {
		if p.Bits() == 0 {
			r.Report(fmt.Sprintf("%s.bmcs[%d]", path, i), "%s is every address; name the networks of the BMCs", p)
		}
	}

	r.checkDiscoverLeases(s, d)
	if d.Approve == ApproveNone && s.NodeDefaults.Overwrite.IsGranted() {
		r.Report(path+".approve", "with nodeDefaults.overwrite it would erase the disk of whatever boots from the network; "+
			"use each, or remove overwrite")
	}
}

// checkDiscoverLeases checks that there are leases, and that those who have them may be asked.
func (r *reader) checkDiscoverLeases(s *Site, d *Discover) {
	const path = "discover.leases"
	if !d.Leases {
		return
	}

	n := s.Networks.withDefaults().BMC
	if n == nil || n.DHCP.Mode != "server" {
		r.Report(path, "the appliance leases no address on networks.bmc; add its dhcp.range, or remove the line")
		return
	}

	isAsked := func(p netip.Prefix) bool { return p.Contains(n.DHCP.Range.First) && p.Contains(n.DHCP.Range.Last) }
	if !n.DHCP.Range.IsZero() && !slices.ContainsFunc(d.BMCs, isAsked) {
		r.Report(path, "no network of bmcs holds the leases %s of networks.bmc; add %s there", n.DHCP.Range, n.CIDR)
	}
}

func (l Login) equals(o Login) bool {
	return l.Username == o.Username && l.Password.Reveal() == o.Password.Reveal()
}

// NameOf is the name of a machine by its serial number or a number, "" if that makes no name.
func (d *Discover) NameOf(serial string, number int) Name {
	text := strings.ReplaceAll(d.Names, NumberPlace, fmt.Sprint(number))
	var name Name
	if name.ParseText(strings.ReplaceAll(text, SerialPlace, nameText(serial))) != nil {
		return ""
	}
	return name
}

// mayName reports whether a node that is discovered can get a name.
func (d *Discover) mayName(name Name) bool {
	if d == nil {
		return false
	}

	place := SerialPlace
	if strings.Contains(d.Names, NumberPlace) {
		place = NumberPlace
	}
	before, after, _ := strings.Cut(d.Names, place)
	rest, hasPrefix := strings.CutPrefix(string(name), before)
	middle, hasSuffix := strings.CutSuffix(rest, after)
	if !hasPrefix || !hasSuffix {
		return false
	}
	if place == NumberPlace {
		n, err := strconv.Atoi(middle)
		return err == nil && n > 0 && strconv.Itoa(n) == middle
	}

	return middle != "" && nameText(middle) == middle
}

// HasSerial reports whether names are made of serial numbers.
func (d *Discover) HasSerial() bool { return strings.Contains(d.Names, SerialPlace) }

// nameText is what of a text may be in a name, in small letters.
func nameText(text string) string {
	keep := func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return '-'
	}
	return strings.Trim(strings.Map(keep, strings.ToLower(text)), "-")
}
