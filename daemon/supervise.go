package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// acquireLock takes a lock that ends with the process: a second daemon, started by hand beside the
// unit's, would fight it for every fact.
func acquireLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make folder of %s: %w", path, err)
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w: the daemon runs already; see firstlightd status", path, err)
	}

	return f, nil
}

// supervise runs a part until ctx ends, again after each failure.
func (d *Daemon) supervise(ctx context.Context, name string, run func(context.Context) error) {
	for pause := time.Duration(0); ; {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}

		pause = restartDelay(pause, time.Since(began))
		d.log.Error("part ended", "part", name, "error", err, "again", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause + rand.N(pause/4)): // what ended together does not come back together
		}
	}
}

// restartDelay is how long a part that ran for a time is left ended, after the pause before that: twice as long
// each time, a minute at most, and from the beginning for one that had come up.
func restartDelay(before, ran time.Duration) time.Duration {
	if before == 0 || ran > time.Minute {
		return time.Second
	}
	return min(2*before, time.Minute)
}
