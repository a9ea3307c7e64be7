package page

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/unknown"
)

// discoveredView is the page of machines that the site does not name: those that await approval first.
type discoveredView struct {
	Policy   *site.Discover // nil: none becomes a node
	IsKnown  bool           // whether machines have booted is known
	Machines []discoveredMachine
	Offers   []offer // to all that await approval
}

// discoveredMachine is one of them, with what it said of itself and what is guessed from it.
type discoveredMachine struct {
	ID     string
	Name   string // that it gets as a node, or its MAC, or the address of its BMC
	Level  level
	Facts  []fact
	Path   string // of its own page; "": it has none
	Guess  string // what the site's policy makes of it, and why; "": there is no policy
	Fix    string
	Entry  string // for nodes of site.yaml
	Offers []offer
}

func newDiscoveredView(p *picture, by Role) discoveredView {
	v := discoveredView{
		Policy:  p.discover,
		IsKnown: p.doc.Launch.State != "",
		Offers:  newOffers(p, by, onDiscovery, ""),
	}
	var others []discoveredMachine
	for _, key := range slices.Sorted(maps.Keys(p.unknown)) {
		u := p.unknown[key]
		m := newDiscoveredMachine(p, by, u)
		if u.Awaits {
			v.Machines = append(v.Machines, m)
		} else {
			others = append(others, m)
		}
	}
	v.Machines = append(v.Machines, others...)
	return v
}

func newDiscoveredMachine(p *picture, by Role, u status.UnknownMachine) discoveredMachine {
	m := discoveredMachine{
		ID:     "machine-" + u.Key(),
		Name:   cmp.Or(u.Node, u.Key()),
		Level:  idle,
		Guess:  u.Why,
		Fix:    u.Fix,
		Entry:  unknown.SiteEntry(u),
		Offers: newOffers(p, by, onMachine, u.Key()),
	}
	if u.Awaits {
		m.Level = bad
	}
	if slices.ContainsFunc(p.nodes, func(n status.Node) bool { return n.Name == u.MAC }) {
		m.Path = "/nodes/" + url.PathEscape(u.MAC)
	}

	var disks, nics []string
	for _, d := range u.Disks {
		disks = append(disks, strings.TrimSpace(d.Name+" "+formatBytes(d.Bytes)+" "+d.Model))
	}
	for _, n := range u.NICs {
		link := "no link"
		if n.Link {
			link = "link"
		}
		nics = append(nics, strings.TrimSpace(n.Name+" "+n.MAC+", "+link))
	}
	bmc := u.BMC
	if u.Found != "" {
		bmc += ", " + u.Found
	}
	for _, f := range []fact{
		{"Machine", unknown.Summary(u)},
		{"Booted from", u.MAC},
		{"BMC", bmc},
		{"Disks", strings.Join(disks, "; ")},
		{"NICs", strings.Join(nics, "; ")},
	} {
		if f.Text != "" {
			m.Facts = append(m.Facts, f)
		}
	}
	return m
}

// awaitsApproval is about a machine: the name that it gets as a node, and what it is known by.
func awaitsApproval(p *picture, name string) (about string, ok bool) {
	u := p.unknown[name]
	return u.Approval(u.Node), u.Awaits
}

// awaitApproval is about all that await approval, if there are several.
func awaitApproval(p *picture, _ string) (about string, ok bool) {
	var names []string
	for _, u := range p.unknown {
		if u.Awaits {
			names = append(names, u.Approval(u.Node))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " "), len(names) > 1
}

// approvals make nodes of machines: of one, and of all that were shown.
func approvals() []action {
	approve := func(_ context.Context, s *Server, o order) (result, error) {
		approved, err := s.deeds.Approve(strings.Fields(o.about))
		if err != nil && len(approved) > 0 {
			return result{text: describeApproved(approved) + " " + err.Error()}, nil
		}
		return result{text: describeApproved(approved)}, err
	}
	return []action{
		{
			name: "approve", on: onMachine, needs: Operator, title: "Make it a node",
			effect:  "This machine becomes a node of the site: it is checked, inspected, installed and verified.",
			offered: awaitsApproval,
			do:      approve,
		},
		{
			name: "approve-all", on: onDiscovery, needs: Operator, title: "Approve all",
			effect:  "Each of these machines becomes a node of the site: it is checked, inspected, installed and verified.",
			offered: awaitApproval,
			do:      approve,
		},
	}
}

func describeApproved(names []string) string {
	if len(names) == 1 {
		return names[0] + " is a node now."
	}
	return strings.Join(names, ", ") + " are nodes now."
}
