package lease

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is where time comes from. The zero Clock is the system's.
type Clock struct {
	Uptime func() time.Duration // time since boot, suspended time included; never goes back
	BootID func() string        // differs at every boot
	Wall   func() time.Time     // for people only
}

func (c Clock) orSystem() Clock {
	if c.Uptime == nil {
		c.Uptime = bootUptime
	}

	if c.BootID == nil {
		c.BootID = bootID
	}

	if c.Wall == nil {
		c.Wall = time.Now
	}

	return c
}

func bootUptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(id))
}

// anchor ties the lease clock to one boot: at uptime the clock showed tick.
type anchor struct {
	tick   Tick
	boot   string
	uptime time.Duration
}

// now is the lease clock at uptime u. Milliseconds, so that the journal keeps it exactly.
func (a anchor) now(u time.Duration) Tick {
	return a.tick + Tick(max(0, u-a.uptime)).truncate()
}

func (t Tick) truncate() Tick { return t - t%Tick(time.Millisecond) }

// resumeAnchor continues after a restart. Within one boot the boot clock says how long we were
// away. After another boot nobody trustworthy does: the wall clock may be off by years,
// so no time has passed. Leases then end late by the time switched off, at most by their
// own length, and never early.
func resumeAnchor(last anchor, newest Tick, boot string, up time.Duration) anchor {
	at := max(last.tick, newest)
	if last.boot == boot && boot != "unknown" && up >= last.uptime {
		at = max(at, last.now(up))
	}
	return anchor{tick: at, boot: boot, uptime: up}
}
