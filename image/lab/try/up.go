package try

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
)

// CheckMachine refuses what no rack can be on: a machine without the rights, the parts of the kernel or the room that
// it needs, or with another rack. A rack that is on has them.
func (r Rack) CheckMachine() error {
	if _, err := r.Processes(); err == nil {
		return nil
	}
	m, err := readMachine(r.Dir)
	if err != nil {
		return err
	}
	m.has = r.readContents()
	if err := m.refuse(); err != nil {
		return err
	}
	if dir := RunningDir(); dir != "" && dir != r.Dir {
		return errRunsElsewhere(dir)
	}

	return nil
}

// readContents reads what of a rack is on the disk already.
func (r Rack) readContents() (c contents) {
	isUnpacked, err := r.IsUnpacked()
	c.root = err == nil && isUnpacked
	_, err = os.Stat(r.path(dataDir))
	c.data = c.root && err == nil
	return c
}

// startTimeout is how long a supervisor may take until its appliance's first process runs.
const startTimeout = time.Minute

// Start brings the rack to life in a process of its own that outlives this one: supervise, which must call Supervise.
// fresh is false if it was running.
func (r Rack) Start(ctx context.Context, supervise ...string) (fresh bool, err error) {
	if _, err := r.Processes(); err == nil || !errors.Is(err, NotRunning) {
		return false, err
	}
	if _, err := r.endLeftovers(); err != nil {
		return false, err
	}

	log, err := os.OpenFile(r.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}
	defer log.Close()

	info, err := log.Stat()
	if err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}
	// What the caller has open, such as a lock, must not stay open as long as the rack runs.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return false, fmt.Errorf("start rack: keep open files from it: %w", err)
	}

	words, err := superviseWords(supervise)
	if err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}

	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = superviseEnvironment(os.Geteuid(), os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start rack: %w", err)
	}

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if now, err := r.Processes(); err == nil && now.Appliance.Alive() {
			return true, nil
		}
		select {
		case err := <-ended:
			return false, fmt.Errorf("start rack: its supervisor ended: %v: %s", err, tail(r.Log(), info.Size()))
		case <-ctx.Done():
			return false, fmt.Errorf("start rack: %w; %s says more", ctx.Err(), r.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail is the last line that a log has gained since it had from bytes.
func tail(path string, from int64) string {
	text, err := os.ReadFile(path)
	if err != nil || int64(len(text)) <= from {
		return "it said nothing"
	}
	lines := strings.Split(strings.TrimSpace(string(text[from:])), "\n")
	return lines[len(lines)-1]
}

// endTimeout is how long a supervisor may take to end when it is asked.
const endTimeout = 30 * time.Second

// TearDown ends the rack, also what a crash left of it: nothing of it runs then, and nothing of it is mounted or
// connected. It tells whether anything ran. What is in the directory stays.
func (r Rack) TearDown() (ran bool, err error) {
	ran, err = r.endLeftovers()
	if err != nil {
		return ran, err
	}
	if err := os.Remove(r.path(runningFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ran, fmt.Errorf("end rack: %w", err)
	}

	return ran, nil
}

// endLeftovers ends what runs of the rack; running.json stays, since it says which ports the rack had.
func (r Rack) endLeftovers() (ran bool, err error) {
	var now Processes
	err = readJSON(r.path(runningFile), &now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("end rack: %w", err)
	}

	// The kernel ends the appliance and the networks with the supervisor, however that ends.
	ran = now.Supervisor.Alive()
	if err := now.Supervisor.Terminate(endTimeout); err != nil {
		return ran, fmt.Errorf("end rack: %w", err)
	}
	if err := now.Appliance.Terminate(0); err != nil {
		return ran, fmt.Errorf("end rack: %w", err)
	}

	if RunningDir() == "" { // else they are another rack's
		if err := container.RemoveCgroups(cgroup, now.Cgroups...); err != nil {
			return ran, fmt.Errorf("end rack: %w", err)
		}
	}

	return ran, nil
}

// Remove deletes a rack that is down, and its directory if nothing else lies there. It deletes nothing of a directory
// in which there is no rack.
// again is the command line of this program by which userns.Main is reached.
func (r Rack) Remove(ctx context.Context, again []string) error {
	if _, err := r.read(); err != nil {
		return err
	}
	if _, err := r.Processes(); !errors.Is(err, NotRunning) {
		return fmt.Errorf("remove rack in %s: it is not down", r.Dir)
	}
	lock, err := r.lockFiles()
	if err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}
	defer lock.Close()

	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}

	others := 0
	var own []string
	for _, e := range entries {
		switch {
		case !isRackFile(e.Name()):
			others++
		case e.Name() != rackFile:
			own = append(own, e.Name())
		}
	}
	if err := r.removeFiles(ctx, again, own); err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}

	// Last: a rack whose removal was cut off is still one.
	if err := os.Remove(r.path(rackFile)); err != nil {
		return fmt.Errorf("remove rack: %w", err)
	}
	if others > 0 {
		return nil
	}

	return os.Remove(r.Dir)
}
