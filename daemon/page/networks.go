package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
)

// maxLeases is how many leases of a network are listed.
const maxLeases = 500

// NetworkDHCP is what the appliance's DHCP server does on one network.
type NetworkDHCP struct {
	Role   string
	Status dhcp.Status
	Leases []lease.ListedLease // that machines have now
}

// networksView is the page of the appliance's networks.
type networksView struct {
	Networks []networkView
	Drawing  *networkDrawing // nil without a network
	Heard    []heardMachine  // on provisioning, the latest first
}

// networkView is one network.
type networkView struct {
	status.Address
	Level   level
	State   string // of our DHCP server, in words
	Text    string // what is, and what to do
	Servers []firewall.Listener
	Foreign []dhcp.Foreign
	Leases  []leaseRow
	Hidden  int // leases that are not listed
}

// leaseRow is one lease.
type leaseRow struct {
	lease.ListedLease
	Node string // that has the MAC; "" if none is known
	Path string
}

// heardMachine is a machine that asked for something on provisioning, and how it was answered last.
type heardMachine struct {
	MAC     string
	Node    string
	Path    string
	Address string
	Time    time.Time
	Text    string // the last step of its network boot
	Error   string
}

// showNetworks is the page of networks.
func showNetworks(p *picture, _ Role, _ *http.Request) (any, string, bool) {
	return newNetworksView(p), "Networks", true
}

func newNetworksView(p *picture) networksView {
	var v networksView
	owners := nodesByMAC(p)
	for _, a := range p.doc.Addresses {
		n := networkView{Address: a, Level: idle, State: "none of ours"}
		isServed := false
		for _, d := range p.dhcp {
			if d.Role == a.Role {
				n.addDHCP(d, owners)
				isServed = true
			}
		}
		for _, l := range p.reached[a.Role] {
			if isServed || !slices.Contains([]string{"dhcp", "pxe"}, l.Name) {
				n.Servers = append(n.Servers, l)
			}
		}
		v.Networks = append(v.Networks, n)
	}

	v.Drawing = drawNetworks(p.doc.Name, v.Networks)
	for mac, t := range p.traces {
		v.Heard = append(v.Heard, newHeardMachine(mac, t, owners[mac]))
	}
	slices.SortFunc(v.Heard, func(a, b heardMachine) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.MAC, b.MAC))
	})
	return v
}

// nodesByMAC are the names of nodes and of machines that nobody named, by each MAC that is known of them.
func nodesByMAC(p *picture) map[string]string {
	owners := map[string]string{}
	for _, u := range p.unknown {
		for _, n := range u.NICs {
			owners[strings.ToLower(n.MAC)] = u.MAC
		}
	}
	for name, host := range p.hosts {
		owners[strings.ToLower(host.Spec.BootMACAddress)] = name
		if d := host.Status.HardwareDetails; d != nil {
			for _, n := range d.NIC {
				owners[strings.ToLower(n.MAC)] = name
			}
		}
	}
	for name, macs := range p.macs {
		for _, mac := range macs {
			owners[strings.ToLower(mac)] = name
		}
	}
	for _, n := range p.nodes {
		if _, isMachine := p.traces[n.Name]; isMachine && owners[n.Name] == "" {
			owners[n.Name] = n.Name // a machine that nobody named is called by its MAC
		}
	}
	return owners
}

// addDHCP adds what our server does, and who else answers.
func (n *networkView) addDHCP(d NetworkDHCP, owners map[string]string) {
	n.State, n.Text, n.Foreign = string(d.Status.Phase), d.Status.Text, d.Status.Foreign
	switch {
	case d.Status.Phase == dhcp.PhaseSilent, d.Status.Phase == dhcp.PhaseBroken:
		n.Level = bad
	case d.Status.Phase == dhcp.PhaseProbing, len(d.Status.Foreign) > 0 && d.Status.Phase != dhcp.PhaseProxy:
		n.Level = busy
	default:
		n.Level = good
	}

	leases := slices.Clone(d.Leases)
	slices.SortFunc(leases, func(a, b lease.ListedLease) int { return a.Addr.Compare(b.Addr) })
	n.Hidden = max(len(leases)-maxLeases, 0)
	for _, l := range leases[:len(leases)-n.Hidden] {
		row := leaseRow{ListedLease: l, Node: owners[strings.ToLower(l.MAC)]}
		if row.Node != "" {
			row.Path = "/nodes/" + url.PathEscape(row.Node)
		}
		n.Leases = append(n.Leases, row)
	}
}

func newHeardMachine(mac string, t boottrace.Trace, node string) heardMachine {
	h := heardMachine{MAC: mac, Node: node, Time: t.Since, Text: "Asked"}
	if node != "" {
		h.Path = "/nodes/" + url.PathEscape(node)
	}
	if t.Addr.IsValid() {
		h.Address = t.Addr.String()
	}
	for _, m := range t.Marks {
		if !m.Time.Before(h.Time) {
			h.Time, h.Text, h.Error = m.Time, markTitle(m), cmp.Or(m.Refused, m.Error)
		}
	}
	return h
}
