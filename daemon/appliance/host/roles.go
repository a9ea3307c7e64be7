package host

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// Roles of networks, as the site names them; each has a bridge of the same name.
const (
	Provisioning = "provisioning"
	BMC          = "bmc"
	Baremetal    = "baremetal"
)

// NIC is one physical interface as the kernel shows it.
type NIC struct {
	Name string
	MAC  string // lower case, with colons
	PCI  string // 0000:3b:00.0, "" if it is not a PCI device
	Link bool
}

// Probe is what a DHCP DISCOVER on a NIC brought.
type Probe struct {
	Answered bool
	Server   string // who answered
}

func (p Probe) reason() string {
	if p.Answered {
		return "DHCP server " + p.Server + " answers on it"
	}
	return "it has a link and no DHCP server answers on it"
}

// Assignment is a role, the NICs it has, and why. NICs is empty for a role whose NIC is
// not there: its bridge and address exist all the same.
type Assignment struct {
	Role string
	NICs []NIC
	Why  string
}

// AssignRoles decides which NIC has which role. In this order: what the site names; what was
// decided before, by MAC; what a probe says: a NIC on which a DHCP server answers is
// baremetal, a silent one with a link is provisioning. Undecided are the NICs with a link
// that still have to be probed; detected are the roles found by probing, to be remembered;
// notes are sentences for people about NICs that got no role.
func AssignRoles(
	nics []NIC,
	probes map[string]Probe,
	remembered map[string]string,
	networks site.Networks,
) (all []Assignment, undecided []NIC, detected map[string]string, notes []string) {
	nics = slices.Clone(nics)
	slices.SortFunc(nics, func(a, b NIC) int { return cmp.Or(cmp.Compare(a.PCI, b.PCI), cmp.Compare(a.MAC, b.MAC)) })
	found := map[string]Assignment{}
	taken := map[string]bool{} // MACs
	detected = map[string]string{}

	for _, role := range site.Roles() {
		names := namedNICs(networks.Role(role))
		if len(names) == 0 {
			continue
		}

		a := Assignment{Role: role, Why: "named in the site"}
		for _, name := range names {
			i := slices.IndexFunc(nics, func(n NIC) bool { return nicMatches(n, name) })
			if i < 0 {
				notes = append(notes, fmt.Sprintf("Network %s: no NIC is %s; there are %s.", role, name, list(nics)))
				continue
			}

			a.NICs = append(a.NICs, nics[i])
			taken[nics[i].MAC] = true
		}

		found[role] = a
	}

	give := func(role string, n NIC, why string) bool {
		if _, has := found[role]; has || taken[n.MAC] {
			return false
		}
		found[role], taken[n.MAC], detected[n.MAC] = Assignment{Role: role, NICs: []NIC{n}, Why: why}, true, role
		return true
	}
	for _, n := range nics {
		if role := remembered[n.MAC]; role == Provisioning || role == Baremetal {
			why := "found at an earlier boot"
			if p, asked := probes[n.MAC]; asked {
				why = p.reason()
			}
			give(role, n, why)
		}
	}

	for _, n := range nics {
		p, asked := probes[n.MAC]
		switch {
		case taken[n.MAC]:
		case hasRole(found, Provisioning) && hasRole(found, Baremetal):
			notes = append(notes, fmt.Sprintf("NIC %s is not used; name it in the site to give it a role.", n.Name))
		case !n.Link:
			notes = append(notes, fmt.Sprintf("NIC %s has no link yet.", n.Name))
		case !asked:
			undecided = append(undecided, n)
		case p.Answered:
			if !give(Baremetal, n, p.reason()) {
				notes = append(notes, fmt.Sprintf(
					"NIC %s is not used: DHCP server %s answers on it, and baremetal has a NIC already.", n.Name,
					p.Server,
				))
			}
		default:
			if !give(Provisioning, n, p.reason()) {
				notes = append(notes, fmt.Sprintf(
					"NIC %s is not used: no DHCP server answers on it, and provisioning has a NIC already.", n.Name,
				))
			}
		}
	}

	for _, role := range site.Roles() {
		a, ok := found[role]
		switch {
		case ok:
			all = append(all, a)
		case role == Provisioning:
			all = append(all, Assignment{Role: role, Why: "no NIC for it yet"})
		case networks.Role(role) != nil && (role == Baremetal && !isDefault(networks.Baremetal) || role == BMC):
			all = append(all, Assignment{Role: role, Why: "in the site, without a NIC"})
			if role == BMC {
				notes = append(notes, "Network bmc has no interface: name one in the site; it cannot be detected.")
			}
		}
	}

	return all, undecided, detected, notes
}

func hasRole(found map[string]Assignment, role string) bool { _, ok := found[role]; return ok }

// namedNICs are the NICs that the site names for a network.
func namedNICs(n *site.Network) []site.Interface {
	switch {
	case n == nil:
		return nil
	case n.Bond != nil:
		return n.Bond.Interfaces
	case !n.Interface.IsZero():
		return []site.Interface{n.Interface}
	}
	return nil
}

// isDefault tells a network that the site only has by default.
func isDefault(n *site.Network) bool { return !n.CIDR.IsValid() && !n.Address.IsValid() }

func nicMatches(n NIC, i site.Interface) bool {
	switch {
	case i.MAC != "":
		return n.MAC == i.MAC.String()
	case i.PCI != "":
		return n.PCI == i.PCI
	default:
		return n.Name == i.Name
	}
}

func list(nics []NIC) string {
	if len(nics) == 0 {
		return "none"
	}

	var b []string
	for _, n := range nics {
		b = append(b, strings.TrimSpace(n.Name+" "+n.MAC+" "+n.PCI))
	}

	return strings.Join(b, ", ")
}
