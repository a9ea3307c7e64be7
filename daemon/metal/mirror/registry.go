package mirror

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// How often the registry is told what changed, how often its certificate is looked at, and how long is waited before
// its unit is started again after that failed.
const (
	tellInterval        = time.Second
	certificateInterval = time.Hour
	startInterval       = 10 * time.Second
	startTimeout        = 2 * time.Minute // a unit that hangs must not keep anything from being told
)

// ServeImages has the registry's process give nodes their container images, from the moment that their networks have
// the appliance's addresses: it writes what the process serves, starts it, and goes on writing what changes.
func (m *Mirror) ServeImages(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}

	group := 0 // root runs it
	if m.StartRegistry != nil {
		var err error
		if group, err = findGroup(registry.User); err != nil {
			return err
		}
	}

	t := teller{mirror: m, dir: registry.SettingsDir, group: group}
	for running, tried := false, (time.Time{}); ; {
		if err := t.tell(time.Now()); err != nil {
			return err
		}

		if !running && m.StartRegistry != nil && time.Since(tried) >= startInterval {
			tried = time.Now()
			if err := m.StartRegistry(ctx); err != nil && ctx.Err() == nil {
				m.Log.Warn("registry is not started", "error", err, "again", startInterval)
			} else {
				running = true
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tellInterval):
		}
	}
}

// teller keeps the registry's settings as they ought to be.
type teller struct {
	mirror *Mirror
	dir    string
	group  int // who reads them

	settings registry.Settings
	issued   time.Time // when the certificate was looked at
}

// tell writes what changed.
func (t *teller) tell(now time.Time) error {
	m := t.mirror
	addrs := registryAddresses(m.Site())
	authority, err := m.Vault.Authority()
	if err != nil {
		return err
	}
	certificate, key, err := m.Trust()
	if err != nil {
		return err
	}

	if !slices.Equal(addrs, t.settings.Addrs) || now.Sub(t.issued) >= certificateInterval ||
		!bytes.Equal(certificate, t.settings.Authority) {
		pair, _, err := authority.Issue("registry", ca.Names{Of: "registry", Addrs: Addrs(addrs)})
		if err != nil {
			return err
		}

		t.settings.Addrs, t.settings.Pair = addrs, slices.Concat(pair.Cert, pair.Key)
		t.settings.Authority, t.issued = certificate, now
	}

	t.settings.Packages = key
	t.settings.Known, t.settings.Owners = m.KnownAddrs(), m.OwnersAt()
	return t.settings.Write(t.dir, t.group)
}

// findGroup is the number of a group.
func findGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("find who runs the registry: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

// StartUnit starts the registry's unit if it does not run.
func StartUnit(ctx context.Context) error {
	const unit = registry.Unit
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "start", unit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("start %s: %w: %s", unit, err, strings.TrimSpace(string(out)))
	}

	return nil
}
