package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/joined"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// NewGuest wires the daemon as a guest on a Kubernetes and a machine of someone else's: the same plan, in which their
// stages are those of who owns them.
func NewGuest(log *slog.Logger, p guest.Placement) *Daemon {
	return newDaemon(log, &joined.Cluster{}, &p)
}

// isGuest reports whether machine and Kubernetes are someone else's.
func (d *Daemon) isGuest() bool { return d.kube == nil }

// guestStages stand for those of machine and Kubernetes in the plan of a guest. What others own is looked at, never
// changed. The names are those by which later parts wait.
func (d *Daemon) guestStages(cluster *joined.Cluster) []bringup.Stage {
	h := d.host
	return []bringup.Stage{
		{Name: "data-mounted", Title: "Storage is mounted",
			Fact: "State has its place, and what is written there reaches the medium.",
			Why:  "First: every secret and decision below is kept there.",
			Done: func(ctx context.Context) error { return errors.Join(h.DataDone(ctx), checkRootLink()) }, Do: linkRoot},
		{Name: "site-read", Title: "The site document is read",
			Fact: "What the owner wants is known: the site document of the Secret.",
			Why:  "Before all that it can change. A wrong one stops here, before anything is done by it.",
			Done: h.SiteDone, Do: h.SiteDo},
		{Name: "identity", Title: "Machine-id and host name are set",
			Fact: "The machine-id is the one kept on DATA.",
			Why:  "Before a certificate is minted, which carries it.",
			Done: h.IdentityDone, Do: h.IdentityDo},
		{Name: "links-up", Title: "Networks get their addresses",
			Fact: "The node has the site's addresses.",
			Why:  "Before whatever listens. The node's owner gives it addresses.",
			Done: h.GuestLinksDone},
		{Name: "clock-set", Title: "The clock is set",
			Fact: "The clock is not before the image was made, and the site's time servers were asked.",
			Why:  "Before the first certificate. The node's owner sets it.",
			Done: h.ClockDone, Do: h.ClockDo},
		cluster.Stage(),
	}
}

// checkRootLink returns an error if linkRoot has not been done.
func checkRootLink() error {
	_, err := os.Stat(stick.LowerDir)
	return err
}

// linkRoot makes the root that the image is made of appear where it is below an appliance's overlay.
func linkRoot(context.Context, bringup.Report) error {
	if err := os.MkdirAll(filepath.Dir(stick.LowerDir), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", stick.LowerDir, err)
	}
	if err := os.Symlink("/", stick.LowerDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("show the image's files at %s: %w", stick.LowerDir, err)
	}
	return nil
}

// ofMachine are the parts that an appliance runs for the machine that it owns.
func ofMachine() []string {
	return []string{"console", "systemd", "lease", "devices", "weights", "away copies", "update", kubernetesPart}
}
