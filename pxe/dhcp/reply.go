package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// newReply begins a reply: what RFC 2131 table 3 copies, the relay's option 82 (RFC 3046)
// and the client identifier (RFC 6842).
func (d *decision) newReply(t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	p := d.req.Packet
	reply := &dhcpv4.DHCPv4{
		OpCode:        dhcpv4.OpcodeBootReply,
		HWType:        p.HWType,
		TransactionID: p.TransactionID,
		Flags:         p.Flags,
		ClientHWAddr:  p.ClientHWAddr,
		ClientIPAddr:  net.IPv4zero,
		YourIPAddr:    net.IPv4zero,
		ServerIPAddr:  net.IPv4zero,
		GatewayIPAddr: p.GatewayIPAddr,
		Options:       make(dhcpv4.Options, 16),
	}
	reply.Options[dhcpv4.OptionDHCPMessageType.Code()] = []byte{byte(t)}
	reply.Options[dhcpv4.OptionServerIdentifier.Code()] = d.plan.Server.AsSlice()
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if v := p.Options.Get(code); v != nil {
			reply.Options[code.Code()] = v
		}
	}

	return reply
}

// reply completes an OFFER or ACK for addr; an invalid addr answers an INFORM, which
// carries no times (RFC 2131 4.3.5).
func (d *decision) reply(t dhcpv4.MessageType, addr netip.Addr) {
	r, p, s := d.newReply(t), d.req.Packet, d.subnet
	if t == dhcpv4.MessageTypeAck {
		r.ClientIPAddr = p.ClientIPAddr
	}

	put := func(code dhcpv4.OptionCode, v []byte) { r.Options[code.Code()] = v }
	if addr.IsValid() {
		r.YourIPAddr = addr.AsSlice()
		put(dhcpv4.OptionIPAddressLeaseTime, secondsOption(s.leaseTime()))
		put(dhcpv4.OptionRenewTimeValue, secondsOption(s.leaseTime()/2))
		put(dhcpv4.OptionRebindingTimeValue, secondsOption(s.leaseTime()/8*7))
	}

	put(dhcpv4.OptionSubnetMask, net.CIDRMask(s.Prefix.Bits(), 32))
	wanted := p.Options.Get(dhcpv4.OptionParameterRequestList)
	optional := func(code dhcpv4.OptionCode, v []byte) {
		if len(v) > 0 && (wanted == nil || slices.Contains(wanted, code.Code())) {
			put(code, v)
		}
	}
	if s.Router.IsValid() {
		optional(dhcpv4.OptionRouter, s.Router.AsSlice())
	}

	optional(dhcpv4.OptionBroadcastAddress, broadcastOption(s.Prefix))
	optional(dhcpv4.OptionDomainNameServer, join(s.DNS))
	optional(dhcpv4.OptionNTPServers, join(s.NTP))
	optional(dhcpv4.OptionDomainName, []byte(s.Domain))
	optional(dhcpv4.OptionClasslessStaticRoute, s.routes())
	if s.MTU != 0 {
		optional(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, s.MTU))
	}

	optional(dhcpv4.OptionHostName, []byte(d.plan.known[d.req.MAC].Hostname))
	d.req.Machine.Addr = addr
	e := Event{Kind: KindAck, Addr: addr}
	if t == dhcpv4.MessageTypeOffer {
		e.Kind = KindOffer
	}

	b := d.boot()
	b.write(d, r)
	e.File, e.Reason, e.Text = b.file, b.reason, b.text
	d.answer.Reply = r
	d.addEvent(e)
}

// routes is option 121. A client that takes it ignores the router option (RFC 3442), so
// the default route is repeated in it.
func (s Subnet) routes() []byte {
	if len(s.Routes) == 0 {
		return nil
	}

	var b []byte
	add := func(dest netip.Prefix, via netip.Addr) {
		b = append(b, byte(dest.Bits()))
		b = append(b, dest.Masked().Addr().AsSlice()[:(dest.Bits()+7)/8]...)
		b = append(b, via.AsSlice()...)
	}
	hasDefault := false
	for _, r := range s.Routes {
		add(r.Dest, r.Via)
		hasDefault = hasDefault || r.Dest.Bits() == 0
	}

	if s.Router.IsValid() && !hasDefault {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), s.Router)
	}

	return b
}

func secondsOption(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(d/time.Second))
}

func join(addrs []netip.Addr) []byte {
	var b []byte
	for _, a := range addrs {
		b = append(b, a.AsSlice()...)
	}
	return b
}

func broadcastOption(p netip.Prefix) []byte {
	b := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | uint32(uint64(1)<<(32-p.Bits())-1)
	return binary.BigEndian.AppendUint32(nil, n)
}

func (c Config) quarantine() time.Duration {
	if c.Quarantine == 0 {
		return time.Hour
	}
	return c.Quarantine
}
