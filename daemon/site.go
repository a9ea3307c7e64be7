package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/storage"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// NewSiteStore is where the site document of this appliance is, as the daemon reads it.
func NewSiteStore() sitedocument.Store {
	return sitedocument.Store{
		Paths: []string{filepath.Join(stick.SiteDir, host.SiteName), host.BakedSite},
		Write: func(text []byte, check func() error) error {
			return storage.ReplaceSite(stick.SiteDir, host.SiteName, text, check)
		},
	}
}

// NewSiteHistory is the documents that were applied on this appliance.
func NewSiteHistory() *sitedocument.History {
	return &sitedocument.History{Dir: vault.SecretDir + "/site-history"}
}

// siteInterval is how often it is looked whether another document was applied.
const siteInterval = 5 * time.Second

// recordSite keeps the history of the site document: whoever replaces one adds it, and what was put on the stick in
// another way is added when it is in effect.
func (d *Daemon) recordSite(ctx context.Context) error {
	clockSet := d.stageReady("clock-set")
	for {
		if clockSet() {
			if err := d.updateHistory(); err != nil {
				return err
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(siteInterval):
		}
	}
}

func (d *Daemon) updateHistory() error {
	if err := d.siteHistory.Load(); err != nil {
		return err
	}
	text := d.host.Document()
	if text == nil {
		return nil
	}
	return d.siteHistory.Follow(text, time.Now())
}

// replaceSite replaces the document of the digest base, as somebody, and has the other one read: ErrNotRead if that alone
// did not succeed.
func (d *Daemon) replaceSite(text []byte, base, by string) error {
	problems, err := d.siteStore.Replace(text, base)
	if err = errors.Join(problems.Err(), err); err != nil {
		return err
	}

	if err := d.siteHistory.Add(text, by, time.Now()); err != nil {
		d.log.Error("site not kept", "by", by, "error", err)
	}
	if err := d.reload(); err != nil {
		return errors.Join(sitedocument.ErrNotRead, err)
	}
	return nil
}
