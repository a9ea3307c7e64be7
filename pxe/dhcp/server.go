package dhcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/lease"
)

// Deps is what a server works with. Booter nil: no boot files. Events nil: nobody listens.
type Deps struct {
	Booter pxe.Booter
	Events Events
	Log    *slog.Logger
	Clock  lease.Clock
}

// Server answers DHCP on one interface. One goroutine per socket reads and decides; one
// writes leases and sends what waited for them: nothing grows with the number of machines.
type Server struct {
	deps    Deps
	conf    Config // as given to New; reservations: see plan
	id      string
	journal *lease.Journal // nil by ModeProxy

	mu      sync.Mutex // guards plan, table, declined and the order of commits
	plan    *Plan
	table   *lease.Table
	forgot  lease.Tick
	lines   *rate.Limiter // of log lines that packets can cause
	checks  chan struct{} // slots of address checks under way
	checked sync.WaitGroup

	declined map[lease.MAC]lease.Tick // when a machine last declined an address

	state state
}

// New opens the leases and prepares the server; Run serves. Close it if it is never run.
func New(c Config, deps Deps) (*Server, error) {
	plan, err := NewPlan(c)
	if err != nil {
		return nil, err
	}

	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}

	if deps.Events == nil {
		deps.Events = noEvents{}
	}

	var id [8]byte
	rand.Read(id[:])
	s := &Server{
		deps:   deps,
		conf:   c,
		id:     hex.EncodeToString(id[:]),
		plan:   plan,
		lines:  rate.NewLimiter(linesPerSecond, 20*linesPerSecond),
		checks: make(chan struct{}, maxChecks),

		declined: map[lease.MAC]lease.Tick{},
	}
	s.state.status = Status{
		Phase: PhaseProbing,
		Since: time.Now(),
		Text:  "listening for other DHCP servers on " + c.Interface,
	}
	s.state.wake = make(chan struct{}, 1)
	var kept []lease.Lease
	if c.Mode == ModeServer {
		if s.journal, err = lease.OpenJournal(c.LeaseDir, deps.Clock); err != nil {
			return nil, err
		}
		kept = s.journal.Leases()
		if n := s.journal.SkippedLines(); n > 0 {
			deps.Log.Warn("lease journal had unreadable lines", "lines", n, "dir", c.LeaseDir)
		}
	}

	s.table = lease.NewTable(plan.Spaces(), kept)
	return s, nil
}

// linesPerSecond is how much of a flood is printed; a rack that powers on is no flood.
const linesPerSecond = 20

// emit passes an event on, marked if the log has had enough.
func (s *Server) emit(e Event) {
	e.Flood = e.Kind != KindDiscover && !s.lines.Allow()
	s.deps.Events.DHCP(e)
}

type noEvents struct{}

func (noEvents) DHCP(Event)        {}
func (noEvents) DHCPStatus(Status) {}

// SetReservations replaces the known machines, and the subnets with what each gives to whom,
// while serving. A machine that uses an address which is now another's is told at its next
// renewal.
func (s *Server) SetReservations(known []Reservation, subnets []Subnet) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.plan.Config
	c.Reservations, c.Subnets = known, subnets
	plan, err := NewPlan(c)
	if err != nil {
		return err
	}

	s.plan = plan
	s.table.SetSpaces(plan.Spaces())
	return nil
}

// Leases lists all leases that are on disk.
func (s *Server) Leases() []lease.ListedLease {
	if s.journal == nil {
		return nil
	}
	return s.journal.List()
}

// Changes returns a number that grows with every durable lease change, and a channel that
// is closed at the next one: call it, then Leases, then wait.
func (s *Server) Changes() (uint64, <-chan struct{}) {
	if s.journal == nil {
		return 0, nil
	}
	return s.journal.Changes()
}

// Run serves until ctx ends. It returns early only when the leases cannot be kept; a
// missing interface or a foreign server is waited for, and Status says so.
func (s *Server) Run(ctx context.Context) error {
	writerCtx, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	var writer errgroup.Group
	if s.journal != nil {
		writer.Go(func() error { return s.journal.Run(writerCtx) })
		if path := s.conf.ISCFile; path != "" {
			writer.Go(func() error {
				return s.journal.MaintainISC(
					writerCtx, path,
					func(err error) { s.deps.Log.Error("write lease file", "path", path, "err", err) },
				)
			})
		}
	}

	readers, readCtx := errgroup.WithContext(ctx)
	readers.Go(func() error { return s.watch(readCtx) })
	readers.Go(func() error { return s.listen(readCtx) })
	err := readers.Wait()
	s.checked.Wait()
	stopWriter() // after the last commit
	err = errors.Join(err, writer.Wait())
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}

	return err
}

// Close gives the leases free for another server; only for one that never ran.
func (s *Server) Close() error {
	if s.journal == nil {
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return s.journal.Run(ctx)
}

// retryEvery is how often a missing or broken interface is tried.
const retryEvery = time.Second

// listen keeps the sockets open; an interface that goes and comes back is opened again.
func (s *Server) listen(ctx context.Context) error {
	open := s.serve4
	if s.conf.Server.Is6() {
		open = s.serve6
	}

	for ctx.Err() == nil {
		err := open(ctx)

		if ctx.Err() != nil {
			break
		}

		s.setBroken(err)
		sleep(ctx, retryEvery)
	}
	return ctx.Err()
}

// serve4 opens the sockets of DHCPv4 and answers until one fails or ctx ends.
func (s *Server) serve4(ctx context.Context) error {
	w, err := openPacketConn(s.conf.Interface, s.conf.Server)
	if err != nil {
		return err
	}

	s.markOpen()
	defer s.markClosed()
	return s.read(ctx, w)
}

// read reads both sockets until one fails or ctx ends.
func (s *Server) read(ctx context.Context, w *packetConn) error {
	defer closeOn(ctx, w)()
	defer w.Close()
	loops, loopCtx := errgroup.WithContext(ctx)
	defer closeOn(loopCtx, w)()
	loops.Go(func() error { return s.readSocket(ctx, w, w.serve, PortServer) })
	loops.Go(func() error { return s.readSocket(ctx, w, w.boot, PortPXE) })
	loops.Go(func() error { return watchDevice(loopCtx, s.conf.Interface, w.index) })
	return loops.Wait()
}

// watchDevice returns when the interface is no longer the one of that index: sockets of a
// device that was removed and made again hear nothing, and do not say so.
func watchDevice(ctx context.Context, ifname string, index int) error {
	for ctx.Err() == nil {
		ifi, err := net.InterfaceByName(ifname)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", ifname, err)
		}
		if ifi.Index != index {
			return fmt.Errorf("interface %s is another device now", ifname)
		}

		sleep(ctx, retryEvery)
	}
	return ctx.Err()
}

func (s *Server) readSocket(ctx context.Context, w *packetConn, conn *net.UDPConn, port int) error {
	buf := make([]byte, maxPacket+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return fmt.Errorf("read port %d: %w", port, err)
		}
		s.handle(ctx, w, buf[:n], port, from)
	}
}

// handle answers one packet. A panic is ours to mend, but not a reason to stop serving.
func (s *Server) handle(ctx context.Context, w *packetConn, data []byte, port int, from netip.AddrPort) {
	defer s.recoverPanic(data)
	r, err := ParseRequest(data, port, from)
	if err != nil {
		reason := ReasonMalformed
		if errors.Is(err, errBOOTP) {
			reason = ReasonBOOTP
		}

		s.emit(Event{Kind: KindRefuse, Reason: reason, Text: err.Error()})
		return
	}

	phase := s.state.phase()
	s.noticeOtherServer(r)
	if phase != PhaseServing && phase != PhaseProxy {
		s.emit(Event{Kind: KindRefuse, Machine: r.Machine, Reason: ReasonSilent, Text: s.Status().Text})
		return
	}
	if string(r.Packet.Options.Get(dhcpv4.OptionClassIdentifier)) == classProbe {
		s.answerProbe(w, r, phase)
		return
	}

	s.answer(ctx, w, r, phase == PhaseProxy)
}

// recoverPanic is deferred around whatever handles a packet.
func (s *Server) recoverPanic(data []byte) {
	if p := recover(); p != nil {
		s.deps.Log.Error(
			"handler panicked", "panic", fmt.Sprint(p), "packet", hex.EncodeToString(data[:min(len(data), 600)]),
			"stack", string(debug.Stack()),
		)
		s.emit(Event{Kind: KindPanic, Text: fmt.Sprint(p)})
	}
}

// answer decides and acts. The lock is held only to decide and to queue the lease, so the
// order of leases on disk is the order of decisions.
func (s *Server) answer(ctx context.Context, w *packetConn, r Request, proxy bool) {
	a := s.decide(ctx, w, r, proxy)
	if a.Put != nil {
		return // finished when it is on disk
	}
	if a.Declined != nil {
		s.checkDeclined(ctx, r, *a.Declined)
	}
	if a.NewAddress && s.conf.ConflictWait > 0 && s.check(ctx, w, r, a, proxy) {
		return
	}

	s.finish(w, r, a, nil)
}

// decide decides under the lock and queues the lease, if there is one. Queueing waits
// while the disk is behind: that is what slows the senders down.
func (s *Server) decide(ctx context.Context, w *packetConn, r Request, proxy bool) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	a := Decide(ctx, s.plan, s.table, now, s.deps.Booter, proxy, r)
	s.enact(s.queryOf(r), a, now, func(err error) { s.finish(w, r, a, err) })
	return a
}

// enact changes the table as was decided and queues the lease, if there is one. The caller has the lock.
func (s *Server) enact(q lease.Query, a Answer, now lease.Tick, done func(error)) {
	if a.Unhold {
		s.table.Unhold(q)
	}

	if a.Hold.IsValid() {
		s.table.Hold(q, a.Hold, now)
	}

	if now-s.forgot > lease.Tick(lease.HoldTime) {
		s.table.ExpireOffers(now)
		s.forgot = now
	}

	if a.Put != nil {
		s.journal.Commit(s.table.Put(*a.Put), done)
	}
}

func (s *Server) queryOf(r Request) lease.Query {
	sub, _ := s.plan.subnetFor(r)
	return lease.Query{MAC: r.MAC, Subnet: sub.Prefix}
}

func (s *Server) now() lease.Tick {
	if s.journal == nil {
		return 0
	}
	return s.journal.Now()
}

// finish sends what was decided, unless the lease could not be stored.
func (s *Server) finish(w *packetConn, r Request, a Answer, stored error) {
	s.conclude(r, a, stored, func() error {
		if a.Reply == nil {
			return nil
		}
		return w.send(a.Reply, r)
	})
}

// conclude sends what was decided and says so.
func (s *Server) conclude(r Request, a Answer, stored error, send func() error) {
	defer s.recoverPanic(nil)
	if stored != nil {
		if s.lines.Allow() {
			s.deps.Log.Error("store lease", "mac", r.MAC.String(), "err", stored)
		}
		s.emit(Event{Kind: KindRefuse, Machine: r.Machine, Reason: ReasonStorage, Text: stored.Error()})
		return
	}

	if err := send(); err != nil && !errors.Is(err, net.ErrClosed) && s.lines.Allow() {
		s.deps.Log.Warn("send reply", "mac", r.MAC.String(), "err", err)
	}

	for _, e := range a.Events {
		s.emit(e)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
