package dhcp

import (
	"context"
	"fmt"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/pxe/lease"
)

// serve6 opens the sockets of DHCPv6 and of router advertisements, and answers until one fails or ctx ends.
func (s *Server) serve6(ctx context.Context) error {
	w, err := openPacketConn6(ctx, s.conf.Interface, PortServer6)
	if err != nil {
		return err
	}
	defer w.Close()
	defer context.AfterFunc(ctx, w.Close)()

	s.markOpen()
	defer s.markClosed()
	loops, loopCtx := errgroup.WithContext(ctx)
	defer context.AfterFunc(loopCtx, w.Close)()
	loops.Go(func() error { return s.readFrames6(ctx, w) })
	loops.Go(func() error { return s.advertise(loopCtx, w.ifi) })
	loops.Go(func() error { return watchDevice(loopCtx, s.conf.Interface, w.ifi.Index) })
	return loops.Wait()
}

func (s *Server) readFrames6(ctx context.Context, w *packetConn6) error {
	for {
		f, data, err := w.receive()
		if err != nil {
			return err
		}
		s.handle6(ctx, w, f, data)
	}
}

// newServerID is the server's identifier: of its interface's MAC, so that it is the same after a restart.
func newServerID(ifi *net.Interface) dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: ifi.HardwareAddr}
}

// handle6 answers one message, as handle does.
func (s *Server) handle6(ctx context.Context, w *packetConn6, f frame6, data []byte) {
	defer s.recoverPanic(data)
	r, err := ParseRequest6(f, data)
	if err != nil {
		s.emit(Event{Kind: KindRefuse, Reason: ReasonMalformed, Text: err.Error()})
		return
	}

	if phase := s.state.phase(); phase != PhaseServing {
		s.emit(Event{Kind: KindRefuse, Machine: r.Machine, Reason: ReasonSilent, Text: s.Status().Text})
		return
	}

	own := newServerID(w.ifi)
	if isProbe6(r.Message) {
		s.answerProbe6(w, own, r)
		return
	}

	if id := r.Message.Options.ServerID(); id != nil && !id.Equal(own) && r.Message.MessageType == dhcpv6.MessageTypeRequest {
		s.wakeProbe(otherServerPause)
	}

	a := s.decide6(ctx, w, own, r)
	if a.Put != nil {
		return // finished when it is on disk
	}
	if a.Declined != nil {
		s.checkDeclined(ctx, r.Request, *a.Declined)
	}
	s.finish6(w, r, a, nil)
}

func (s *Server) decide6(ctx context.Context, w *packetConn6, own dhcpv6.DUID, r Request6) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	a := Decide6(ctx, s.plan, s.table, now, s.deps.Booter, own, r)
	subnet, _ := s.plan.subnetFor6(r)
	q := lease.Query{MAC: r.MAC, Subnet: subnet.Prefix}
	s.enact(q, a, now, func(err error) { s.finish6(w, r, a, err) })
	return a
}

func (s *Server) finish6(w *packetConn6, r Request6, a Answer, stored error) {
	s.conclude(r.Request, a, stored, func() error {
		if a.Reply6 == nil {
			return nil
		}
		return w.send(a.Reply6, r)
	})
}

// answerProbe6 tells another appliance that we serve. It is offered no address.
func (s *Server) answerProbe6(w *packetConn6, own dhcpv6.DUID, r Request6) {
	d := decision6{own: own, msg: r.Message}
	offer := d.newReply(dhcpv6.MessageTypeAdvertise)
	offer.AddOption(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail, StatusMessage: "this is an appliance"})
	if err := w.send(offer, r); err != nil && s.lines.Allow() {
		s.deps.Log.Warn("answer the probe of another appliance", "err", fmt.Sprint(err))
	}
}
