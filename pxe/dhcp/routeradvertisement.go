package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"firstlight.dev/firstlight/pxe"
)

// Router advertisements (RFC 4861 4.2, 6.2). Without one, iPXE and most systems ask for no address by DHCPv6, and nobody
// knows which addresses are on the link: DHCPv6 has no prefix length.
const (
	advertiseEvery = 30 * time.Second // within what RFC 4861 6.2.1 allows
	prefixValid    = 24 * time.Hour
	mostSolicited  = 20 // answers to solicitations a second
)

// advertise sends router advertisements while we serve: now and then to all, and at once to who asks. We are no
// router: the lifetime is 0, so nobody takes us for a way out.
func (s *Server) advertise(ctx context.Context, ifi *net.Interface) error {
	raw, err := pxe.ListenOn(ifi.Name).ListenPacket(ctx, "ip6:ipv6-icmp", "::")
	if err != nil {
		return fmt.Errorf("listen for router solicitations: %w", err)
	}
	defer raw.Close()

	conn := ipv6.NewPacketConn(raw)
	var filter ipv6.ICMPFilter
	filter.SetAll(true)
	filter.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = errors.Join(
		conn.SetICMPFilter(&filter),
		conn.JoinGroup(ifi, &net.IPAddr{IP: net.IPv6linklocalallrouters}),
		conn.SetMulticastInterface(ifi),
		conn.SetMulticastLoopback(false),
		conn.SetMulticastHopLimit(255),
		conn.SetHopLimit(255),
		conn.SetControlMessage(ipv6.FlagHopLimit, true),
	)
	if err != nil {
		return fmt.Errorf("prepare router advertisements: %w", err)
	}

	all := &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: ifi.Name}
	send := func(to net.Addr) {
		if s.state.phase() != PhaseServing {
			return
		}
		if _, err := conn.WriteTo(s.advertisement(ifi), nil, to); err != nil && ctx.Err() == nil && s.lines.Allow() {
			s.deps.Log.Warn("send router advertisement", "to", to.String(), "err", err)
		}
	}

	defer context.AfterFunc(ctx, func() { raw.Close() })()
	loops, loopCtx := errgroup.WithContext(ctx)
	loops.Go(func() error {
		for loopCtx.Err() == nil {
			pause := retryEvery // until we serve
			if s.state.phase() == PhaseServing {
				send(all)
				pause = advertiseEvery
			}
			sleep(loopCtx, pause)
		}
		return loopCtx.Err()
	})
	loops.Go(func() error { return answerSolicitations(conn, send, all) })
	return loops.Wait()
}

// answerSolicitations answers who asks; others on the link may not (RFC 4861 6.1.1).
func answerSolicitations(conn *ipv6.PacketConn, send func(net.Addr), all net.Addr) error {
	limit := rate.NewLimiter(mostSolicited, mostSolicited)
	buf := make([]byte, 1500)
	for {
		n, control, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("read router solicitations: %w", err)
		}

		m, err := icmp.ParseMessage(ipv6.ICMPTypeRouterSolicitation.Protocol(), buf[:n])
		isSolicitation := err == nil && m.Type == ipv6.ICMPTypeRouterSolicitation && m.Code == 0
		if !isSolicitation || control == nil || control.HopLimit != 255 || !limit.Allow() {
			continue
		}

		if a, ok := from.(*net.IPAddr); ok && a.IP.IsUnspecified() {
			from = all
		}
		send(from)
	}
}

// advertisement is the message; the kernel adds the checksum.
func (s *Server) advertisement(ifi *net.Interface) []byte {
	s.mu.Lock()
	local, _ := s.plan.subnetOf(s.plan.Server)
	s.mu.Unlock()
	return routerAdvertisement(ifi.HardwareAddr, local)
}

// routerAdvertisement says of a subnet: addresses and what to boot are had by DHCPv6 (M and O), its prefix is on the
// link (L) and nobody makes up addresses in it (no A).
func routerAdvertisement(mac net.HardwareAddr, subnet Subnet) []byte {
	const typeAdvertisement, hopLimit, managedAndOther, onLink = 134, 64, 0xc0, 0x80
	b := []byte{typeAdvertisement, 0, 0, 0, hopLimit, managedAndOther, 0, 0}
	b = append(b, make([]byte, 8)...) // reachable time, retransmit timer: unspecified
	b = append(append(b, 1, 1), mac...)
	if subnet.MTU != 0 {
		b = append(b, 5, 1, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(subnet.MTU))
	}

	b = append(b, 3, 4, byte(subnet.Prefix.Bits()), onLink)
	for range 2 { // valid, preferred
		b = binary.BigEndian.AppendUint32(b, uint32(prefixValid/time.Second))
	}

	b = append(b, 0, 0, 0, 0)
	return append(b, subnet.Prefix.Addr().AsSlice()...)
}
