package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	sshUnit        = "ssh.service"
	shellUnit      = "firstlight-shell.service" // a shell on the second screen
	authorizedName = "ssh/authorized_keys"
)

// SSHDone holds when exactly those may log in whom the site names: sshd runs if it names a
// key, the shell on the second screen if it asks for one, and neither otherwise.
func (h *Host) SSHDone(ctx context.Context) error {
	keys := h.rawSite().Access.SSHKeys
	h.setNote("ssh", "")
	if len(keys) == 0 {
		h.setNote("ssh", "Nobody can log in over the network: the site names no SSH key (access.sshKeys).")
	}

	have, err := os.ReadFile(h.dataPath(authorizedName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read authorized keys: %w", err)
	}
	if !bytes.Equal(have, authorizedKeys(keys)) {
		return errors.New("authorized keys are not the site's")
	}
	hostKeys, err := h.wantedHostKeys()
	if err != nil {
		return err
	}

	for _, d := range h.accessUnits() {
		switch running := h.isActive(ctx, d.unit); {
		case running && !d.open:
			return fmt.Errorf("%s runs though the site does not ask for it", d.unit)
		case !running && d.open:
			return fmt.Errorf("%s does not run", d.unit)
		case running && d.unit == sshUnit && !h.hasLoaded(hostKeys):
			return fmt.Errorf("%s has other host keys than DATA", d.unit)
		}
	}

	return nil
}

// SSHDo writes the keys and starts or stops what lets people in.
func (h *Host) SSHDo(ctx context.Context, _ bringup.Report) error {
	if err := os.MkdirAll(h.dataPath("ssh"), 0o700); err != nil {
		return fmt.Errorf("make ssh folder: %w", err)
	}

	if err := h.ensureHostKeys(); err != nil {
		return err
	}
	hostKeys, err := h.wantedHostKeys()
	if err != nil {
		return err
	}

	if err := writeFile(h.dataPath(authorizedName), authorizedKeys(h.rawSite().Access.SSHKeys), 0o600); err != nil {
		return err
	}

	for _, d := range h.accessUnits() {
		verb := ""
		switch running := h.isActive(ctx, d.unit); {
		case running && !d.open:
			verb = "stop"
		case !running && d.open:
			verb = "start"
		case running && d.unit == sshUnit && !h.hasLoaded(hostKeys):
			verb = "restart" // sessions stay: Debian's unit ends sshd alone (KillMode=process)
		default:
			continue
		}

		if d.open {
			// A start that failed before the host key was there counts against the unit's limit.
			_, _ = h.run(ctx, "systemctl", "reset-failed", d.unit)
		}
		if _, err := h.run(ctx, "systemctl", verb, d.unit); err != nil {
			return err
		}
		if d.open && d.unit == sshUnit {
			if err := writeFile(h.path(loadedKeysFile), hostKeys, 0o644); err != nil {
				return err
			}
		}
	}

	return nil
}

// accessUnit is a unit through which people get in, and whether the site wants it open.
type accessUnit struct {
	unit string
	open bool
}

func (h *Host) accessUnits() []accessUnit {
	access := h.rawSite().Access
	return []accessUnit{{sshUnit, len(access.SSHKeys) > 0}, {shellUnit, access.Console == "shell"}}
}

// isActive tells whether a unit is active; one that nobody knows is not.
func (h *Host) isActive(ctx context.Context, unit string) bool {
	_, err := h.run(ctx, "systemctl", "is-active", unit)
	return err == nil
}

// authorizedKeys is the file for the site's keys and no others.
func authorizedKeys(keys []site.SSHKey) []byte {
	var b strings.Builder
	b.WriteString("# Written by firstlightd from the site's access.sshKeys; other keys are removed.\n")
	for _, k := range keys {
		b.WriteString(k.String() + "\n")
	}

	return []byte(b.String())
}
