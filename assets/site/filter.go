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

// checkOnce reports what a list names twice.
func (r *reader) checkOnce(list []string, path string) {
	for i, item := range list {
		if slices.Contains(list[:i], item) {
			r.Report(fmt.Sprintf("%s[%d]", path, i), "%s is there already; give it once", item)
		}
	}
}
