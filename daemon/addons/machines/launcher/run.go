package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// Times of a machine's end. A guest that is booting misses a power button.
const (
	pressInterval = 10 * time.Second
	quitTimeout   = 5 * time.Second
	startTimeout  = time.Minute // until QEMU opens its sockets

	// EndTimeout is what a pod needs after the machine's own grace period.
	EndTimeout = 15 * time.Second
)

// Launcher runs the machine of its pod.
type Launcher struct {
	Root    string    // before all folders; "" in a pod
	Program string    // "": QEMU
	Console io.Writer // gets what the guest prints on its serial port
	Stderr  io.Writer // gets what QEMU says
	Log     *slog.Logger
}

// Run prepares the machine and runs it until its guest powers it down or ctx ends. An error is one sentence.
func (l *Launcher) Run(ctx context.Context) error {
	m, err := ReadMachine(filepath.Join(l.Root, InstanceDir))
	if err != nil {
		return err
	}
	p := Preparation{Machine: m, Root: l.Root, Client: &http.Client{}, Pause: 5 * time.Second, Log: l.Log}
	files, err := p.Prepare(ctx)
	if ctx.Err() != nil {
		return nil // it was stopped before it ran
	}
	if err != nil {
		return err
	}

	with := KVM
	if err := CheckKVM(KVMDevice); err != nil {
		l.Log.Info("instructions are translated, which is slow: this pod has no KVM", "reason", err)
		with = TCG
	}
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return fmt.Errorf("read the pod's name servers: %w", err)
	}
	arguments := func(with Accelerator) []string { return Arguments(m, files, with, searchDomains(string(resolv))) }
	return l.runMachine(ctx, arguments, with, gracePeriod(m.Spec))
}

// runMachine runs QEMU, and once more without KVM if that is what it crashed of at its start: a KVM within a virtual
// machine may create a processor and not take what QEMU sets in it.
func (l *Launcher) runMachine(ctx context.Context, arguments func(Accelerator) []string, with Accelerator, grace time.Duration) error {
	err := l.runQEMU(ctx, arguments(with), grace)
	if with != KVM || !errors.Is(err, errCrashed) {
		return err
	}
	l.Log.Warn("instructions are translated, which is slow: QEMU does not run with this node's KVM", "reason", err)
	return l.runQEMU(ctx, arguments(TCG), grace)
}

// searchDomains are those of a resolv.conf(5); the last line counts.
func searchDomains(text string) (domains []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "search" {
			domains = fields[1:]
		}
	}
	return domains
}

func gracePeriod(spec v1.InstanceSpec) time.Duration {
	return time.Duration(GraceSeconds(spec)) * time.Second
}

// GraceSeconds are between the power button and the power cut.
func GraceSeconds(spec v1.InstanceSpec) int64 {
	if spec.TerminationGracePeriodSeconds == nil {
		return v1.GracePeriod
	}
	return *spec.TerminationGracePeriodSeconds
}

// runQEMU starts QEMU, which connects to the sockets of its monitor and its serial port, and waits for its end.
func (l *Launcher) runQEMU(ctx context.Context, args []string, grace time.Duration) error {
	serial, err := l.listen(serialSocket)
	if err != nil {
		return err
	}
	defer serial.Close()
	control, err := l.listen(monitorSocket)
	if err != nil {
		return err
	}
	defer control.Close()

	name := l.Program
	if name == "" {
		name = program
	}
	q := &process{cmd: exec.Command(name, args...), began: time.Now(), ended: make(chan struct{})} // ctx only presses the power button
	q.cmd.Stderr = io.MultiWriter(l.Stderr, &q.said)
	if err := q.cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	go q.wait()
	l.Log.Info("QEMU was started", "arguments", args)
	defer q.kill() // does nothing if it has ended
	go func() {
		<-q.ended
		_, _ = serial.Close(), control.Close() // no one else connects
	}()

	port, err := serial.Accept()
	if err != nil {
		return q.explain(err)
	}
	defer port.Close()
	conn, err := control.Accept()
	if err != nil {
		return q.explain(err)
	}
	defer conn.Close()
	m, err := newMonitor(conn, func(event string) { l.Log.Info("QEMU reports", "event", event) })
	if err != nil {
		return q.explain(err)
	}
	console, err := l.listen(consoleSocket)
	if err != nil {
		return err
	}
	defer console.Close()
	h := newHub(port, l.Console)
	go h.serve(console)
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		h.copyOutput()
	}()

	select {
	case <-q.ended:
		m.drain()
		<-printed
		return q.explain(nil)
	case <-ctx.Done():
		l.stop(q, m, grace)
		m.drain()
		<-printed
		return nil
	}
}

func (l *Launcher) listen(name string) (net.Listener, error) {
	path := filepath.Join(l.Root, RunDir, name)
	if err := os.RemoveAll(path); err != nil { // of a container that was killed
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for QEMU: %w", err)
	}
	if name != consoleSocket {
		err = listener.SetDeadline(time.Now().Add(startTimeout))
	}
	return listener, err
}

// stop presses the power button until the guest has powered itself down, and cuts the power after the grace period.
func (l *Launcher) stop(q *process, m *monitor, grace time.Duration) {
	cut := time.After(grace)
	for pressed := grace > 0; pressed; {
		l.Log.Info("the power button is pressed", "grace", grace)
		if err := m.execute("system_powerdown"); err != nil {
			l.Log.Warn("the power button was not pressed", "error", err)
		}
		select {
		case <-q.ended:
			l.Log.Info("the guest has powered the machine down")
			return
		case <-time.After(pressInterval):
		case <-cut:
			pressed = false
		}
	}

	l.Log.Warn("the machine's power is cut: the grace period is over")
	if err := m.execute("quit"); err != nil {
		l.Log.Warn("QEMU does not quit", "error", err)
	}
	select {
	case <-q.ended:
	case <-time.After(quitTimeout):
		q.kill()
	}
}

// process is QEMU.
type process struct {
	cmd   *exec.Cmd
	began time.Time
	said  tail
	ended chan struct{}

	// When it has ended.
	err     error
	life    time.Duration
	crashed bool // by a signal of its own
}

// errCrashed is that QEMU ended itself by a signal, soon after its start.
var errCrashed = errors.New("QEMU crashed")

func (q *process) wait() {
	q.err = q.cmd.Wait()
	q.life = time.Since(q.began)
	if status, ok := q.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		q.crashed = status.Signaled() && status.Signal() != syscall.SIGKILL // that one is ours, or the kernel's for want of memory
	}
	close(q.ended)
}

func (q *process) kill() {
	_ = q.cmd.Process.Kill() // it may have ended
	<-q.ended
}

// explain is why QEMU ended, or what went wrong while it runs; nil if the guest powered it down.
func (q *process) explain(err error) error {
	select {
	case <-q.ended:
	case <-time.After(time.Second):
		return fmt.Errorf("start the machine: %w", err)
	}
	switch {
	case q.err != nil && q.crashed && q.life < startTimeout:
		return fmt.Errorf("%w (%w): %s", errCrashed, q.err, q.said.line())
	case q.err != nil:
		return fmt.Errorf("QEMU ended (%w): %s", q.err, q.said.line())
	case err != nil:
		return errors.New("QEMU ended before the machine ran")
	}
	return nil
}

// tail is the end of a text.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 2 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(b), nil
}

// line is the last one.
func (t *tail) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return lines[len(lines)-1]
}
