package testrack

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/redfish"
)

func (r *Rack) startIPMI(b *Server) error {
	var front net.PacketConn
	at := net.JoinHostPort(BMCAddr, strconv.Itoa(b.Port))
	if err := netns.Do(
		r.Network(), func() (err error) { front, err = net.ListenPacket("udp", at); return err },
	); err != nil {
		return fmt.Errorf("listen for its BMC: %w", err)
	}

	var err error
	b.bmc, err = bmc.Start(bmc.Config{
		Name:     b.Name,
		Dir:      filepath.Join(b.Dir, "bmc"),
		User:     User,
		Password: Password,
		Front:    front,
	}, b)
	return err
}

func (r *Rack) startRedfish(b *Server) error {
	var front net.Listener
	at := net.JoinHostPort(BMCAddr, strconv.Itoa(b.Port))
	if err := netns.Do(
		r.Network(), func() (err error) { front, err = net.Listen("tcp", at); return err },
	); err != nil {
		return fmt.Errorf("listen for its BMC: %w", err)
	}

	var err error
	b.redfish, err = redfish.Start(redfish.Config{
		Name:     b.Name,
		Dir:      filepath.Join(b.Dir, "bmc"),
		User:     User,
		Password: Password,
		MACs:     []net.HardwareAddr{b.machine.Config().NICs[0].MAC},
		UEFI:     b.Firmware != lab.BIOS && b.Firmware != "",
		Front:    front,
		Dial:     r.dial,
	}, b)
	return err
}

// dial connects from the rack's own address, as a BMC does.
func (r *Rack) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = netns.Do(r.Network(), func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// BMC is the server's controller, if it speaks IPMI.
func (b *Server) BMC() *bmc.BMC { return b.bmc }

// Writes is every order that the server's controller was given, oldest first.
func (b *Server) Writes() []string {
	if b.redfish != nil {
		return b.redfish.Writes()
	}
	return b.bmc.Writes()
}

func (b *Server) closeBMC() error {
	if b.redfish != nil {
		return b.redfish.Close()
	}
	return b.bmc.Close()
}
