package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	runs  = 10 * time.Millisecond // how long a process runs before it is looked at
	saves = 50 * time.Millisecond // of a time in which it took less than its share
)

// Throttle holds a process with all its threads to a share of this computer's processors: 0.5 is half
// of one, 2 is two whole ones. It stops the process when that has taken more, and lets it go on when time
// has caught up. It returns when ctx or the process ends, and the process is not stopped then. If this
// program is killed meanwhile nobody lets the process go on: it must be one that is killed along with
// it, as a Child is.
func Throttle(ctx context.Context, p *os.Process, share float64) error {
	last := time.Now()
	taken, err := cpuTime(p.Pid)
	var left time.Duration
	for err == nil && sleep(ctx, runs) {
		now, before := time.Now(), taken
		if taken, err = cpuTime(p.Pid); err != nil {
			break
		}

		left = min(saves, left+now.Sub(last)-time.Duration(float64(taken-before)/share))
		last = now
		if left < 0 {
			err = stopFor(ctx, p, -left)
		}
	}

	if errors.Is(err, unix.EINVAL) {
		return nil // there is no such process any more
	}

	return err
}

// stopFor stops a process for a time. One that has ended is no error.
func stopFor(ctx context.Context, p *os.Process, long time.Duration) error {
	stopped := p.Signal(syscall.SIGSTOP)
	sleep(ctx, long)
	if err := errors.Join(stopped, p.Signal(syscall.SIGCONT)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("throttle process %d: %w", p.Pid, err)
	}

	return nil
}

// cpuTime is the processor time that a process has taken, finer than CPU: clock_getcpuclockid(3).
func cpuTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// sleep tells whether ctx let it.
func sleep(ctx context.Context, long time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(long):
		return true
	}
}
