package virtualrack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/endpoint"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// supervisor holds a rack. Its working directory is the rack's: sockets have short names then.
type supervisor struct {
	made      rackDoc
	rack      Rack
	dir       string // absolute, for people
	log       *slog.Logger
	started   time.Time
	switches  map[string]*vswitch.Switch
	endpoints map[string]*endpoint.Endpoint
	captures  []*vswitch.Capture
	all       []*machine // the appliance first
	asker     *applianceClient

	mu     sync.Mutex
	doc    *status.Document // the appliance's last word; nil: it cannot be asked
	phases map[string]Event // of each machine
	faults map[string]string
	watch  consoleFollower
	writes sync.Mutex // of running.json
}

// Supervise brings the rack in dir to life and holds it until ctx ends. What was on when it
// ended is switched on again.
func Supervise(ctx context.Context, dir string, log *slog.Logger) error {
	m, err := readRackDoc(dir)
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("hold rack: %w", err)
	}

	lock, err := acquireLock()
	if err != nil {
		return err
	}
	defer lock.Close()

	s := &supervisor{
		made:      m,
		rack:      Plan(m.Order),
		dir:       dir,
		log:       log,
		started:   time.Now(),
		phases:    map[string]Event{},
		faults:    map[string]string{},
		switches:  map[string]*vswitch.Switch{},
		endpoints: map[string]*endpoint.Endpoint{},
	}
	log.Info("rack begins", "accelerator", m.Run.Accel)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = errors.Join(s.build(ctx), s.noteProcesses())
	if err == nil {
		err = s.run(ctx, cancel)
	}

	return errors.Join(err, s.shutDown())
}

// acquireLock keeps a second supervisor out; it ends with the process.
func acquireLock() (*os.File, error) {
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hold rack: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("hold rack: %w: another process holds it", err)
	}

	return f, nil
}

// build makes everything, switched off.
func (s *supervisor) build(ctx context.Context) error {
	for _, d := range []string{portsDir, machinesDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("build rack: %w", err)
		}
	}

	if err := s.buildSwitches(); err != nil {
		return err
	}

	for _, c := range s.rack.Machines() {
		if err := s.addMachine(ctx, c); err != nil {
			return fmt.Errorf("build rack: %s: %w", c.Name, err)
		}
	}

	document, err := os.ReadFile(siteFile)
	if err != nil {
		return fmt.Errorf("build rack: %w", err)
	}
	if s.rack.Order.System == "" {
		if err := writeStick(ctx, s.all[0].machine, string(document)); err != nil {
			return err
		}
	}
	s.watch.onSystem = s.rack.Order.System != ""

	s.asker = &applianceClient{dir: sshDir, run: s.made.Run, dial: func(ctx context.Context) (net.Conn, error) {
		return s.endpoints[bmcs].Dial(ctx, netip.AddrPortFrom(addressOf(bmcs, applianceHost), 22))
	}}
	return s.restorePhases()
}

// buildSwitches makes the switches and this process's place on them.
func (s *supervisor) buildSwitches() error {
	var inside []netip.Prefix
	for _, p := range networks {
		inside = append(inside, p)
	}

	inside = append(inside, s.rack.internalPrefixes()...)
	for i, name := range s.rack.Networks {
		sw := vswitch.New(name, inside...)
		s.switches[name] = sw
		if s.made.Order.Capture {
			capture, err := vswitch.CaptureTo(fmt.Sprintf("%s-%s.pcap", name, s.started.Format("20060102-150405")))
			if err != nil {
				return err
			}

			s.captures = append(s.captures, capture)
			sw.Capture(capture)
		}

		if name == data {
			continue
		}

		var also []netip.Addr
		switch name {
		case bmcs:
			for _, n := range s.rack.Nodes {
				if !s.rack.Order.Discover {
					also = append(also, n.BMC)
				}
			}
		case baremetal:
			also = append(also, addressOf(baremetal, gatewayHost))
		}

		st, err := endpoint.Attach(sw, workstation, net.HardwareAddr{0x52, 0x54, 0, 0xf1, 0xff, byte(i)}, prefixOf(
			name, endpointHost,
		), also...)
		if err != nil {
			return err
		}

		st.SetAccessVLAN(s.rack.accessVLAN(workstation, name))
		s.endpoints[name] = st
	}

	if st := s.endpoints[baremetal]; st != nil {
		return serveNames(st, netip.AddrPortFrom(addressOf(baremetal, gatewayHost), 53))
	}

	return nil
}

// addMachine puts one machine into the rack, with its cables and its BMC.
func (s *supervisor) addMachine(ctx context.Context, what MachineSpec) error {
	c := &machine{
		MachineSpec: what,
		ctx:         ctx,
		dir:         filepath.Join(machinesDir, what.Name),
		changed:     func() { s.logError(s.noteProcesses()) },
	}
	if err := errors.Join(c.makeDir(), c.loadPower()); err != nil {
		return err
	}

	port := func(computer string, card int) string {
		return filepath.Join(portsDir, fmt.Sprintf("%s-%d", computer, card))
	}
	for i, card := range what.Cards {
		p, err := s.switches[card.Network].Listen(what.Name, port(what.Name, i))
		if err != nil {
			return err
		}
		p.SetAccessVLAN(s.rack.accessVLAN(what.Name, card.Network))
		c.ports = append(c.ports, p)
	}

	var err error
	config := s.rack.config(what, c.dir, port)
	config.Accel = s.made.Run.Accel.Kind
	if c.machine, err = lab.New(config); err != nil {
		return err
	}

	s.all = append(s.all, c)
	if !what.BMC.IsValid() {
		return nil
	}

	if what.Redfish {
		return s.startRedfish(c)
	}
	return s.startIPMI(c)
}

// run switches on what was on and watches until ctx ends. It answers only then: who started the
// rack learns why a machine does not start.
func (s *supervisor) run(ctx context.Context, cancel context.CancelFunc) error {
	appliance := s.all[0]
	if _, err := os.Stat(filepath.Join(appliance.dir, powerFile)); err != nil {
		appliance.power.On = true // a new rack begins with the appliance
	}

	for _, c := range s.all {
		if c.power.On {
			s.log.Info("switched on", "machine", c.Name)
			if err := c.powerOn(); err != nil {
				return err
			}
		}
	}

	closeControl, err := s.serve(cancel)
	if err != nil {
		return err
	}
	defer closeControl()

	go s.pollAppliance(ctx)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.updatePhases(time.Now())
		}
	}
}

// keepWord is how long the appliance's last word counts when it does not answer: under
// emulation it may be busy with something else.
const keepWord = 90 * time.Second

// askInterval is between two questions. An answer, by SSH, takes an emulated appliance a tenth of a second of its
// processor.
const askInterval = 5 * time.Second

// pollAppliance keeps the appliance's last word.
func (s *supervisor) pollAppliance(ctx context.Context) {
	defer s.asker.close()
	var heard time.Time
	pid := 0
	for ctx.Err() == nil {
		var doc *status.Document
		var err error
		if pid != s.all[0].machine.PID() { // it was switched off or on since
			s.asker.close()
			pid, heard = s.all[0].machine.PID(), time.Time{}
		}

		if pid != 0 {
			doc, err = s.asker.fetchStatus(ctx)
		}

		if err != nil {
			s.log.Debug("appliance not asked", "error", err)
		}

		s.mu.Lock()
		switch {
		case doc != nil && pid == s.all[0].machine.PID():
			s.doc, heard = doc, time.Now()
		case time.Since(heard) > s.made.Run.ScaleTimeout(keepWord):
			s.doc = nil
		}

		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(askInterval):
		}
	}
}

// logError logs what nobody waits for.
func (s *supervisor) logError(err error) {
	if err != nil {
		s.log.Error("rack", "error", err)
	}
}

// noteProcesses writes down what runs, for whoever ends it after a crash.
func (s *supervisor) noteProcesses() error {
	s.writes.Lock()
	defer s.writes.Unlock()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}

	r := runningFileDoc{Supervisor: self}
	for _, c := range s.all {
		r.Children = append(r.Children, c.processes()...)
	}

	return writeJSON(runningFile, r)
}

// shutDown ends everything.
func (s *supervisor) shutDown() error {
	cpu := map[string]float64{}
	for _, c := range s.all {
		cpu[c.Name] = c.machine.CPU().Seconds()
	}

	s.mu.Lock()
	errs := []error{s.closePhases(time.Now(), cpu)}
	s.mu.Unlock()
	for _, c := range s.all {
		errs = append(errs, c.cutPower())
	}

	for _, st := range s.endpoints {
		errs = append(errs, st.Close())
	}

	for _, sw := range s.switches {
		sw.Capture(nil)
		errs = append(errs, sw.Close())
	}

	for _, c := range s.captures {
		errs = append(errs, c.Close())
	}

	if err := os.Remove(runningFile); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}
