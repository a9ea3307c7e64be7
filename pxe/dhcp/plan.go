package dhcp

import (
	"net/netip"

	"firstlight.dev/firstlight/pxe/lease"
)

// Plan is a valid Config, prepared for answering.
type Plan struct {
	Config
	spaces []lease.Space
	known  map[lease.MAC]Reservation
	files  map[uint16]BootFile
}

// NewPlan checks c and prepares it.
func NewPlan(c Config) (*Plan, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}

	p := &Plan{Config: c, known: map[lease.MAC]Reservation{}, files: map[uint16]BootFile{}}
	for _, r := range c.Reservations {
		mac, _ := lease.MACFrom(r.MAC)
		p.known[mac] = r
	}

	for _, s := range c.Subnets {
		p.spaces = append(p.spaces, p.space(s))
	}

	files := c.Files
	if files == nil {
		files = DefaultFiles()
	}

	for _, f := range files {
		p.files[f.Arch] = f
	}

	return p, nil
}

// space is what s may give out. A machine with a reserved address is known in that subnet
// only through it; one without is known in all.
func (p *Plan) space(s Subnet) lease.Space {
	space := lease.Space{
		Subnet: s.Prefix,
		Pool:   s.Pool,
		Known:  s.Known,
		Never:  map[netip.Addr]bool{p.Server: true},
		Fixed:  map[netip.Addr]lease.MAC{},
		ByMAC:  map[lease.MAC]netip.Addr{},
	}
	if s.Router.IsValid() {
		space.Never[s.Router] = true
	}

	for mac, r := range p.known {
		switch {
		case s.Prefix.Contains(r.Addr):
			space.Fixed[r.Addr] = mac
			space.ByMAC[mac] = r.Addr
		default:
			space.ByMAC[mac] = netip.Addr{}
		}
	}

	return space
}

// Spaces is what the lease table may give out.
func (p *Plan) Spaces() []lease.Space { return p.spaces }

// subnetFor finds the subnet a request came from: the relay's, else that of the address
// the machine already uses, else the local one.
func (p *Plan) subnetFor(r Request) (Subnet, bool) {
	if relay := addr4(r.Packet.GatewayIPAddr); relay.IsValid() {
		if link := linkSelection(r.Packet); link.IsValid() {
			relay = link
		}
		return p.subnetOf(relay)
	}
	if used := addr4(r.Packet.ClientIPAddr); used.IsValid() {
		if s, ok := p.subnetOf(used); ok {
			return s, true
		}
	}
	return p.subnetOf(p.Server)
}
