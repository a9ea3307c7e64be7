// Package endpoint is this process as a machine on the lab's Ethernet: an Ethernet card of its
// own with as many addresses as needed, and a TCP/IP stack (gVisor's) in user space. By it a
// workstation reaches the rack, and the rack the BMCs, without an interface, a route or root.
package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Endpoint is a machine that answers to its addresses and routes nothing.
type Endpoint struct {
	stack *stack.Stack
	link  *channel.Endpoint
	port  *vswitch.Port
	end   context.CancelFunc
	gone  chan struct{}

	client     *datagrams // of DHCP; nil: its addresses are given
	closeLease func()     // with a client
}

const (
	card     = 1
	frameMTU = 1500 + header.EthernetMinimumSize
	waiting  = 1024 // frames on their way out
)

// Attach puts an endpoint on a switch. It has the first address, with its network, and answers to
// the others too, which are of the same network.
func Attach(
	s *vswitch.Switch,
	name string,
	mac net.HardwareAddr,
	network netip.Prefix,
	also ...netip.Addr,
) (*Endpoint, error) {
	return attach(s, name, mac, nil, func(st *Endpoint) error { return st.setAddresses(network, also) })
}

// attach puts an endpoint on a switch, with addresses if configure gives it some. What it receives its DHCP client
// gets, too.
func attach(
	s *vswitch.Switch,
	name string,
	mac net.HardwareAddr,
	client *datagrams,
	configure func(*Endpoint) error,
) (*Endpoint, error) {
	st := &Endpoint{
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol},
			TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
			HandleLocal:        true, // a workstation reaches the BMCs, whose addresses are the endpoint's, too
		}),
		link:   channel.New(waiting, uint32(frameMTU), tcpip.LinkAddress(mac)),
		client: client,
		gone:   make(chan struct{}),
	}
	if err := st.stack.CreateNIC(card, ethernet.New(st.link)); err != nil {
		return nil, fmt.Errorf("plug %s into switch %s: %s", name, s.Name, err)
	}
	if configure != nil {
		if err := configure(st); err != nil {
			return nil, fmt.Errorf("plug %s into switch %s: %w", name, s.Name, err)
		}
	}

	var err error
	if st.port, err = s.Attach(name, st.receive); err != nil {
		return nil, err
	}

	ctx, end := context.WithCancel(context.Background())
	st.end = end
	go st.send(ctx)
	return st, nil
}

// setAddresses makes addresses of one network the endpoint's own.
func (st *Endpoint) setAddresses(network netip.Prefix, also []netip.Addr) error {
	for i, a := range append([]netip.Addr{network.Addr()}, also...) {
		bits := 32
		if i == 0 {
			bits = network.Bits()
		}

		address := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFrom4(a.As4()), PrefixLen: bits,
		}}
		if err := st.stack.AddProtocolAddress(card, address, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("address %s: %s", a, err)
		}
	}

	subnet, err := tcpip.NewSubnet(
		tcpip.AddrFrom4(network.Masked().Addr().As4()), tcpip.MaskFromBytes(net.CIDRMask(network.Bits(), 32)),
	)
	if err != nil {
		return fmt.Errorf("network %s: %w", network, err)
	}

	// The network itself and no other: there is no way out.
	st.stack.SetRouteTable([]tcpip.Route{{Destination: subnet, NIC: card}})
	return nil
}

// SetAccessVLAN puts it into a VLAN of the switch.
func (st *Endpoint) SetAccessVLAN(vlan int) { st.port.SetAccessVLAN(vlan) }

// receive takes a frame from the switch.
func (st *Endpoint) receive(frame []byte) {
	if st.client != nil {
		st.client.receive(frame)
	}

	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
	defer p.DecRef()
	st.link.InjectInbound(0, p) // the Ethernet header says which protocol
}

// send passes the stack's frames to the switch until ctx ends.
func (st *Endpoint) send(ctx context.Context) {
	defer close(st.gone)
	for {
		p := st.link.ReadContext(ctx)
		if p == nil {
			return
		}

		view := p.ToView()
		frame := append([]byte(nil), view.AsSlice()...)
		view.Release()
		p.DecRef()
		st.port.Send(frame)
	}
}

func fullAddress(a netip.AddrPort) tcpip.FullAddress {
	at := tcpip.FullAddress{NIC: card, Port: a.Port()}
	if a.Addr().IsValid() && !a.Addr().IsUnspecified() {
		at.Addr = tcpip.AddrFrom4(a.Addr().As4())
	}
	return at
}

// Dial connects to a TCP port of a machine on the wire.
func (st *Endpoint) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if !to.Addr().Is4() {
		return nil, fmt.Errorf("dial %s: the lab speaks IPv4", to)
	}

	conn, err := gonet.DialContextTCP(ctx, st.stack, fullAddress(to), ipv4.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("dial %s on the wire: %w", to, err)
	}

	return conn, nil
}

// Listen accepts TCP connections to one of the endpoint's addresses.
func (st *Endpoint) Listen(at netip.AddrPort) (net.Listener, error) {
	l, err := gonet.ListenTCP(st.stack, fullAddress(at), ipv4.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("listen on %s on the wire: %w", at, err)
	}
	return l, nil
}

// ListenPacket gets the UDP datagrams to one of the endpoint's addresses.
func (st *Endpoint) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	local := fullAddress(at)
	conn, err := gonet.DialUDP(st.stack, &local, nil, ipv4.ProtocolNumber)
	if err != nil {
		return nil, fmt.Errorf("listen on %s on the wire: %w", at, err)
	}

	return conn, nil
}

// Port is where it is plugged in.
func (st *Endpoint) Port() *vswitch.Port { return st.port }

// Close unplugs the endpoint; its connections end.
func (st *Endpoint) Close() error {
	if st.closeLease != nil {
		st.closeLease()
	}
	st.end()
	<-st.gone
	err := st.port.Close()
	st.stack.Close()
	st.link.Close()
	return err
}
