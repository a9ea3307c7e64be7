package dhcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/pxe/lease"
)

const (
	maxChecks  = 32 // address checks under way; machines beyond them are offered unchecked
	maxRetries = 3  // addresses tried for one DISCOVER
)

// check asks the wire whether anybody uses the address about to be offered, and answers
// when that is known. False means too many checks are under way: offer unchecked.
func (s *Server) check(ctx context.Context, w *packetConn, r Request, a Answer, proxy bool) bool {
	if addr4(r.Packet.GatewayIPAddr).IsValid() {
		return false // ARP does not pass a relay
	}

	select {
	case s.checks <- struct{}{}:
	default:
		return false
	}

	s.checked.Go(func() {
		defer func() { <-s.checks }()
		for range maxRetries {
			user, err := InUse(ctx, s.conf.Interface, a.Hold, s.conf.ConflictWait)
			if err != nil {
				s.deps.Log.Warn("check address", "addr", a.Hold, "err", err)
			}

			if user == nil || user.String() == r.MAC.String() { // its own, configured by hand
				s.finish(w, r, a, nil)
				return
			}
			if a = s.quarantine(ctx, r, a, user, proxy); a.Reply == nil || !a.NewAddress {
				s.finish(w, r, a, nil)
				return
			}
		}
	})
	return true
}

// quarantine keeps an address that somebody uses from everybody, and decides again.
func (s *Server) quarantine(ctx context.Context, r Request, a Answer, user net.HardwareAddr, proxy bool) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, q := s.now(), s.queryOf(r)
	mac, _ := lease.MACFrom(user)
	s.table.Unhold(q)
	bad := lease.Lease{
		Addr:     a.Hold,
		MAC:      mac,
		Subnet:   q.Subnet,
		State:    lease.Declined,
		Start:    now,
		Duration: s.conf.quarantine(),
	}
	s.journal.Commit(s.table.Put(bad), nil)
	s.emit(Event{Kind: KindDecline, Machine: r.Machine, Addr: a.Hold,
		Text: fmt.Sprintf(
			"%v is in use by %v without a lease; nobody gets it for %v", a.Hold, user, s.conf.quarantine(),
		)})
	a = Decide(ctx, s.plan, s.table, now, s.deps.Booter, proxy, r)
	if a.Hold.IsValid() {
		s.table.Hold(q, a.Hold, now)
	}

	return a
}

// InUse asks once on an interface who uses an IPv4 address (ARP probe, RFC 5227 2.1.1) and
// returns the answering MAC, nil if nobody answers within wait. The interface needs no
// address, the caller CAP_NET_RAW.
func InUse(ctx context.Context, ifname string, addr netip.Addr, wait time.Duration) (net.HardwareAddr, error) {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}

	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(swap16(unix.ETH_P_ARP)))
	if err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}
	defer unix.Close(fd)

	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_ARP), Ifindex: ifi.Index}); err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}
	if err := unix.Send(fd, arpFrame(ifi.HardwareAddr, addr), 0); err != nil {
		return nil, fmt.Errorf("probe %v: %w", addr, err)
	}

	buf := make([]byte, 128)
	for end := time.Now().Add(wait); time.Now().Before(end) && ctx.Err() == nil; {
		tv := unix.NsecToTimeval(max(time.Until(end), time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return nil, fmt.Errorf("probe %v: %w", addr, err)
		}

		n, err := unix.Read(fd, buf)
		if err != nil {
			continue // the time is up, or a signal came
		}
		if b := buf[:n]; n >= 42 && string(b[28:32]) == string(addr.AsSlice()) && string(b[22:28]) != string(ifi.HardwareAddr) {
			return net.HardwareAddr(append([]byte(nil), b[22:28]...)), nil
		}
	}

	return nil, nil
}

func arpFrame(mac net.HardwareAddr, addr netip.Addr) []byte {
	b := make([]byte, 42)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_ARP)
	copy(b[14:], []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(b[22:], mac)
	copy(b[38:], addr.AsSlice())
	return b
}
