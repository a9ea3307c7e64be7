package endpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Paces of an endpoint without an address. BMCs ask as long as there is power.
const (
	answerWait = 4 * time.Second // for one answer; the appliance looks first whether an address is in use
	leasePause = 5 * time.Second
)

// AttachByDHCP puts an endpoint on a switch that leases its one address, as machines do that nobody has configured. It
// listens at once, asks until it is closed, and tells every address that it gets. It wishes for one; the server may
// give another.
func AttachByDHCP(
	s *vswitch.Switch,
	name string,
	mac net.HardwareAddr,
	wish netip.Addr,
	changed func(netip.Addr),
) (*Endpoint, error) {
	client := &datagrams{mac: mac, packets: make(chan []byte, waiting), closed: make(chan struct{})}
	st, err := attach(s, name, mac, client, nil)
	if err != nil {
		return nil, err
	}

	client.send = st.port.Send
	l := lease{endpoint: st, mac: mac, wish: wish, changed: changed, conn: nclient4.NewBroadcastUDPConn(
		client, &net.UDPAddr{Port: nclient4.ClientPort},
	)}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	st.closeLease = func() { end(); client.Close(); <-ended }
	go func() { defer close(ended); l.follow(ctx) }()
	return st, nil
}

// lease is the address of an endpoint that it has for a time.
type lease struct {
	endpoint *Endpoint
	mac      net.HardwareAddr
	wish     netip.Addr
	changed  func(netip.Addr)
	conn     net.PacketConn
	have     netip.Prefix
}

// follow leases an address, renews it when half its time is over (RFC 2131, 4.4.5), and begins again where that fails.
func (l *lease) follow(ctx context.Context) {
	client, err := nclient4.NewWithConn(l.conn, l.mac, nclient4.WithTimeout(answerWait), nclient4.WithRetry(1))
	if err != nil {
		return
	}
	defer client.Close()

	var current *nclient4.Lease
	for ctx.Err() == nil {
		wait := leasePause
		if current == nil {
			current, err = client.Request(ctx, dhcpv4.WithBroadcast(true), dhcpv4.WithOption(
				dhcpv4.OptRequestedIPAddress(l.wish.AsSlice()),
			))
		} else {
			current, err = client.Renew(ctx, current, dhcpv4.WithBroadcast(true))
		}
		if err == nil {
			err = l.use(current.ACK)
		}
		if err == nil {
			wait = current.ACK.IPAddressLeaseTime(time.Hour) / 2
		} else {
			current = nil
		}

		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// use makes a lease's address the endpoint's own.
func (l *lease) use(ack *dhcpv4.DHCPv4) error {
	addr, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	bits, _ := ack.SubnetMask().Size()
	if !ok || bits == 0 {
		return fmt.Errorf("the lease %s is no IPv4 address with a network", ack.YourIPAddr)
	}

	network := netip.PrefixFrom(addr, bits)
	if network == l.have {
		return nil
	}
	if l.have.IsValid() {
		former := tcpip.AddrFrom4(l.have.Addr().As4())
		if err := l.endpoint.stack.RemoveAddress(card, former); err != nil {
			return fmt.Errorf("give up address %s: %s", l.have, err)
		}
	}
	if err := l.endpoint.setAddresses(network, nil); err != nil {
		return err
	}

	l.have = network
	l.changed(addr)
	return nil
}

// datagrams is the connection of a DHCP client: the IPv4 packets of UDP that come to an endpoint, and those that it
// broadcasts. A stack without an address takes and sends none.
type datagrams struct {
	mac     net.HardwareAddr
	send    func(frame []byte)
	packets chan []byte
	closed  chan struct{}
	once    sync.Once
}

// receive takes a frame; those that nobody waits for are dropped.
func (d *datagrams) receive(frame []byte) {
	if len(frame) < header.EthernetMinimumSize+header.IPv4MinimumSize ||
		binary.BigEndian.Uint16(frame[12:]) != uint16(ipv4.ProtocolNumber) ||
		header.IPv4(frame[header.EthernetMinimumSize:]).TransportProtocol() != header.UDPProtocolNumber {
		return
	}

	select {
	case d.packets <- append([]byte(nil), frame[header.EthernetMinimumSize:]...):
	default:
	}
}

func (d *datagrams) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case <-d.closed:
		return 0, nil, net.ErrClosed
	case p := <-d.packets:
		return copy(b, p), nil, nil
	}
}

func (d *datagrams) WriteTo(b []byte, _ net.Addr) (int, error) {
	frame := make([]byte, header.EthernetMinimumSize, header.EthernetMinimumSize+len(b))
	header.Ethernet(frame).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(d.mac),
		DstAddr: header.EthernetBroadcastAddress,
		Type:    header.IPv4ProtocolNumber,
	})
	d.send(append(frame, b...))
	return len(b), nil
}

func (d *datagrams) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *datagrams) LocalAddr() net.Addr              { return &net.UDPAddr{} }
func (d *datagrams) SetDeadline(time.Time) error      { return nil } // the client has deadlines of its own
func (d *datagrams) SetReadDeadline(time.Time) error  { return nil }
func (d *datagrams) SetWriteDeadline(time.Time) error { return nil }
