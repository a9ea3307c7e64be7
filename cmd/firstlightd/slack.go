package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// setTimerSlack is how late the timers of this process may be, and of those that it starts. It is said
// of each thread (proc_pid_timerslack_ns(5)); one that is made later has that of the one that makes it.
func setTimerSlack(slack time.Duration) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}

	for _, t := range threads {
		err := os.WriteFile("/proc/"+t.Name()+"/timerslack_ns", fmt.Appendf(nil, "%d", slack.Nanoseconds()), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}
