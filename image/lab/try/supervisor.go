package try

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/userns"
)

// supervisor holds a rack.
type supervisor struct {
	rack     Rack
	made     rackDoc
	before   Processes // of the last run
	log      *slog.Logger
	first    []string // command line by which FirstProcess is reached, without stage and file
	parents  []string // of its control groups, see cgroupParents
	cables   []cable
	terminal *container.Terminal
	servers  *simulator.Simulator
	forwards []*forward

	appliance atomic.Pointer[process.Child]
}

// cable is a network of the rack and the appliance's NIC on it.
type cable struct {
	nic    string
	bridge *netns.Bridge
}

// Supervise brings the rack to life and holds it until ctx ends. first is the command line of this program by which
// FirstProcess is reached, without its last two words.
func Supervise(ctx context.Context, rack Rack, first []string, log *slog.Logger) (err error) {
	made, err := rack.read()
	if err != nil {
		return err
	}

	lock, err := acquireLock(rack.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()

	parents, err := cgroupParents()
	if err != nil {
		return err
	}
	if err := container.RemoveCgroups(cgroup, parents...); err != nil { // what a crash has left
		return err
	}

	s := &supervisor{rack: rack, made: made, log: log, first: first, parents: parents}
	_ = readJSON(rack.path(runningFile), &s.before)
	defer func() { err = errors.Join(err, s.shutDown()) }()
	for _, do := range []func(context.Context) error{s.noteSelf, s.connect, s.openConsole, s.addServers, s.listen} {
		if err := do(ctx); err != nil {
			return err
		}
	}

	return s.run(ctx)
}

// connect makes the networks.
func (s *supervisor) connect(ctx context.Context) error {
	for _, nic := range []string{provisioningNIC, bmcNIC, baremetalNIC} {
		bridge, err := netns.NewBridge(ctx)
		if err != nil {
			return err
		}
		s.cables = append(s.cables, cable{nic: nic, bridge: bridge})
	}

	// All servers share one interface, and each has an address of its own from DHCP.
	if err := s.cables[0].bridge.IP(ctx, fmt.Sprintf("route add %s dev %s", s.made.Order.provisioningNetwork(), netns.BridgeName)); err != nil {
		return err
	}

	bmc := firstBMC()
	for range s.made.Order.Servers {
		if err := s.cables[1].bridge.IP(ctx, fmt.Sprintf("addr add %s/24 dev %s", bmc, netns.BridgeName)); err != nil {
			return err
		}
		bmc = bmc.Next()
	}

	return nil
}

func (s *supervisor) openConsole(context.Context) error {
	log, err := os.OpenFile(s.rack.Console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep console: %w", err)
	}

	s.terminal, err = container.OpenTerminal(log)
	return err
}

// addServers plugs in the servers and writes the site that names them.
func (s *supervisor) addServers(context.Context) (err error) {
	s.servers, err = simulator.Start(simulator.Config{
		Hosts:     s.made.Order.Servers,
		Boot:      s.made.Order.bootServer(),
		BMC:       firstBMC(),
		Username:  bmcUser,
		Password:  s.made.Password,
		Namespace: s.cables[1].bridge.Path(),
		Wire:      s.cables[0].bridge.Path(),
		NIC:       netns.BridgeName,
		Keep:      s.rack.path(serversFile),
		Log:       s.log,
	})
	if err != nil {
		return err
	}

	text, err := siteDocument(s.made.Order.provisioningNetwork(), s.servers.Hosts())
	if err != nil {
		return err
	}

	path := s.rack.path(siteDir) + "/" + siteFile
	if _, err := os.Stat(path); err == nil {
		return nil // its owner may have edited it
	}

	return os.WriteFile(path, []byte(text), 0o600)
}

// listen opens the ports of loopback that lead to the appliance.
func (s *supervisor) listen(context.Context) error {
	network := func() string {
		if a := s.appliance.Load(); a != nil {
			return netns.PathOf(a.ID.PID)
		}
		return "" // there is none, and the connection ends
	}
	for _, f := range []struct {
		port int // the same as in the last run, where it is free
		to   string
	}{
		{s.before.Page, baremetalAddress + ":443"},
		{s.before.API, s.made.Order.api()},
	} {
		forward, err := listenForward(f.port, f.to, network)
		if err != nil {
			return err
		}
		s.forwards = append(s.forwards, forward)
	}

	return nil
}

// run runs the appliance, again whenever it restarts itself, until ctx ends or it switches itself off.
func (s *supervisor) run(ctx context.Context) error {
	for _, f := range s.forwards {
		go f.serve(ctx)
	}

	for {
		appliance, err := s.startAppliance(ctx)
		if err != nil {
			return err
		}
		s.appliance.Store(appliance)
		if err := s.note(appliance.ID); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-appliance.Done():
		}

		s.appliance.Store(nil)
		s.log.Info("the appliance ended", "how", fmt.Sprint(appliance.Err()))
		if !container.Restarts(appliance.Err()) {
			return nil
		}
		if err := container.RemoveCgroups(cgroup, s.parents...); err != nil {
			return err
		}
	}
}

// startAppliance starts the appliance's first process and plugs in its cables.
func (s *supervisor) startAppliance(ctx context.Context) (*process.Child, error) {
	file := s.rack.path(stickImage)
	if s.made.Unpacked {
		file = s.rack.path(rootDir)
	}
	root, offset, err := container.FindRoot(file)
	if err != nil {
		return nil, err
	}

	return container.Start(container.Plan{
		Root:    root,
		Offset:  offset,
		Mount:   s.rack.path(mountDir),
		Data:    s.rack.path(dataDir),
		Site:    s.rack.path(siteDir),
		Daemon:  s.made.Order.Daemon,
		Console: s.terminal.Path,
		Cgroup:  cgroup,
		Parents: s.parents,
		User:    s.made.Unpacked,
		Kind:    carrier.Try,
	}, s.rack.path(planFile), s.first, func(pid int) error {
		for _, c := range s.cables {
			if err := c.bridge.Connect(ctx, pid, "appliance", c.nic); err != nil {
				return err
			}
		}
		return nil
	})
}

// noteSelf writes down who holds the rack, before there is anything to hold.
func (s *supervisor) noteSelf(context.Context) error { return s.note(process.ID{}) }

// note writes down what runs.
func (s *supervisor) note(appliance process.ID) error {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}

	now := Processes{Supervisor: self, Appliance: appliance, Page: s.before.Page, API: s.before.API,
		Cgroups: s.parents}
	if len(s.forwards) > 0 {
		now.Page, now.API = s.forwards[0].port(), s.forwards[1].port()
	}

	return writeJSON(s.rack.path(runningFile), now)
}

// shutDown ends everything, in the order in which nothing waits for what has ended.
func (s *supervisor) shutDown() error {
	var errs []error
	for _, f := range s.forwards {
		errs = append(errs, f.listener.Close())
	}
	if a := s.appliance.Load(); a != nil {
		a.Kill()
	}
	if s.servers != nil { // after the appliance, which would take it for servers that were switched off
		errs = append(errs, s.servers.Close())
	}
	if s.terminal != nil {
		errs = append(errs, s.terminal.Close())
	}

	for _, c := range s.cables {
		c.bridge.Close()
	}

	errs = append(errs, container.RemoveCgroups(cgroup, s.parents...))
	return errors.Join(errs...)
}

// lockName is an abstract socket of the user's: it is there as long as its process, and no file remains.
func lockName() string {
	if id := userns.OwnerID(); id != 0 {
		return fmt.Sprintf("@firstlight-try-%d", id)
	}
	return "@firstlight-try"
}

// acquireLock keeps a second rack of this user off this machine. Who connects to the lock is told the directory of the first.
func acquireLock(dir string) (net.Listener, error) {
	l, err := net.Listen("unix", lockName())
	if errors.Is(err, syscall.EADDRINUSE) {
		if other := RunningDir(); other != "" {
			return nil, errRunsElsewhere(other)
		}
		return nil, fmt.Errorf("hold rack: the socket %s is of another user, or of a rack that ends; call firstlight try again, "+
			"or as root: ss -xlp, which names its process", lockName())
	}
	if err != nil {
		return nil, fmt.Errorf("hold rack: %w", err)
	}

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(dir))
			_ = conn.Close()
		}
	}()
	return l, nil
}

func errRunsElsewhere(dir string) error {
	return fmt.Errorf("another rack of yours runs on this machine, in %s; `firstlight try --dir %[1]s down` ends it", dir)
}

// lockTimeout is how long a supervisor may take to answer at its lock.
const lockTimeout = 10 * time.Second

// RunningDir is the directory of this user's rack that runs on this machine, "" if none does. Every user of the machine
// can take the name of the lock: only this user's own process is believed.
func RunningDir() string {
	conn, err := net.Dial("unix", lockName())
	if err != nil {
		return ""
	}
	defer conn.Close()
	if id, err := peerID(conn.(*net.UnixConn)); err != nil || id != os.Geteuid() {
		return ""
	}

	_ = conn.SetDeadline(time.Now().Add(lockTimeout))
	name := make([]byte, 4096)
	n, _ := conn.Read(name)
	return string(name[:n])
}

// peerID is the user who listens at the other end.
func peerID(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}

	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || peerErr != nil {
		return 0, errors.Join(err, peerErr)
	}
	return int(peer.Uid), nil
}
