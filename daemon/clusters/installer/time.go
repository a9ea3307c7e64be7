package installer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// timeClient says who keeps a node's clock: timesyncd, other, or none. A container has its host's clock.
const timeClient = `
if systemd-detect-virt --quiet --container; then echo other; exit; fi
for unit in chrony chronyd ntp ntpd ntpsec openntpd; do
	if systemctl is-active --quiet $unit.service; then echo other; exit; fi
done
if systemctl cat systemd-timesyncd.service >/dev/null 2>&1; then echo timesyncd; else echo none; fi
`

// timesyncdUnit is the service that follows the appliance; it reads its file only when it starts.
func timesyncdUnit(v values) (unit, error) {
	files, err := renderFiles(
		v, []file{{"/etc/systemd/timesyncd.conf.d/60-firstlight.conf", 0o644, []byte("timesyncd.conf")}},
	)
	return unit{"systemd-timesyncd.service", files}, err
}

// clockService is the unit that keeps the node's clock and is ours to set up; nil if another program
// does, or if the machine is run by no systemd and has its clock from elsewhere.
func (n *node) clockService(ctx context.Context) (*unit, error) {
	if !n.facts().Systemd {
		return nil, nil
	}

	out, err := n.shell.RunScript(ctx, timeClient)
	if err != nil {
		return nil, err
	}

	switch strings.TrimSpace(out) {
	case "other":
		return nil, nil
	case "none":
		return nil, bringup.Permanent(errors.New("no program keeps its clock; use an image that has systemd-timesyncd or chrony"))
	}

	v, _, err := n.applianceValues(ctx)
	if err != nil {
		return nil, err
	}

	u, err := timesyncdUnit(v)
	if err != nil {
		return nil, bringup.Permanent(err)
	}

	return &u, nil
}

func (n *node) clockDone(ctx context.Context) error {
	f, err := n.collectFacts(ctx)
	if err != nil {
		return err
	}
	if s := clockSkew(f.Time, time.Now()); s != "" {
		return fmt.Errorf("%s", s)
	}

	u, err := n.clockService(ctx)
	if err != nil || u == nil {
		return err
	}

	return n.checkRunning(ctx, *u)
}

// clockDo points the node's time service at the appliance and, since a service that finds a large step
// may take its time, sets a clock that is off.
func (n *node) clockDo(ctx context.Context, report bringup.Report) error {
	f, err := n.collectFacts(ctx)
	if err != nil {
		return err
	}

	if clockSkew(f.Time, time.Now()) != "" {
		report("setting its clock")
		if _, err := n.runLocked(ctx, `date -u -s "@$1" >/dev/null`, fmt.Sprint(time.Now().Unix())); err != nil {
			return err
		}
	}

	u, err := n.clockService(ctx)
	if err != nil || u == nil {
		return err
	}

	report("starting its time service")
	return n.start(ctx, *u)
}
