package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/beevik/ntp"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/daemon/appliance/host/timeserver"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	askTimeout = 2 * time.Second  // one server, one question
	askEvery   = 10 * time.Minute // while serving
	stepFrom   = 500 * time.Millisecond
)

// Offset is what a time server answered.
type Offset struct {
	Ahead   time.Duration // true time minus ours
	Stratum int
}

// clock is what is known of the time.
type clock struct {
	asked  time.Time // monotonic reading counts, so a step does not matter
	synced bool
	source timeserver.Source
}

// ClockDone holds when the clock is not before the image's making and the site's time
// servers were asked lately, whether or not one answered: a site without time still comes up.
func (h *Host) ClockDone(context.Context) error {
	if floor := h.buildTime(); time.Now().Before(floor) {
		return fmt.Errorf(
			"the clock says %s, before this image was made (%s)", time.Now().UTC().Format(time.DateTime),
			floor.UTC().Format(time.DateTime),
		)
	}

	h.mu.Lock()
	asked := h.clock.asked
	h.mu.Unlock()
	if len(h.timeServers()) > 0 && (asked.IsZero() || time.Since(asked) > askEvery) {
		return errors.New("the site's time servers were not asked yet")
	}

	return nil
}

// ClockDo sets a clock that is years off to the image's time, then asks the site's time
// servers.
func (h *Host) ClockDo(_ context.Context, report bringup.Report) error {
	if floor := h.buildTime(); time.Now().Before(floor) {
		if err := setClock(floor); err != nil {
			return err
		}
		h.Log.Warn("clock set to the image's time", "time", floor)
	}

	servers := h.timeServers()
	h.mu.Lock()
	h.clock.asked = time.Now()
	h.mu.Unlock()
	if len(servers) == 0 {
		h.setNote("clock", "")
		return nil
	}

	query := h.Query
	if query == nil {
		query = queryServer
	}

	var failed []string
	for _, server := range servers {
		report("asking time server " + server)
		o, err := query(server, askTimeout)
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", server, err))
			continue
		}
		switch err := h.moveClock(o.Ahead); {
		case errors.Is(err, unix.EPERM) && o.Ahead.Abs() >= stepFrom:
			h.setNote("clock", fmt.Sprintf("The clock differs by %s from time server %s. It is that of the machine on which "+
				"the appliance is installed; set it there.", o.Ahead.Abs().Round(time.Millisecond), server))
			return nil
		case errors.Is(err, unix.EPERM): // that machine sets it
		case err != nil:
			return err
		}

		h.mu.Lock()
		h.clock.asked, h.clock.synced = time.Now(), true
		h.clock.source = timeserver.Source{Stratum: o.Stratum, At: time.Now()}
		h.mu.Unlock()
		h.setNote("clock", "")
		h.Log.Info("clock compared", "server", server, "ahead", o.Ahead)
		return nil
	}

	h.Log.Warn("no time server answers", "servers", failed)
	h.setNote("clock", "No time server answers ("+strings.Join(failed, "; ")+"); the clock of this machine is used.")
	return nil
}

// TimeSource tells the time server what our clock is worth.
func (h *Host) TimeSource() timeserver.Source {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clock.source
}

// Clock is what vouches for the time: when the image was made, whether the site names time
// servers, and whether one of them answered.
func (h *Host) Clock() (built time.Time, asked, answered bool) {
	h.mu.Lock()
	answered = h.clock.synced
	h.mu.Unlock()
	return h.buildTime(), len(h.timeServers()) > 0, answered
}

// timeServers are those of the site that are not this appliance.
func (h *Host) timeServers() []string {
	s := h.Site()
	var servers []string
	ours := map[string]bool{}
	for _, role := range []string{Baremetal, Provisioning, BMC} {
		n := s.Networks.Role(role)
		if n == nil {
			continue
		}

		ours[n.Address.String()] = true
		for _, server := range n.NTP {
			servers = append(servers, server.String())
		}
	}

	return slices.DeleteFunc(servers, func(server string) bool { return ours[server] })
}

// buildTime is when the image was made: no moment before it can be now.
func (h *Host) buildTime() time.Time {
	for _, p := range []string{"/usr/lib/os-release", "/usr/bin/firstlightd"} {
		if info, err := os.Stat(h.path(p)); err == nil {
			return info.ModTime()
		}
	}
	return time.Time{}
}

func queryServer(server string, timeout time.Duration) (Offset, error) {
	r, err := ntp.QueryWithOptions(server, ntp.QueryOptions{Timeout: timeout})
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Timeout() {
			return Offset{}, errors.New("no answer")
		}
		return Offset{}, err
	}
	if err := r.Validate(); err != nil {
		return Offset{}, fmt.Errorf("answer not usable: %w", err)
	}

	return Offset{Ahead: r.ClockOffset, Stratum: int(r.Stratum)}, nil
}

// moveClock is moveClock, unless a test has another one.
func (h *Host) moveClock(ahead time.Duration) error {
	if h.Move != nil {
		return h.Move(ahead)
	}
	return moveClock(ahead)
}

// moveClock closes a small gap slowly, so that time never runs backwards, and steps over
// a large one.
func moveClock(ahead time.Duration) error {
	if ahead.Abs() < time.Millisecond {
		return nil
	}
	if ahead.Abs() >= stepFrom {
		return setClock(time.Now().Add(ahead))
	}

	tx := unix.Timex{Modes: adjOffsetSingleshot, Offset: ahead.Microseconds()}
	if _, err := unix.Adjtimex(&tx); err != nil {
		return fmt.Errorf("slew clock by %s: %w", ahead, err)
	}

	return nil
}

// adjOffsetSingleshot is ADJ_OFFSET_SINGLESHOT of linux/timex.h: adjtime(3).
const adjOffsetSingleshot = 0x8001

func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set clock to %s: %w", t.UTC().Format(time.DateTime), err)
	}
	return nil
}
