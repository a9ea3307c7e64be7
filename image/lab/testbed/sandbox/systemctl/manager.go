package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// manager holds the services and reaps every process of the sandbox.
type manager struct {
	mu       sync.Mutex
	services map[string]*service
	exits    map[int]chan syscall.WaitStatus // of processes started here
}

// service is a unit that was started at least once.
type service struct {
	mu     sync.Mutex
	state  string // active, activating, inactive, failed
	pid    int
	unit   *unit
	cancel context.CancelFunc // ends its watcher
	done   chan struct{}      // closed when the watcher has ended
	status string             // STATUS= of sd_notify
}

// serve is the sandbox's life: it answers systemctl until it is killed.
func serve() error {
	m := &manager{services: map[string]*service{}, exits: map[int]chan syscall.WaitStatus{}}
	if err := errorsFirst(os.MkdirAll(filepath.Dir(socketPath), 0o755), os.MkdirAll(logDir, 0o755)); err != nil {
		return err
	}

	listener, err := net.Listen("unix", socketPath)
	if err != nil {
		return err
	}

	go m.reap()
	fmt.Println("sandbox: ready") // package sandbox waits for this line
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			var r request
			if err := json.NewDecoder(conn).Decode(&r); err != nil {
				return
			}

			out, code := m.handleCall(r.Args)
			json.NewEncoder(conn).Encode(reply{out, code})
		}()
	}
}

// handleCall is one systemctl command line; exit codes are systemctl's.
func (m *manager) handleCall(args []string) (string, int) {
	now := slices.Contains(args, "--now")
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if len(args) == 0 {
		args = []string{"list-units"}
	}

	verb, names := args[0], args[1:]
	for i, n := range names {
		if !strings.Contains(n, ".") {
			names[i] = n + ".service"
		}
	}

	var out strings.Builder
	code := 0
	each := func(do func(name string) error) {
		for _, n := range names {
			if err := do(n); err != nil {
				fmt.Fprintln(&out, err)
				code = 1
			}
		}
	}
	switch verb {
	case "start":
		each(m.start)
	case "stop":
		each(m.stop)
	case "restart", "reload-or-restart":
		each(func(n string) error { return errors.Join(m.stop(n), m.start(n)) })
	case "try-restart":
		each(func(n string) error {
			if m.state(n) != "active" {
				return nil
			}
			return errors.Join(m.stop(n), m.start(n))
		})
	case "kill":
		each(func(n string) error { return m.kill(n) })
	case "is-active":
		for _, n := range names {
			state := m.state(n)
			fmt.Fprintln(&out, state)
			if state != "active" {
				code = 3
			}
		}
	case "status", "show":
		for _, n := range names {
			fmt.Fprintln(&out, m.describe(n))
		}
	case "list-units":
		m.mu.Lock()
		all := slices.Sorted(maps.Keys(m.services))
		m.mu.Unlock()
		for _, n := range all {
			fmt.Fprintln(&out, m.describe(n))
		}
	case "enable", "disable":
		enable, act := verb == "enable", m.stop
		if enable {
			act = m.start
		}
		each(func(n string) error {
			if err := setEnabled(n, enable); err != nil || !now {
				return err
			}
			return act(n)
		})
	case "is-enabled":
		for _, n := range names {
			state := "enabled"
			if _, err := os.Lstat(filepath.Join(wantsDir, n)); err != nil {
				state, code = "disabled", 1
			}
			fmt.Fprintln(&out, state)
		}
	case "default":
		each(m.startWanted)
	case "daemon-reload", "reset-failed", "set-property":
		// Files are read at every start, nothing is remembered of failures, and the processor is shared by the machine.
	case "poweroff", "reboot", "halt":
		os.Exit(0) // and everything in the sandbox with it
	default:
		return fmt.Sprintf("Unknown command verb %s.\n", verb), 1
	}

	return out.String(), code
}

// wantsDir is where the links to the services lie that every boot starts.
const wantsDir = "/etc/systemd/system/multi-user.target.wants"

// setEnabled keeps, or forgets, that a service is to be started at every boot.
func setEnabled(name string, enable bool) error {
	link := filepath.Join(wantsDir, name)
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return err
	}
	if !enable {
		return nil
	}

	for _, dir := range unitDirs() {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return errorsFirst(os.MkdirAll(wantsDir, 0o755), os.Symlink(filepath.Join(dir, name), link))
		}
	}

	return fmt.Errorf("Unit %s does not exist.", name)
}

// startWanted starts a service if it is one that every boot starts. The sandbox's owner says which to look
// at: what else a boot of systemd would bring up has no place in a sandbox.
func (m *manager) startWanted(name string) error {
	if _, err := os.Lstat(filepath.Join(wantsDir, name)); err != nil {
		return nil
	}
	return m.start(name)
}

func (m *manager) service(name string) *service {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.services[name]
	if s == nil {
		s = &service{state: "inactive"}
		m.services[name] = s
	}

	return s
}

func (m *manager) state(name string) string {
	s := m.service(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (m *manager) describe(name string) string {
	s := m.service(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("Id=%s ActiveState=%s MainPID=%d StatusText=%s", name, s.state, s.pid, s.status)
}

// start returns when the service says that it is ready (Type=notify), has ended (oneshot) or runs.
func (m *manager) start(name string) error {
	s := m.service(name)
	s.mu.Lock()
	if s.state == "active" || s.state == "activating" {
		s.mu.Unlock()
		return nil
	}

	u, err := load(name, unitDirs())
	if err != nil {
		s.mu.Unlock()
		return fmt.Errorf("Failed to start %s: %w", name, err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	s.state, s.unit, s.cancel, s.done = "activating", u, cancel, make(chan struct{})
	s.mu.Unlock()
	for _, r := range u.requires {
		m.start(r) // a unit that is not there does not hold up one that merely wants it
	}

	ready := make(chan error, 1)
	go m.watch(ctx, s, u, ready)
	if err := <-ready; err != nil {
		return fmt.Errorf("Job for %s failed: %w", name, err)
	}

	return nil
}

// spawn starts one process of a unit.
func (m *manager) spawn(u *unit, words, env []string, log *os.File) (int, chan syscall.WaitStatus, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()

	dir := u.dir
	if dir == "" {
		dir = "/"
	}

	attr := &os.ProcAttr{Dir: dir, Env: env, Files: []*os.File{null, log, log}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if u.user != "" && u.user != "root" {
		if attr.Sys.Credential, err = credentialOf(u.user); err != nil {
			return 0, nil, err
		}
		attr.Sys.AmbientCaps = u.ambient
	}

	path := words[0]
	if !filepath.IsAbs(path) {
		for _, d := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"} {
			if _, err := os.Stat(d + "/" + path); err == nil {
				path = d + "/" + path
				break
			}
		}
	}

	m.mu.Lock() // the reaper must not see its end before we wait for it
	defer m.mu.Unlock()
	// A process has the slack of the thread that forked it (prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if u.slack > 0 {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(u.slack), 0, 0, 0); err != nil {
			return 0, nil, fmt.Errorf("set timer slack: %w", err)
		}
		defer unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // back to what this thread began with
	}

	p, err := os.StartProcess(path, words, attr)
	if err != nil {
		return 0, nil, err
	}

	exit := make(chan syscall.WaitStatus, 1)
	m.exits[p.Pid] = exit
	pid := p.Pid
	p.Release()
	return pid, exit, nil
}

// listen reads sd_notify messages of a service until its socket is closed.
func listen(conn *net.UnixConn, s *service, ready func()) {
	buffer := make([]byte, 8192)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(buffer[:n])) {
			line = strings.TrimSpace(line)
			if text, found := strings.CutPrefix(line, "STATUS="); found {
				s.mu.Lock()
				s.status = text
				s.mu.Unlock()
			}
			if line == "READY=1" {
				s.set("active", -1)
				ready()
			}
		}
	}
}

// set changes state and process; "" and -1 keep what is there.
func (s *service) set(state string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != "" {
		s.state = state
	}

	if pid >= 0 {
		s.pid = pid
	}
}

func (m *manager) stop(name string) error {
	s := m.service(name)
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if cancel == nil {
		return nil
	}

	cancel()
	<-done
	s.set("inactive", 0)
	return nil
}

// kill is systemctl kill --signal=SIGKILL: the main process dies as if it had crashed.
func (m *manager) kill(name string) error {
	s := m.service(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid <= 0 {
		return fmt.Errorf("Failed to kill unit %s: it has no process", name)
	}

	return unix.Kill(s.pid, unix.SIGKILL)
}

// reap collects every process that ends: those started here, and the orphans that every first process inherits.
func (m *manager) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.ECHILD {
			time.Sleep(20 * time.Millisecond) // nobody to wait for yet
			continue
		}
		if err != nil || !status.Exited() && !status.Signaled() {
			continue
		}

		m.mu.Lock()
		if exit := m.exits[pid]; exit != nil {
			exit <- status
			delete(m.exits, pid)
		}

		m.mu.Unlock()
	}
}
