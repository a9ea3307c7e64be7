package site

import (
	"fmt"
	"slices"
)

// checkAllowed checks what a network adds to what the appliance lets through.
func (r *reader) checkAllowed(s *Site, role string) {
	n, path := s.Networks.Role(role), "networks."+role
	r.checkOnce(n.Allow, path+".allow")
	r.checkOnce(n.Forward, path+".forward")
	for i, to := range n.Forward {
		at := fmt.Sprintf("%s.forward[%d]", path, i)
		switch {
		case to == role:
			r.Report(at, "machines of one network need no appliance between them; remove it")
		case to == "bmc" && s.Networks.BMC == nil:
			r.Report(at, "this site has no network bmc; add it, or remove this line")
		}
	}
}

// checkForeign checks what is to happen next to another DHCP server. Where the NIC is not named, such a server decides
// which network it is.
func (r *reader) checkForeign(n *Network, server bool, path string) {
	switch {
	case n.DHCP.Foreign == "":
	case !server:
		r.Report(path, "the appliance answers no DHCP here; remove the line")
	case n.DHCP.Foreign == "ignore-unknown" && n.Bond == nil && n.Interface.IsZero():
		r.Report(path, "a NIC on which another server answers is taken for baremetal; add interface or bond")
	}
}

// checkOnce reports what a list names twice.
func (r *reader) checkOnce(list []string, path string) {
	for i, item := range list {
		if slices.Contains(list[:i], item) {
			r.Report(fmt.Sprintf("%s[%d]", path, i), "%s is there already; give it once", item)
		}
	}
}
