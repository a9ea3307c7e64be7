// Package process starts programs that must not outlive the one that started them, and
// finds a process again that another program started, without taking a stranger for it.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ID names one process for good: a number alone is given again to another one.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // proc(5), field 22 of stat: clock ticks since boot
	Boot  string `json:"boot"`  // /proc/sys/kernel/random/boot_id
}

// Identify reads the identity of a running process.
func Identify(pid int) (ID, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}

	start, err := startTime(pid)
	if err != nil {
		return ID{}, fmt.Errorf("identify process %d: %w", pid, err)
	}

	return ID{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// startTime is the start time of a process that is not a zombie.
func startTime(pid int) (uint64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}

	return strconv.ParseUint(fields[19], 10, 64)
}

// stat is proc(5)'s line of a process from its third field on.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}

	// The second field is the program's name in brackets; it may hold anything.
	i := strings.LastIndex(string(text), ") ")
	fields := strings.Fields(string(text[i+1:]))
	if i < 0 || len(fields) < 20 {
		return nil, fmt.Errorf("read stat of process %d: %q is not understood", pid, text)
	}

	return fields, nil
}

// CPU is the processor time that a process has taken, 0 if it is gone.
func CPU(pid int) time.Duration {
	fields, err := stat(pid)
	if err != nil {
		return 0
	}

	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return time.Duration(user+system) * tick
}

// Alive tells whether this very process still runs.
func (id ID) Alive() bool {
	have, err := Identify(id.PID)
	return err == nil && have == id
}

// Signal sends to this very process; one that has ended is no error.
func (id ID) Signal(s syscall.Signal) error {
	if id.PID <= 0 {
		return nil
	}

	// The descriptor is of whatever has the number now; it stays with that one process
	// while its identity is compared.
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	defer unix.Close(fd)

	if !id.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}

	return nil
}

// Terminate asks the process to end, and makes it end after patience. It returns when the
// process is gone.
func (id ID) Terminate(patience time.Duration) error {
	if err := id.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	for asked := time.Now(); id.Alive(); time.Sleep(20 * time.Millisecond) {
		if time.Since(asked) < patience {
			continue
		}
		if err := id.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}

// Child is a program that ends with this one: also when this one is killed.
type Child struct {
	ID    ID
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // set before ended is closed
}

// Start starts cmd as the leader of a process group of its own.
func Start(cmd *exec.Cmd) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}

	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	c := &Child{cmd: cmd, ended: make(chan struct{})}
	begun := make(chan error, 1)
	go c.runAttached(begun)
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}

	return c, nil
}

// runAttached keeps its thread: the kernel sends the parent-death signal when the thread that
// started the child ends.
func (c *Child) runAttached(begun chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	if err == nil {
		c.ID, err = Identify(c.cmd.Process.Pid)
		if errors.Is(err, os.ErrProcessDone) {
			err = nil // it ended at once; Wait says how
		}
	}

	begun <- err
	if c.cmd.Process != nil {
		c.err = c.cmd.Wait()
	}

	close(c.ended)
}

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.ended }

// Err is how it ended, once it has.
func (c *Child) Err() error {
	select {
	case <-c.ended:
		return c.err
	default:
		return nil
	}
}

// IsRunning tells whether it has not ended.
func (c *Child) IsRunning() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// Kill ends the child and what it started, and returns when it is gone.
func (c *Child) Kill() {
	if c.IsRunning() {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // it may end at this moment
	}
	<-c.ended
}
