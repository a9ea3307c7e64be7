package daemon

import (
	"context"
	"fmt"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// notifyChange records a change of the plan, and has the screen and systemd told.
func (d *Daemon) notifyChange(s bringup.Snapshot) {
	d.journal.Update(s)
	for _, c := range []chan struct{}{d.drawn, d.notified} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// notifyReady tells systemd that the status can be asked for: what waits for this unit waits for
// a daemon that answers, not for the end of the plan.
func (d *Daemon) notifyReady() {
	if _, err := sd.SdNotify(false, sd.SdNotifyReady); err != nil {
		d.log.Warn("systemd not told", "error", err)
	}
}

// runNotifier keeps systemd's STATUS= and its watchdog up to date. The watchdog is fed only
// when a document could be made: a daemon whose locks are stuck is restarted.
func (d *Daemon) runNotifier(ctx context.Context) error {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read watchdog interval: %w", err)
	}

	if every == 0 {
		every = time.Minute
	}

	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for last := ""; ; {
		text := sd.SdNotifyWatchdog
		if s := d.Document().Summary; s != last {
			last, text = s, text+"\nSTATUS="+s
		}

		if _, err := sd.SdNotify(false, text); err != nil {
			d.log.Warn("systemd not told", "error", err)
		}

		select {
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			return nil
		case <-tick.C:
		case <-d.notified:
		}
	}
}
