// Package tftp is the read-only TFTP server that firmware loads its first program from:
// RFC 1350 with options (RFC 2347), blksize (2348), timeout and tsize (2349) and
// windowsize (7440). It answers only on the address it is given, serves only a fixed
// set of files, and what a client can make it hold is bounded.
package tftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/metrics"
)

// Server serves Files. Addr, Files, Metrics and Log are required.
type Server struct {
	Addr   netip.AddrPort // where requests are taken; port 0 means 69; transfers use ports of the same address
	Device string         // if set, the sockets are bound to this interface (SO_BINDTODEVICE)

	Files    *bootfile.Set
	Machines pxe.Machines        // nil: no client is known
	Booter   pxe.Booter          // nil: no client is refused
	Record   *boottrace.Recorder // may be nil
	Metrics  *metrics.Metrics
	Log      *slog.Logger

	MaxTransfers int           // at once; 0: 256
	MaxPerClient int           // at once from one address; 0: 8
	Silence      time.Duration // how long a client may be silent in a transfer; 0: 30 s

	// Known reports whether a machine is to be served whatever others do: its transfers end for no unknown one's.
	// nil: none is.
	Known func(netip.Addr) bool

	mu        sync.Mutex
	transfers map[netip.AddrPort]*transfer // by the client's address and port: its TID
	perClient map[netip.Addr]int
	sockets   int // transfers that hold a socket, those about to end included
	largest   int // block size that needs no fragments
}

const (
	defaultTransfers = 256
	defaultPerClient = 8
	defaultSilence   = 30 * time.Second
)

// Listen opens the request socket. Run does it too; a caller that must know that the
// port is held before it goes on, or which port was given, calls it and passes on the result.
func (s *Server) Listen(ctx context.Context) (*net.UDPConn, error) {
	addr := s.Addr
	if addr.Port() == 0 {
		addr = netip.AddrPortFrom(addr.Addr(), 69)
	}

	conn, err := s.socket(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("listen for TFTP on %s: %w", addr, err)
	}

	return conn, nil
}

// Run listens and serves until ctx ends; transfers under way are cut then.
func (s *Server) Run(ctx context.Context) error {
	conn, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, conn)
}

// Serve answers the requests that arrive at conn until ctx ends. It closes conn.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	s.mu.Lock()
	s.largest = s.maxBlock()
	s.transfers, s.perClient = map[netip.AddrPort]*transfer{}, map[netip.Addr]int{}
	s.mu.Unlock()

	packet := make([]byte, maxRequest+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("read TFTP request: %w", err)
		}
		if err != nil {
			s.Log.Warn("tftp: read request", "error", err)
			continue
		}

		from = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
		t, err := s.accept(ctx, from, packet[:n])
		var refused *refusal
		if errors.As(err, &refused) {
			_, _ = conn.WriteToUDPAddrPort(appendError(nil, refused.code, refused.text), from)
		}

		if t == nil {
			continue
		}

		running.Go(func() {
			defer s.release(t)
			s.runTransfer(ctx, t)
		})
	}
}

// isOptional reports whether a boot program asks for a file that need not be there, before it does what it was loaded
// for: that it is not here tells nothing of a machine's way. iPXE for UEFI does (its interface/efi/efi_autoexec.c),
// shim (load_unbundled_trust in its shim.c), and GRUB for lists of its modules.
func isOptional(name string) bool {
	name = strings.TrimLeft(name, "/")
	return name == "autoexec.ipxe" || strings.HasPrefix(name, "revocations_") ||
		strings.HasPrefix(name, "shim_certificate_") || strings.HasPrefix(name, "grub/")
}

// accept decides on one packet at the request port: a transfer to run, a *refusal to
// send, or neither.
func (s *Server) accept(ctx context.Context, from netip.AddrPort, packet []byte) (*transfer, error) {
	if len(packet) >= 2 && packet[0] == 0 && packet[1] == opERROR {
		return nil, nil // an ERROR is never answered (RFC 1350, 7)
	}

	machine := pxe.Machine{Addr: from.Addr()}
	if s.Machines != nil {
		if known, ok := s.Machines.MachineAt(from.Addr()); ok {
			machine = known
		}
	}

	r, err := parseRequest(packet)
	var t *transfer
	if err == nil {
		t, err = s.begin(ctx, from, machine, r)
	}

	if err != nil {
		s.Metrics.TFTPTransfers.WithLabelValues("refused").Inc()
		s.Log.Warn(
			"tftp: request refused", "mac", machine.MAC.String(), "client", from.String(), "file", r.name, "reason",
			err.Error(),
		)
		if !isOptional(r.name) {
			s.Record.Add(boottrace.Event{
				MAC:     machine.MAC,
				Addr:    from.Addr(),
				Step:    boottrace.StepTFTP,
				Detail:  r.name,
				Refused: err.Error(),
			})
		}
	}

	return t, err
}

func (s *Server) begin(ctx context.Context, from netip.AddrPort, machine pxe.Machine, r request) (*transfer, error) {
	if r.write {
		return nil, &refusal{codeAccess, "this server is read only: it takes no files"}
	}

	if s.Booter != nil && len(machine.MAC) > 0 {
		if boot := s.Booter.Boot(ctx, machine); boot.Action == pxe.ActionRefuse {
			return nil, &refusal{codeAccess, machine.MAC.String() + " may not boot from here: " + boot.Reason}
		}
	}

	t := &transfer{server: s, peer: from, machine: machine, request: r, known: s.Known != nil && s.Known(from.Addr())}
	if !s.admit(t) {
		return nil, nil
	}
	if err := t.open(); err != nil {
		s.release(t)
		return nil, err
	}

	return t, nil
}

// admit takes t into the table, or says that its request is left unanswered. A repeated request from a port whose transfer was never
// answered is the same request again. Any other request from a port that is in use means
// that the client has begun anew (boot ROMs use one port for all they load): the old
// transfer ends. A full table makes room by ending the transfer that is longest without
// any answer: a flood of requests nobody follows up does not keep a real client out. If all were answered, one of the
// client that has most of them ends. Those of known machines end for no unknown one's.
func (s *Server) admit(t *transfer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.started = time.Now()
	if old := s.transfers[t.peer]; old != nil {
		if old.request.name == t.request.name && !old.answered.Load() {
			return false
		}
		s.drop(old)
	}

	limit, perClient := s.MaxTransfers, s.MaxPerClient
	if limit <= 0 {
		limit = defaultTransfers
	}

	if perClient <= 0 {
		perClient = defaultPerClient
	}

	if s.sockets >= 2*limit {
		return false // those that were ended are not gone yet; the client repeats itself
	}

	client := t.peer.Addr()
	if s.perClient[client] >= perClient {
		s.drop(s.stalestTransfer(func(o *transfer) bool { return o.peer.Addr() == client }))
	} else if len(s.transfers) >= limit {
		worst := s.stalestTransfer(func(o *transfer) bool { return !o.known })
		if worst == nil && t.known {
			worst = s.stalestTransfer(func(*transfer) bool { return true })
		}
		if worst == nil {
			return false // all are nodes; the client repeats itself
		}
		s.drop(worst)
	}

	s.sockets++
	s.transfers[t.peer] = t
	s.perClient[client]++
	return true
}

// stalestTransfer picks, among the transfers that match, one that was never answered before one that was, then one of
// the client that has most, and the oldest of those; nil if none matches.
func (s *Server) stalestTransfer(match func(*transfer) bool) *transfer {
	var worst *transfer
	for _, t := range s.transfers {
		if match(t) && (worst == nil || s.compareStale(t, worst) < 0) {
			worst = t
		}
	}
	return worst
}

// compareStale is negative if a ends before b.
func (s *Server) compareStale(a, b *transfer) int {
	if answered := a.answered.Load(); answered != b.answered.Load() {
		if answered {
			return 1
		}
		return -1
	}
	return cmp.Or(
		cmp.Compare(s.perClient[b.peer.Addr()], s.perClient[a.peer.Addr()]), a.started.Compare(b.started),
	)
}

// drop takes t out of the table and makes its loop end. The lock is held.
func (s *Server) drop(t *transfer) {
	if s.transfers[t.peer] != t {
		return
	}

	delete(s.transfers, t.peer)
	if s.perClient[t.peer.Addr()]--; s.perClient[t.peer.Addr()] <= 0 {
		delete(s.perClient, t.peer.Addr())
	}

	t.superseded.Store(true)
	if t.conn != nil {
		t.conn.wake()
	}
}

func (s *Server) release(t *transfer) {
	s.mu.Lock()
	s.drop(t)
	t.close()
	s.sockets--
	s.mu.Unlock()
}

// socket opens a UDP socket of the server's address, on its device only.
func (s *Server) socket(ctx context.Context, addr netip.AddrPort) (*net.UDPConn, error) {
	conn, err := pxe.ListenOn(s.Device).ListenPacket(ctx, "udp", addr.String())
	if err != nil {
		return nil, err
	}

	return conn.(*net.UDPConn), nil
}
