package page

import (
	"cmp"
	"fmt"
	"strings"
)

// Sizes of the drawing of networks, in pixels of CSS.
const (
	applianceWidth = 150
	networkX       = 300
	networkWidth   = 370
	networkHeight  = 82
	networkGap     = 20
	foreignX       = 720
	foreignWidth   = 230
)

// networkDrawing is a picture of the networks: the appliance at the left, a line for the NICs of each network, the
// network, and at the right who else gives addresses there.
type networkDrawing struct {
	Width, Height int
	Name          string // of the appliance
	Appliance     rectangle
	Rows          []networkRow
}

// rectangle is a box by its upper left corner.
type rectangle struct{ X, Y, Width, Height int }

// Right is where a box ends.
func (r rectangle) Right() int { return r.X + r.Width }

// networkRow is one network in that picture.
type networkRow struct {
	Title   string
	Level   level
	Address string
	DHCP    string
	Servers string // what of the appliance answers
	NICs    string
	HasLink bool
	Foreign string // who else gives addresses; "" if nobody was heard

	LineY      int
	Box, Other rectangle // of the network, and of who else gives addresses
}

// drawNetworks is nil without a network.
func drawNetworks(name string, all []networkView) *networkDrawing {
	if len(all) == 0 {
		return nil
	}

	d := &networkDrawing{Width: networkX + networkWidth + margin, Name: shorten(name, 18)}
	for i, n := range all {
		y := margin + i*(networkHeight+networkGap)
		row := networkRow{
			Title:   n.Role,
			Level:   n.Level,
			Address: cmp.Or(shorten(strings.Join(n.Addresses, " "), 50), "no address yet"),
			DHCP:    shorten(dhcpLabel(n), 50),
			Servers: shorten(serversLabel(n), 60),
			LineY:   y + networkHeight/2,
			Box:     rectangle{networkX, y, networkWidth, networkHeight},
			Other:   rectangle{foreignX, y, foreignWidth, networkHeight},
		}
		row.NICs, row.HasLink = linkLabel(n)
		if len(n.Foreign) > 0 {
			row.Foreign = shorten(foreignLabel(n), 30)
			d.Width = row.Other.Right() + margin
		}
		d.Rows = append(d.Rows, row)
		d.Height = row.Box.Y + networkHeight + margin
	}
	d.Appliance = rectangle{margin, margin, applianceWidth, d.Height - 2*margin}
	return d
}

// dhcpLabel is our DHCP server in a few words.
func dhcpLabel(n networkView) string {
	switch {
	case n.DHCPServer != "":
		return "asks DHCP of " + n.DHCPServer
	case n.Level == idle:
		return "no DHCP of ours"
	}
	count := len(n.Leases) + n.Hidden
	return fmt.Sprintf("our DHCP: %s, %d leases", n.State, count)
}

// serversLabel names what of the appliance answers on a network.
func serversLabel(n networkView) string {
	var names []string
	for _, l := range n.Servers {
		names = append(names, l.Name)
	}
	if len(names) == 0 {
		return "nothing answers"
	}
	return strings.Join(names, " ")
}

// linkLabel names the NICs of a network, and says whether one of them has a link.
func linkLabel(n networkView) (text string, hasLink bool) {
	var names []string
	for _, nic := range n.NICs {
		names = append(names, nic.Name)
		hasLink = hasLink || nic.Link
	}
	switch {
	case len(names) == 0:
		return "no NIC", false
	case !hasLink:
		return shorten(strings.Join(names, " ")+": no link", 18), false
	}
	return shorten(strings.Join(names, " "), 18), true
}

func foreignLabel(n networkView) string {
	first := n.Foreign[0].Server.String()
	if more := len(n.Foreign) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", first, more)
	}
	return first
}
