package dhcp

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Answer is what is to be done about a request. It does nothing itself.
type Answer struct {
	Reply      *dhcpv4.DHCPv4  // nil: silence
	Reply6     *dhcpv6.Message // the same of DHCPv6
	Put        *lease.Lease    // must be on disk before Reply is sent
	Hold       netip.Addr      // valid: keep this address for the machine while it decides
	Unhold     bool            // the machine does not want what it was offered
	NewAddress bool            // the address was never this machine's: worth asking the network about
	Declined   *lease.Lease    // to be put if the network says that another machine uses its address
	Events     []Event
}

// Decide answers one request from the plan, the leases and the policy at now. Only the
// order of free addresses in t may change, and the oldest quarantine may end if none is left. Boot policy is asked at
// most once.
func Decide(
	ctx context.Context,
	p *Plan,
	t *lease.Table,
	now lease.Tick,
	booter pxe.Booter,
	proxy bool,
	r Request,
) Answer {
	d := decision{
		ctx:    ctx,
		plan:   p,
		table:  t,
		now:    now,
		booter: booter,
		req:    r,
	}
	switch {
	case r.Port == PortPXE:
		d.bootServer()
	case proxy:
		d.proxyOffer()
	default:
		d.serve()
	}
	return d.answer
}

// Ports of DHCP and of the PXE boot service.
const (
	PortServer = 67
	PortClient = 68
	PortPXE    = 4011
)

type decision struct {
	ctx    context.Context
	plan   *Plan
	table  *lease.Table
	now    lease.Tick
	booter pxe.Booter
	req    Request
	subnet Subnet
	answer Answer
}

func (d *decision) query() lease.Query {
	return lease.Query{
		MAC:    d.req.MAC,
		Subnet: d.subnet.Prefix,
		Want:   optAddr(d.req.Packet, dhcpv4.OptionRequestedIPAddress),
	}
}

func (d *decision) addEvent(e Event) {
	e.Machine = d.req.Machine
	d.answer.Events = append(d.answer.Events, e)
}

func (d *decision) refuse(reason Reason, format string, args ...any) {
	d.addEvent(Event{Kind: KindRefuse, Reason: reason, Text: fmt.Sprintf(format, args...)})
}

func (d *decision) serve() {
	s, ok := d.plan.subnetFor(d.req)
	if !ok {
		d.refuse(ReasonUnknownRelay, "relay %v is in none of the subnets; add its subnet", d.req.Packet.GatewayIPAddr)
		return
	}

	d.subnet = s
	switch d.req.Packet.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		d.discover()
	case dhcpv4.MessageTypeRequest:
		d.request()
	case dhcpv4.MessageTypeDecline:
		d.decline()
	case dhcpv4.MessageTypeRelease:
		d.release()
	case dhcpv4.MessageTypeInform:
		d.inform()
	default:
		d.refuse(ReasonUnexpected, "message %v is not for servers", d.req.Packet.MessageType())
	}
}

func (d *decision) discover() {
	d.addEvent(Event{Kind: KindDiscover})
	q := d.query()
	addr, ok := d.table.Pick(q, d.now)
	if !ok {
		d.refuseEmpty()
		return
	}

	old, had := d.table.LeaseAt(addr)
	_, reserved := d.table.ReservedFor(d.subnet.Prefix, addr)
	d.answer.NewAddress = !reserved && !(had && old.MAC == d.req.MAC && old.State == lease.Active)
	d.answer.Hold = addr
	d.watchDuplicate(q)
	d.reply(dhcpv4.MessageTypeOffer, addr)
}

func (d *decision) refuseEmpty() {
	if _, known := d.plan.known[d.req.MAC]; !known && d.subnet.Pool.IsZero() {
		d.refuse(
			ReasonUnknownMachine, "%v is not a known machine and %v has no pool for others; add it to the site",
			d.req.MAC, d.subnet.Prefix,
		)
		return
	}
	d.refuse(
		ReasonPoolEmpty, "no address of %v is free for %v; the pool %v is in use", d.subnet.Prefix, d.req.MAC,
		d.subnet.Pool,
	)
}

// request tells the four kinds of DHCPREQUEST apart as RFC 2131 4.3.2 does.
func (d *decision) request() {
	p := d.req.Packet
	server, want, uses := optAddr(
		p, dhcpv4.OptionServerIdentifier,
	), optAddr(p, dhcpv4.OptionRequestedIPAddress), addr4(p.ClientIPAddr)
	switch {
	case server.IsValid() && server != d.plan.Server:
		d.answer.Unhold = true
		d.refuse(ReasonOtherServer, "%v chose DHCP server %v", d.req.MAC, server)
	case server.IsValid() && want.IsValid():
		d.acceptOffer(want)
	case want.IsValid() && !uses.IsValid():
		d.initReboot(want)
	case uses.IsValid():
		d.extend(uses)
	default:
		d.refuse(ReasonMalformed, "request of %v names no address", d.req.MAC)
	}
}

// acceptOffer takes up our offer, also one made before a restart.
func (d *decision) acceptOffer(want netip.Addr) {
	if !d.table.IsFor(d.query(), want, d.now) {
		d.deny(want)
		return
	}
	d.grant(want)
}

// initReboot confirms the address of a machine that restarted. A machine without a record
// gets no word (RFC 2131 4.3.2) unless it would take another's address.
func (d *decision) initReboot(want netip.Addr) {
	l, known := d.table.LeaseOf(d.query())
	_, reserved := d.plan.known[d.req.MAC]
	switch {
	case known && l.Addr == want && d.table.IsFor(d.query(), want, d.now):
		d.grant(want)
	case !d.subnet.Prefix.Contains(want), known, !d.table.IsFor(d.query(), want, d.now):
		d.deny(want)
	case reserved:
		d.grant(want)
	default:
		d.refuse(ReasonNoRecord, "%v asks for %v as if it had it; no lease is known", d.req.MAC, want)
	}
}

// extend renews or rebinds. An address nobody else has is confirmed even if the lease was
// forgotten: the machine uses it, so granting it is what keeps it from being given twice.
func (d *decision) extend(uses netip.Addr) {
	if !d.table.IsFor(d.query(), uses, d.now) {
		d.deny(uses)
		return
	}
	d.grant(uses)
}

func (d *decision) grant(addr netip.Addr) {
	d.watchDuplicate(d.query())
	l := lease.Lease{
		Addr:     addr,
		MAC:      d.req.MAC,
		Subnet:   d.subnet.Prefix,
		State:    lease.Active,
		Start:    d.now,
		Duration: d.subnet.leaseTime(),
		Hostname: hostname(d.req.Packet),
		UUID:     d.req.Machine.UUID,
		Arch:     d.req.Machine.Arch,
	}
	if old, ok := d.table.LeaseAt(addr); ok && old.MAC == l.MAC && l.UUID == "" {
		l.UUID, l.Arch = old.UUID, old.Arch // the booted system does not repeat what firmware said
	}

	d.answer.Put = &l
	d.reply(dhcpv4.MessageTypeAck, addr)
}

// deny sends a DHCPNAK, so that the machine begins anew at once. Firmware in the middle of
// a boot is left to its own timeout instead: some gives up for good on a DHCPNAK.
func (d *decision) deny(addr netip.Addr) {
	reason, text := ReasonNotYours, fmt.Sprintf("%v is not for %v", addr, d.req.MAC)
	if !d.subnet.Prefix.Contains(addr) {
		reason, text = ReasonWrongNet, fmt.Sprintf("%v is not an address of %v", addr, d.subnet.Prefix)
	}

	if d.req.Machine.Firmware == pxe.FirmwarePXE || d.req.Machine.Firmware == pxe.FirmwareHTTPBoot {
		d.refuse(reason, "%s; firmware is not sent a DHCPNAK", text)
		return
	}

	nak := d.newReply(dhcpv4.MessageTypeNak)
	nak.UpdateOption(dhcpv4.OptMessage(text))
	nak.SetBroadcast() // RFC 2131 4.3.2: also for the relay to broadcast it
	d.answer.Reply = nak
	d.addEvent(Event{Kind: KindNak, Addr: addr, Reason: reason, Text: text})
}

func (d *decision) decline() {
	d.declineAddress(optAddr(d.req.Packet, dhcpv4.OptionRequestedIPAddress), d.query())
}

// declineAddress leaves an address alone for a time that the machine which was given it says another one uses.
func (d *decision) declineAddress(addr netip.Addr, q lease.Query) {
	l, ok := d.table.LeaseAt(addr)
	held, isHeld := d.table.HeldAddress(q, d.now)
	if !(ok && l.MAC == d.req.MAC && l.IsActive(d.now)) && !(isHeld && held == addr) {
		d.refuse(ReasonNotYours, "%v declines %v, which it does not have", d.req.MAC, addr)
		return
	}

	d.answer.Unhold = true
	d.answer.Declined = &lease.Lease{
		Addr:     addr,
		MAC:      d.req.MAC,
		Subnet:   d.subnet.Prefix,
		State:    lease.Declined,
		Start:    d.now,
		Duration: d.restOf(addr),
	}
}

// reservedRest is how long a reserved address is left alone that another machine uses: long enough for its node to
// boot with another one, too short for anybody to take it from the node.
const reservedRest = time.Minute

// restOf is how long an address that another machine uses is nobody's.
func (d *decision) restOf(addr netip.Addr) time.Duration {
	if _, reserved := d.table.ReservedFor(d.subnet.Prefix, addr); reserved {
		return min(reservedRest, d.plan.quarantine())
	}
	return d.plan.quarantine()
}

func (d *decision) release() {
	addr := addr4(d.req.Packet.ClientIPAddr)
	l, ok := d.table.LeaseAt(addr)
	if !ok || l.MAC != d.req.MAC || l.State != lease.Active {
		d.refuse(ReasonNotYours, "%v releases %v, which it does not have", d.req.MAC, addr)
		return
	}

	l.State, l.Start, l.Duration = lease.Free, d.now, 0
	d.answer.Put = &l
	d.addEvent(Event{Kind: KindRelease, Addr: addr})
}

// inform gives options to a machine that has its address from elsewhere (RFC 2131 4.3.5).
func (d *decision) inform() {
	uses := addr4(d.req.Packet.ClientIPAddr)
	if !uses.IsValid() || !d.subnet.Prefix.Contains(uses) {
		d.refuse(ReasonWrongNet, "%v asks for options for %v, which is not in %v", d.req.MAC, uses, d.subnet.Prefix)
		return
	}
	d.reply(dhcpv4.MessageTypeAck, netip.Addr{})
}

// watchDuplicate notes two machines with one MAC: they would share an address. Both are
// served, because a replaced board looks the same; people are told.
func (d *decision) watchDuplicate(q lease.Query) {
	l, ok := d.table.LeaseOf(q)
	if ok && l.IsActive(d.now) && l.UUID != "" && d.req.Machine.UUID != "" && l.UUID != d.req.Machine.UUID {
		d.addEvent(Event{Kind: KindRefuse, Addr: l.Addr, Reason: ReasonDuplicateMAC,
			Text: fmt.Sprintf(
				"%v was machine %s and is now %s: two machines use one MAC, or a board was replaced", d.req.MAC,
				l.UUID, d.req.Machine.UUID,
			)})
	}
}
