package site

import (
	"fmt"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// nics are the MACs of the link, those of its bond if it has one.
func (l Link) nics() []MAC {
	if l.Bond != nil {
		return l.Bond.MACs
	}
	if l.MAC == "" {
		return nil
	}
	return []MAC{l.MAC}
}

// claimMAC claims a MAC that the same node may also list in macs.
func (r *reader) claimMAC(m MAC, path string, own map[MAC]bool, u *uniqueness) {
	if m != "" && !own[m] {
		u.claim("MAC", string(m), path)
		own[m] = true
	}
}

func (r *reader) checkLink(l *Link, networks Networks, path string, own map[MAC]bool, u *uniqueness) {
	r.claimMAC(l.MAC, path+".mac", own, u)
	switch {
	case l.Bond != nil && l.MAC != "":
		r.Report(path+".bond", "mac is given as well; keep one of the two")
	case l.Bond == nil && l.MAC == "":
		r.Report(path, "nothing tells which NIC this is; add mac or bond")
	case l.Bond != nil:
		members := map[MAC]bool{}
		for i, m := range l.Bond.MACs {
			at := fmt.Sprintf("%s.bond.macs[%d]", path, i)
			r.claimMAC(m, at, own, u)
			if m != "" && members[m] {
				r.Report(at, "MAC %s is twice in this bond; each must be given once", yamldoc.Quote(string(m)))
			}

			members[m] = true
		}
		if len(l.Bond.MACs) < 2 {
			r.Report(path+".bond.macs", "a bond needs at least two NICs; add one or use mac")
		}
	}

	if l.Address.Method != "static" {
		if l.Gateway.IsValid() {
			r.Report(
				path+".gateway",
				"a gateway belongs to a static address; by DHCP it comes from the server; remove the line",
			)
		}
		return
	}

	p := l.Address.Prefix
	u.claim("address", p.Addr().String(), path+".address")
	r.checkInside(p.Addr(), p.Masked(), path+".address")
	r.checkRouter(l.Gateway, p.Masked(), path+".gateway")
	n := networks.Role(l.Network)
	if n == nil || !n.CIDR.IsValid() {
		return
	}

	switch {
	case p.Masked() != n.CIDR:
		r.Report(
			path+".address", "%s is not in %s, the %s network; use an address and length of it", p, n.CIDR, l.Network,
		)
	case n.DHCP.Range.Contains(p.Addr()):
		r.Report(
			path+".address", "%s is in the DHCP range %s and could be given twice; use one outside", p.Addr(),
			n.DHCP.Range,
		)
	case p.Addr() == n.Gateway:
		r.Report(path+".address", "%s is the gateway of that network; use another", p.Addr())
	}
}
