package virtualrack

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// controller is a node's BMC, whatever it speaks.
type controller interface {
	Device() string // what its machine starts from next, as package bmc names it
	PowerOn() error // as the button at the front does
	Close() error
}

// startIPMI gives a node a BMC that speaks IPMI.
func (s *supervisor) startIPMI(c *machine) error {
	front, err := s.endpoints[bmcs].ListenPacket(netip.AddrPortFrom(c.BMC, 623))
	if err != nil {
		return err
	}

	var inside netip.Addr
	if s.rack.Order.EmptySite { // hosts without a MAC are found by what their inventory says of their BMC
		inside = c.BMC
	}
	c.ipmi, err = bmc.Start(bmc.Config{
		Inside:   inside,
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

	c.bmc = c.ipmi
	c.machine.Reconfigure(func(m *lab.Config) { m.Extra = append(m.Extra, c.ipmi.Args()...) })
	return nil
}

// startRedfish gives a node a BMC that speaks Redfish, and fetches discs from the bmc network.
func (s *supervisor) startRedfish(c *machine) error {
	front, err := s.endpoints[bmcs].Listen(netip.AddrPortFrom(c.BMC, 443))
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
		MACs:     macs,
		UEFI:     c.Firmware == lab.UEFI,
		Front:    front,
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, fmt.Errorf("dial %s: a BMC of the lab asks no name server; want an address", address)
			}
			return s.endpoints[bmcs].Dial(ctx, to)
		},
	}, c)
	if err != nil {
		return err
	}

	c.bmc = b
	return nil
}
