package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"firstlight.dev/firstlight/image/lab/process"
)

const (
	qemu       = "qemu-system-x86_64"
	qmpSocket  = "qmp"
	consoleLog = "console.log"
)

// Machine is one computer: off at first, started and cut as often as one likes. Its
// disks and firmware variables stay in its directory.
type Machine struct {
	config  Config
	console *Console
	logFile *os.File

	mu      sync.Mutex
	run     *powerOnPeriod // nil while off
	failure error          // of the last power-on period
	cpu     time.Duration
	share   float64 // of Throttle
}

// powerOnPeriod is one power-on period.
type powerOnPeriod struct {
	cmd    *exec.Cmd
	child  *process.Child // of cmd
	line   string
	stderr bytes.Buffer
	ended  chan struct{}
	err    error // set before ended is closed
	cut    bool  // by Kill
	stdin  io.Closer
	free   func() error // ends its throttle; nil: it has none
}

// New makes a machine, off. Close it when done.
func New(c Config) (*Machine, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", c.Name, err)
	}

	f, err := os.OpenFile(filepath.Join(c.Dir, consoleLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make machine %s: %w", c.Name, err)
	}

	return &Machine{config: c, console: newConsole(f), logFile: f}, nil
}

// Console is the serial port; it stays the same across starts.
func (m *Machine) Console() *Console { return m.console }

// Config returns what the machine was made from, defaults filled in.
func (m *Machine) Config() Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.config
}

// Prepare makes disks and firmware variables ready and returns QEMU's command line
// without starting it: for callers that want the console on their own terminal.
func (m *Machine) Prepare() (name string, args []string, err error) {
	fw, err := prepareFirmware(m.config.Dir, m.config.Firmware)
	if err != nil {
		return "", nil, err
	}

	var drives []drive
	for i, d := range m.config.Disks {
		v, err := prepareDisk(m.config.Dir, i, d)
		if err != nil {
			return "", nil, err
		}
		drives = append(drives, v)
	}

	return qemu, qemuArgs(m.config, fw, drives), nil
}

// Start powers the machine on. It runs until it powers itself off, Kill, Close, or the
// end of ctx.
func (m *Machine) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run != nil {
		return fmt.Errorf("start machine %s: it is running", m.config.Name)
	}

	name, args, err := m.Prepare()
	if err != nil {
		return fmt.Errorf("start machine %s: %w", m.config.Name, err)
	}

	if m.config.Nice > 0 {
		name, args = "nice", append([]string{"-n", strconv.Itoa(m.config.Nice), name}, args...)
	}

	r := &powerOnPeriod{
		cmd:   exec.CommandContext(ctx, name, args...),
		line:  shellLine(name, args),
		ended: make(chan struct{}),
	}
	r.cmd.Stdout, r.cmd.Stderr = m.console, &r.stderr
	stdin, err := r.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start machine %s: %w", m.config.Name, err)
	}

	r.stdin = stdin
	m.console.attach(stdin)
	if r.child, err = process.Start(r.cmd); err != nil {
		return fmt.Errorf("start machine %s: %w", m.config.Name, err)
	}

	go m.awaitEnd(r)
	m.run, m.failure = r, nil
	return m.applyShare()
}

// awaitEnd waits for QEMU's end and marks the machine off.
func (m *Machine) awaitEnd(r *powerOnPeriod) {
	<-r.child.Done()
	ended := r.child.Err()
	if ended != nil {
		r.err = fmt.Errorf(
			"run machine %s: %w: %s\n%s", m.config.Name, ended, bytes.TrimSpace(r.stderr.Bytes()), r.line,
		)
	}

	m.console.detach()
	m.mu.Lock()
	if r.free != nil {
		r.err = errors.Join(r.err, r.free())
	}

	m.run = nil
	if !r.cut && !errors.Is(ended, context.Canceled) {
		m.failure = failureOf(ended, r.stderr.String())
	}

	m.cpu += r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	m.mu.Unlock()
	close(r.ended)
}

// terminatedLine is what QEMU says when somebody asks it to end, as a shutdown of this machine does. It
// counts that as well done.
const terminatedLine = "terminating on signal"

// failureOf says in one line why QEMU ended, nil if its guest switched itself off. What it said last
// tells why. Killed by nobody here, it was the kernel as a rule.
func failureOf(ended error, said string) error {
	said = strings.TrimSpace(said)
	said = strings.TrimSpace(said[strings.LastIndexByte(said, '\n')+1:])
	var exit *exec.ExitError
	switch {
	case ended == nil && strings.Contains(said, terminatedLine):
		return fmt.Errorf("QEMU has ended: %s", said)
	case ended == nil:
		return nil
	case said == "" && errors.As(ended, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		said = "as the kernel does where memory is short"
	}

	return fmt.Errorf("QEMU has ended: %w: %s", ended, cmp.Or(said, "it said nothing"))
}

// Failure is why the machine is off though neither its system nor Kill switched it off, in one
// line; nil otherwise.
func (m *Machine) Failure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failure
}

func (m *Machine) currentRun() *powerOnPeriod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run
}

// IsRunning reports whether the machine has power.
func (m *Machine) IsRunning() bool { return m.currentRun() != nil }

// CPU is the processor time that QEMU has taken in all power-on periods so far: the honest
// price of a boot on a machine that does other things as well.
func (m *Machine) CPU() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		return m.cpu
	}

	return m.cpu + process.CPU(m.run.cmd.Process.Pid)
}

// Throttle lets the machine, all its processors together, have no more than a share of this computer's: 0.5 is half of
// one; 0 lets it have what it wants. It counts at once and through its next starts. The guest's clocks run on, as
// those of a slow computer do.
func (m *Machine) Throttle(share float64) error {
	if share < 0 {
		return fmt.Errorf("throttle machine %s to %v processors: want 0, which frees it, or more", m.config.Name, share)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = share
	return m.applyShare()
}

// Share is what the machine is throttled to; 0: it is free.
func (m *Machine) Share() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.share
}

// applyShare has a running machine keep to its share. QEMU is killed along with this program, so none
// is left stopped.
func (m *Machine) applyShare() error {
	r, share := m.run, m.share
	if r == nil {
		return nil
	}

	var err error
	if r.free != nil {
		err = r.free()
		r.free = nil
	}

	if share > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- process.Throttle(ctx, r.cmd.Process, share) }()
		r.free = func() error { cancel(); return <-done }
	}

	return err
}

// PID is QEMU's process number, 0 while the machine is off.
func (m *Machine) PID() int {
	if r := m.currentRun(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Reconfigure alters what the machine is made of, from its next start on. Disks that are there
// already keep their content.
func (m *Machine) Reconfigure(alter func(*Config)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	alter(&m.config)
}

// CommandLine is QEMU's command of this power-on period, to be pasted into a shell.
func (m *Machine) CommandLine() string {
	if r := m.currentRun(); r != nil {
		return r.line
	}

	name, args, err := m.Prepare()
	if err != nil {
		return err.Error()
	}

	return shellLine(name, args)
}

// Wait returns when the machine is off: nil if the guest powered off.
func (m *Machine) Wait(ctx context.Context) error {
	r := m.currentRun()
	if r == nil {
		return nil
	}
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill cuts the power: what the guest had not flushed is lost. It returns when the
// machine is off; a machine that is off already is no error.
func (m *Machine) Kill() error {
	m.mu.Lock()
	r := m.run
	if r == nil {
		m.mu.Unlock()
		return nil
	}

	r.cut = true
	m.mu.Unlock()
	r.child.Kill()
	<-r.ended
	return nil
}

// QMP connects to the running machine.
func (m *Machine) QMP(ctx context.Context) (*QMP, error) {
	r := m.currentRun()
	if r == nil {
		return nil, fmt.Errorf("connect QMP: machine %s is off", m.config.Name)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a machine that ends takes its socket along
		select {
		case <-r.ended:
			cancel()
		case <-ctx.Done():
		}
	}()

	return dialQMP(ctx, filepath.Join(m.config.Dir, qmpSocket))
}

// PressPowerButton asks the guest to shut itself down (ACPI); Start and Kill are the plug.
func (m *Machine) PressPowerButton(ctx context.Context) error {
	q, err := m.QMP(ctx)
	if err != nil {
		return err
	}
	defer q.Close()

	return q.Execute(ctx, "system_powerdown", nil, nil)
}

// SetLink says whether a card of a machine that is on has a link, which its system sees at once. A machine that is
// started again has one.
func (m *Machine) SetLink(ctx context.Context, card int, isUp bool) error {
	q, err := m.QMP(ctx)
	if err != nil {
		return err
	}
	defer q.Close()

	return q.Execute(ctx, "set_link", map[string]any{"name": nicID(card), "up": isUp}, nil)
}

// Insert puts the image of a disc into the machine's drive, as a raw file; "" empties it. A system that has locked the
// drive is not asked.
func (m *Machine) Insert(ctx context.Context, image string) error {
	cd := m.Config().CD
	if cd == nil {
		return fmt.Errorf("insert disc: machine %s has no drive", m.config.Name)
	}

	m.Reconfigure(func(c *Config) { c.CD = &CD{Image: image, BootIx: cd.BootIx} })
	if !m.IsRunning() {
		return nil
	}

	q, err := m.QMP(ctx)
	if err != nil {
		return err
	}
	defer q.Close()

	if image == "" {
		return q.Execute(ctx, "eject", map[string]any{"id": cdDrive, "force": true}, nil)
	}

	return q.Execute(ctx, "blockdev-change-medium", map[string]any{
		"id": cdDrive, "filename": image, "format": "raw", "force": true,
	}, nil)
}

// Close cuts the power and closes the log; the files stay.
func (m *Machine) Close() error {
	return errors.Join(m.Kill(), m.logFile.Close())
}
