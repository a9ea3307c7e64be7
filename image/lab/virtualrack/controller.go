package virtualrack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/endpoint"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// controller is a node's BMC, whatever it speaks.
type controller interface {
	Device() string // what its machine starts from next, as package bmc names it
	PowerOn() error // as the button at the front does
	Close() error
}

// bmcEndpoint is where a node's BMC is on its network, with the address at which it is asked: one of the workstation's,
// or, where BMCs lease their addresses, a machine of its own with whatever address it has.
func (s *supervisor) bmcEndpoint(c *machine) (*endpoint.Endpoint, netip.Addr, error) {
	if !s.rack.Order.Discover {
		return s.endpoints[bmcs], c.BMC, nil
	}

	var err error
	c.leasing, err = endpoint.AttachByDHCP(s.switches[bmcs], "BMC of "+c.Name, c.BMCMAC, c.BMC, func(addr netip.Addr) {
		s.log.Info("BMC leased an address", "machine", c.Name, "address", addr)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ipmi != nil {
			s.logError(c.ipmi.SetInside(addr))
		}
	})
	return c.leasing, netip.IPv4Unspecified(), err
}

// serial is what a node's BMC says of its serial number: "" where the site names the nodes.
func (s *supervisor) serial(c *machine) string {
	if !s.rack.Order.Discover {
		return ""
	}
	return c.serial()
}

// startIPMI gives a node a BMC that speaks IPMI.
func (s *supervisor) startIPMI(c *machine) error {
	at, addr, err := s.bmcEndpoint(c)
	if err != nil {
		return err
	}

	front, err := at.ListenPacket(netip.AddrPortFrom(addr, 623))
	if err != nil {
		return err
	}

	var inside netip.Addr
	if s.rack.Order.EmptySite || s.rack.Order.Discover { // nodes without a MAC are known by what their inventory names
		inside = c.BMC
	}
	ipmi, err := bmc.Start(bmc.Config{
		Inside:   inside,
		Serial:   s.serial(c),
		Name:     c.Name,
		Dir:      filepath.Join(c.dir, "bmc"),
		User:     bmcUser,
		Password: s.made.Password,
		Front:    front,
		Device:   c.power.Device,
		Changed: func(device string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			s.logError(c.savePower(power{On: c.power.On, Device: device}))
		},
		Report: s.logError,
	}, c)
	if err != nil {
		return err
	}

	c.mu.Lock()
	c.bmc, c.ipmi = ipmi, ipmi
	c.mu.Unlock()
	c.machine.Reconfigure(func(m *lab.Config) { m.Extra = append(m.Extra, ipmi.Args()...) })
	return nil
}

// startRedfish gives a node a BMC that speaks Redfish, and fetches discs from the bmc network.
func (s *supervisor) startRedfish(c *machine) error {
	at, addr, err := s.bmcEndpoint(c)
	if err != nil {
		return err
	}

	front, err := at.Listen(netip.AddrPortFrom(addr, 443))
	if err != nil {
		return err
	}

	var macs []net.HardwareAddr
	for _, card := range c.Cards {
		macs = append(macs, card.MAC)
	}

	b, err := redfish.Start(redfish.Config{
		Name:     c.Name,
		Dir:      filepath.Join(c.dir, "bmc"),
		User:     bmcUser,
		Password: s.made.Password,
		Serial:   s.serial(c),
		MACs:     macs,
		UEFI:     c.Firmware == lab.UEFI,
		Front:    front,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, fmt.Errorf("dial %s: a BMC of the lab asks no name server; want an address", address)
			}
			return at.Dial(ctx, to)
		},
	}, c)
	if err != nil {
		return err
	}

	c.bmc = b
	return nil
}
