package containers

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/bundle"
)

// How long until what failed is tried again although nothing changed that we know of.
const (
	recheckInterval = time.Hour        // a registry that refused
	firstPause      = 30 * time.Second // after a push that broke off; twice as long each time, up to:
	lastPause       = 10 * time.Minute // longer than the registry must be left alone to remove what nobody can name
)

// archiveInfo is what is known of an archive, so that it is not read again for nothing: that takes as long
// as its layers do, and Sync is called every half a minute.
type archiveInfo struct {
	sha256 string
	images []imageEntry
	bundle *bundle.Bundle // nil if it has none
	why    string         // it can never be served; "" if it can

	refused string // what the registry said of it
	failed  error  // of the last push
	pause   time.Duration
	retryAt time.Time // before it nothing is tried after refused or failed
}

// imageEntry is what an archive says of an image.
type imageEntry struct {
	names []string
	id    string
}

// inspect is what an archive says, read once.
func (p *Pusher) inspect(ctx context.Context, k artifact.Key, sha256 string) (*archiveInfo, error) {
	if m := p.memory[k]; m != nil && m.sha256 == sha256 {
		return m, nil
	}

	m := &archiveInfo{sha256: sha256}
	all, err := open(ctx, p.path(k))
	if isLocalFailure(ctx, err) {
		return nil, err
	}

	if err != nil {
		m.why = err.Error()
	}

	if all.bundle != nil {
		m.bundle = &all.bundle.Bundle
	}

	given := map[string]string{} // of which image
	for _, i := range all.images {
		s := imageEntry{id: i.id}
		for _, n := range i.names {
			if id, twice := given[n]; twice {
				if id != i.id {
					m.why = n + " is the name of two images of it"
				}
				continue
			}
			if _, err := p.tagFor(n); err != nil {
				m.why = err.Error()
			}
			given[n], s.names = i.id, append(s.names, n)
		}
		m.images = append(m.images, s)
	}

	if p.memory == nil {
		p.memory = map[artifact.Key]*archiveInfo{}
	}

	p.memory[k] = m
	return m, nil
}

// isLocalFailure tells whether an archive could not be read for a reason that lies not in it.
func isLocalFailure(ctx context.Context, err error) bool {
	var unread *fs.PathError
	return err != nil && (ctx.Err() != nil || errors.As(err, &unread))
}

// postpone has a push that broke off tried again later.
func (m *archiveInfo) postpone(now time.Time, err error) {
	m.pause = min(max(2*m.pause, firstPause), lastPause)
	m.failed, m.retryAt = err, now.Add(m.pause)
}

func (p *Pusher) now() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}
