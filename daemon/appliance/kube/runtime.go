package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const containerdSocket = "/run/containerd/containerd.sock"

func (c *Cluster) runtimeDone(ctx context.Context) error {
	files, err := runtimeFiles(c.config(), c.HostTraits())
	if err != nil {
		return bringup.Permanent(err)
	}
	if path := c.differingFile(files); path != "" {
		return fmt.Errorf("%s is not as wanted", path)
	}
	if err := c.checkActive(ctx, "containerd.service"); err != nil {
		return err
	}

	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.path(containerdSocket))
	if err != nil {
		return fmt.Errorf("ask containerd: %w", err)
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("ask containerd: %w", err)
	}

	found, err := c.listOrphans(ctx)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf(
			"%d ended containers and pods are from before the clock was set back, the first is %s", len(found),
			found[0].name,
		)
	}

	return err
}

func (c *Cluster) runtimeDo(ctx context.Context, report bringup.Report) error {
	files, err := runtimeFiles(c.config(), c.HostTraits())
	if err != nil {
		return bringup.Permanent(err)
	}

	changed, err := c.put(files)
	if err != nil {
		return err
	}
	// Before containerd, which needs it to take away a pod that has an address.
	if err := c.expectNetwork(); err != nil {
		return err
	}

	report("starting containerd")
	if err := c.start(ctx, "containerd.service", len(changed)); err != nil {
		return err
	}

	found, err := c.listOrphans(ctx)
	if err != nil || len(found) == 0 {
		return err
	}

	report(fmt.Sprintf("removing %d ended containers and pods from before the clock was set back", len(found)))
	return c.removeOrphans(ctx, found)
}

// checkActive is nil if systemd says that a unit runs.
func (c *Cluster) checkActive(ctx context.Context, unit string) error {
	out, err := c.Run(ctx, nil, "systemctl", "is-active", unit)
	if state := strings.TrimSpace(out); err != nil || state != "active" {
		return errors.Join(fmt.Errorf("%s is %s", unit, state), ctx.Err())
	}
	return nil
}

// start starts a unit, or restarts it if files it reads only at its start were changed; what systemd reads
// of it is read anew. Both wait for the unit to say that it is ready.
func (c *Cluster) start(ctx context.Context, unit string, changed int) error {
	verb := "start"
	if changed > 0 {
		verb = "restart"
	}

	if err := c.readUnit(ctx, unit); err != nil {
		return err
	}

	_, err := c.Run(ctx, nil, "systemctl", verb, unit)
	return err
}

// readUnit lets systemd read its files anew if it knows the unit from before they changed. To read them runs all
// generators and takes a slow processor seconds; a unit that was not started yet is read when it is.
func (c *Cluster) readUnit(ctx context.Context, unit string) error {
	stale, err := c.Run(ctx, nil, "systemctl", "show", "--property", "NeedDaemonReload", "--value", unit)
	if err == nil && strings.TrimSpace(stale) == "no" {
		return nil
	}

	_, err = c.Run(ctx, nil, "systemctl", "daemon-reload")
	return err
}

// exists tells whether a path is there at all.
func (c *Cluster) exists(path string) bool {
	_, err := os.Lstat(c.path(path))
	return err == nil
}
