package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/sitesource"
)

// SourceRecord is what is known of the source that the site names, on DATA.
var SourceRecord = filepath.Join(stick.DataDir, "source.json")

// FetchCommand is this program as the process that fetches from a source.
func FetchCommand() []string { return []string{"/proc/self/exe", "source", "fetch"} }

func (d *Daemon) newFollower() *sitesource.Follower {
	return &sitesource.Follower{
		Log:      d.log.With("part", "source"),
		Site:     d.host.Site,
		Fetch:    sitesource.Process{Command: FetchCommand()}.Fetch,
		Document: d.siteText,
		Replace:  d.replaceSite,
		Digest:   sitedocument.Digest,
		Objects:  sitesource.API{Config: d.kube.REST, Ready: d.stageReady("bpa-ready")}.Apply,
		Path:     SourceRecord,
		Now:      time.Now,
		Changed:  func() { d.notifyChange(d.runner.Snapshot()) },
	}
}

func (d *Daemon) siteText() ([]byte, error) {
	text, _, err := d.siteStore.Read()
	return text, err
}

// followSource follows the source that the site names, if it does.
func (d *Daemon) followSource(ctx context.Context) error {
	linksUp, clockSet := d.stageReady("links-up"), d.stageReady("clock-set")
	return d.follower.Run(ctx, func() bool { return linksUp() && clockSet() })
}

// sourceNotes say since when a source is not read, which keeps nothing waiting.
func sourceNotes(s *status.Source) []string {
	if s == nil || s.State != status.SourceLost {
		return nil
	}
	return []string{fmt.Sprintf("source %s was last read before %s; what is in effect stays, and the appliance catches up as soon as "+
		"it answers: %s", s.From, s.Behind.Format("2006-01-02 15:04:05 UTC"), s.Error)}
}
