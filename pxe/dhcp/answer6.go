package dhcp

import (
	"context"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Decide6 is Decide for DHCPv6; own is the server's identifier. A machine has one address, whatever identifiers its
// firmware, iPXE and its ramdisk have.
func Decide6(
	ctx context.Context, p *Plan, t *lease.Table, now lease.Tick, booter pxe.Booter, own dhcpv6.DUID, r Request6,
) Answer {
	d := decision6{
		decision: decision{ctx: ctx, plan: p, table: t, now: now, booter: booter, req: r.Request},
		own:      own,
		msg:      r.Message,
	}
	subnet, ok := p.subnetFor6(r)
	if !ok {
		d.refuse(ReasonUnknownRelay, "relay with link %v is in none of the subnets; add its subnet", r.Link)
		return d.answer
	}

	d.subnet = subnet
	d.serve()
	return d.answer
}

// subnetFor6 is the subnet of a machine: the relay's, or the local one.
func (p *Plan) subnetFor6(r Request6) (Subnet, bool) {
	if r.Relay != nil {
		return p.subnetOf(r.Link)
	}
	return p.subnetOf(p.Server)
}

type decision6 struct {
	decision
	own dhcpv6.DUID
	msg *dhcpv6.Message
}

func (d *decision6) query() lease.Query {
	return lease.Query{MAC: d.req.MAC, Subnet: d.subnet.Prefix, Want: wantedAddr(d.msg)}
}

// serve tells the messages of clients apart (RFC 8415 18.3). Those that are for one server alone name it.
func (d *decision6) serve() {
	switch d.msg.MessageType {
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		if id := d.msg.Options.ServerID(); id == nil || !id.Equal(d.own) {
			d.answer.Unhold = true
			d.refuse(ReasonOtherServer, "%v chose another DHCPv6 server", d.req.MAC)
			return
		}
	case dhcpv6.MessageTypeInformationRequest:
		if id := d.msg.Options.ServerID(); id != nil && !id.Equal(d.own) {
			d.refuse(ReasonOtherServer, "%v asks another DHCPv6 server", d.req.MAC)
			return
		}
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
	default:
		d.refuse(ReasonUnexpected, "message %v is not for servers", d.msg.MessageType)
		return
	}

	switch d.msg.MessageType {
	case dhcpv6.MessageTypeSolicit:
		d.solicit()
	case dhcpv6.MessageTypeRequest:
		d.request()
	case dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		d.extend()
	case dhcpv6.MessageTypeConfirm:
		d.confirm()
	case dhcpv6.MessageTypeRelease:
		d.release()
	case dhcpv6.MessageTypeDecline:
		d.decline()
	default:
		d.reply(dhcpv6.MessageTypeReply, netip.Addr{})
	}
}

func (d *decision6) solicit() {
	d.addEvent(Event{Kind: KindDiscover})
	q := d.query()
	if d.msg.Options.OneIANA() == nil {
		d.refuse(ReasonMalformed, "%v asks for no address (IA_NA)", d.req.MAC)
		return
	}

	addr, ok := d.table.Pick(q, d.now)
	if !ok {
		d.refuseEmpty()
		return
	}

	d.answer.Hold = addr
	d.watchDuplicate(q)
	d.reply(dhcpv6.MessageTypeAdvertise, addr)
}

// request takes up our offer, also one made before a restart. A client takes the address that it is given, whatever it
// asked for.
func (d *decision6) request() {
	q := d.query()
	switch {
	case d.msg.Options.OneIANA() == nil:
		d.refuse(ReasonMalformed, "%v asks for no address (IA_NA)", d.req.MAC)
	case q.Want.IsValid() && d.table.IsFor(q, q.Want, d.now):
		d.grant(q.Want)
	default:
		addr, ok := d.table.Pick(q, d.now)
		if !ok {
			d.refuseEmpty()
			return
		}
		d.grant(addr)
	}
}

// extend renews or rebinds, also what was forgotten: the machine uses it. What is another machine's ends at once.
func (d *decision6) extend() {
	q := d.query()
	switch {
	case !q.Want.IsValid():
		d.refuse(ReasonMalformed, "%v renews no address", d.req.MAC)
	case d.table.IsFor(q, q.Want, d.now):
		d.grant(q.Want)
	default:
		text := q.Want.String() + " is not for " + d.req.MAC.String()
		reply := d.newReply(dhcpv6.MessageTypeReply)
		reply.AddOption(d.identity(q.Want, 0))
		d.answer.Reply6 = reply
		d.addEvent(Event{Kind: KindNak, Addr: q.Want, Reason: ReasonNotYours, Text: text})
	}
}

// confirm says whether the machine is still on the network of its address; it extends nothing.
func (d *decision6) confirm() {
	want := wantedAddr(d.msg)
	if !want.IsValid() {
		d.refuse(ReasonMalformed, "%v confirms no address", d.req.MAC)
		return
	}

	if !d.subnet.Prefix.Contains(want) {
		d.replyStatus(iana.StatusNotOnLink, "the address is not of this network")
		d.addEvent(Event{
			Kind:   KindNak,
			Addr:   want,
			Reason: ReasonWrongNet,
			Text:   want.String() + " is not an address of " + d.subnet.Prefix.String(),
		})
		return
	}

	d.replyStatus(iana.StatusSuccess, "")
	d.addEvent(Event{Kind: KindAck, Addr: want})
}

func (d *decision6) grant(addr netip.Addr) {
	d.watchDuplicate(d.query())
	l := lease.Lease{
		Addr:     addr,
		MAC:      d.req.MAC,
		Subnet:   d.subnet.Prefix,
		State:    lease.Active,
		Start:    d.now,
		Duration: d.subnet.leaseTime(),
		Arch:     d.req.Machine.Arch,
	}
	if old, ok := d.table.LeaseAt(addr); ok && old.MAC == l.MAC && l.Arch == 0 {
		l.Arch = old.Arch // the booted system does not repeat what firmware said
	}

	d.answer.Put = &l
	d.reply(dhcpv6.MessageTypeReply, addr)
}

// release answers, and leaves the lease to end by its time: EDK2 releases the address with which it then loads its boot
// program (its PXE driver stops DHCP and continues).
func (d *decision6) release() {
	addr := wantedAddr(d.msg)
	d.replyStatus(iana.StatusSuccess, "")
	if l, ok := d.table.LeaseAt(addr); !ok || l.MAC != d.req.MAC || !l.IsActive(d.now) {
		d.refuse(ReasonNotYours, "%v releases %v, which it does not have", d.req.MAC, addr)
		return
	}

	d.addEvent(Event{Kind: KindRelease, Addr: addr})
}

func (d *decision6) decline() {
	d.replyStatus(iana.StatusSuccess, "")
	d.declineAddress(wantedAddr(d.msg), d.query())
}

// newReply begins a reply: both identifiers (RFC 8415 16.3, 16.10).
func (d *decision6) newReply(t dhcpv6.MessageType) *dhcpv6.Message {
	reply := &dhcpv6.Message{MessageType: t, TransactionID: d.msg.TransactionID}
	reply.AddOption(d.msg.GetOneOption(dhcpv6.OptionClientID))
	reply.AddOption(dhcpv6.OptServerID(d.own))
	return reply
}

func (d *decision6) replyStatus(code iana.StatusCode, text string) {
	reply := d.newReply(dhcpv6.MessageTypeReply)
	reply.AddOption(&dhcpv6.OptStatusCode{StatusCode: code, StatusMessage: text})
	d.answer.Reply6 = reply
}

// identity is the client's first IA_NA with an address for a time; 0 ends it.
func (d *decision6) identity(addr netip.Addr, valid time.Duration) *dhcpv6.OptIANA {
	ia := &dhcpv6.OptIANA{IaId: d.msg.Options.OneIANA().IaId, T1: valid / 2, T2: valid / 8 * 7}
	ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: addr.AsSlice(), PreferredLifetime: valid, ValidLifetime: valid})
	return ia
}

// reply completes an ADVERTISE or REPLY for addr; an invalid addr answers an INFORMATION-REQUEST. Further IAs get no
// addresses (RFC 8415 18.3.2).
func (d *decision6) reply(t dhcpv6.MessageType, addr netip.Addr) {
	r := d.newReply(t)
	if addr.IsValid() {
		r.AddOption(d.identity(addr, d.subnet.leaseTime()))
		for _, other := range d.msg.Options.IANA()[1:] {
			none := &dhcpv6.OptIANA{IaId: other.IaId}
			none.Options.Add(&dhcpv6.OptStatusCode{
				StatusCode: iana.StatusNoAddrsAvail, StatusMessage: "one address for each machine",
			})
			r.AddOption(none)
		}
	}

	if len(d.subnet.DNS) > 0 && d.msg.IsOptionRequested(dhcpv6.OptionDNSRecursiveNameServer) {
		r.AddOption(dhcpv6.OptDNS(toIPs(d.subnet.DNS)...))
	}

	d.req.Machine.Addr = addr
	e := Event{Kind: KindAck, Addr: addr}
	if t == dhcpv6.MessageTypeAdvertise {
		e.Kind = KindOffer
	}

	b := d.boot()
	e.File, e.Reason, e.Text = d.writeBoot(b, r), b.reason, b.text
	d.answer.Reply6 = r
	d.addEvent(e)
}
