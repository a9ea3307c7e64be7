package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/carrier"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/away"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/storage"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
)

// Copier makes away copies of this appliance, and unpacks one onto it. It needs no daemon.
type Copier struct{ place away.Place }

// NewCopier returns the appliance's.
func NewCopier() *Copier { return &Copier{} }

func (c *Copier) path(name string) string { return filepath.Join("/", c.place.Root, name) }

// site is the document that counts now, as it is and read; nil and none if there is no document.
func (c *Copier) site() (text []byte, s *site.Site, err error) {
	if err := host.CheckSite(c.place.Root); err != nil {
		return nil, nil, err
	}

	for _, path := range []string{filepath.Join(stick.SiteDir, host.SiteName), host.BakedSite} {
		text, err = os.ReadFile(c.path(path))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read site: %w", err)
		}

		s, _, problems := site.Accept(host.SiteName, text)
		return text, s, problems.Err()
	}
	return nil, &site.Site{}, nil
}

// appliedSite is site, or while SITE is not mounted the document that was applied last, as DATA has it: a stick that is
// about to fail is copied all the same.
func (c *Copier) appliedSite() (text []byte, s *site.Site, err error) {
	text, s, err = c.site()
	if !errors.Is(err, host.ErrNoSite) {
		return text, s, err
	}

	history := sitedocument.History{Dir: c.path(NewSiteHistory().Dir)}
	if loadErr := history.Load(); loadErr != nil {
		return nil, nil, errors.Join(err, loadErr)
	}
	all := history.List()
	if len(all) == 0 {
		return nil, nil, err
	}

	text = all[len(all)-1].Text
	s, _, problems := site.Accept(host.SiteName, text)
	return text, s, problems.Err()
}

// Recipients are the public halves of the recovery keys that copies are sealed to: the site's, else that of the key
// which was printed; none before that. While SITE is not mounted no one knows them: those of a document that was applied
// before may not be its owner's any more.
func (c *Copier) Recipients() (all []string, err error) {
	_, s, err := c.site()
	if errors.Is(err, host.ErrNoSite) {
		return nil, fmt.Errorf("%w; to make a copy before that, say who may open it: firstlightd backup --recipient age1…", err)
	}
	if err != nil {
		return nil, err
	}
	if s.AwayCopy != nil {
		return siteRecipients(s.AwayCopy), nil
	}

	one, err := c.place.Recipient()
	if err != nil || one == "" {
		return nil, err
	}

	return []string{one}, nil
}

func siteRecipients(a *site.AwayCopy) (all []string) {
	for _, r := range a.Recipients {
		all = append(all, r.String())
	}
	return all
}

// SaveRecipient keeps the public half of a key that was printed.
func (c *Copier) SaveRecipient(key string) error { return c.place.SaveRecipient(key) }

// Write writes a copy of what is on DATA now, with the document that was applied last if SITE is not mounted.
func (c *Copier) Write(w io.Writer, recipients []age.Recipient) error {
	text, s, err := c.appliedSite()
	if err != nil {
		return err
	}

	id, err := os.ReadFile(c.path(filepath.Join(stick.DataDir, stick.MachineIDName)))
	if err != nil {
		return fmt.Errorf("make away copy: %w; has this appliance come up?", err)
	}

	name, _ := os.Hostname() // it is for people
	return c.place.Write(w, away.Header{
		Version:   stick.ImageVersion(stick.BootInfoFile),
		Site:      string(s.WithDefaults().Name),
		Appliance: name,
		MachineID: string(bytes.TrimSpace(id)),
		Made:      time.Now().UTC(),
	}, text, recipients)
}

// Made remembers that a copy went somewhere.
func (c *Copier) Made(to string) error {
	return c.place.Save(away.Record{Made: time.Now().UTC(), To: to})
}

// Unpack writes a copy next to this appliance's state. One without a document gets that of the copy.
func (c *Copier) Unpack(r io.Reader, keys []age.Identity) (away.Header, error) {
	text, s, err := c.site()
	if err != nil {
		return away.Header{}, err
	}

	name := ""
	if text != nil {
		name = string(s.WithDefaults().Name)
	}

	return c.place.Unpack(r, keys, name, func(document []byte) error {
		if text != nil {
			return checkAddress(s, document)
		}
		return storage.ReplaceSite(stick.SiteDir, host.SiteName, document, func() error { return nil })
	})
}

// checkAddress refuses a copy whose appliance had another address on the provisioning network than this one: servers in
// service have their leases there, and fetch images, packages and time at it. document is the copy's; one that this
// version does not take says nothing.
func checkAddress(own *site.Site, document []byte) error {
	its, _, problems := site.Accept(host.SiteName, document)
	if problems.Err() != nil {
		return nil
	}

	had, has := addressOf(its), addressOf(own)
	if had == has {
		return nil
	}
	return &away.Refusal{Reason: away.ErrForeign, Text: fmt.Sprintf("the appliance that it is of has %s on the provisioning "+
		"network, where servers in service find it, and this one has %s; give it that address in site.yaml first: "+
		"networks.provisioning", had, has)}
}

// addressOf is the address of a site's appliance on the provisioning network.
func addressOf(s *site.Site) netip.Prefix {
	p := s.WithDefaults().Networks.Provisioning
	return netip.PrefixFrom(p.Address, p.CIDR.Bits())
}

// awayCopies makes copies by the site's schedule.
func (d *Daemon) awayCopies(ctx context.Context) error {
	if err := d.copier.place.Tidy(); err != nil {
		return err
	}
	for {
		if a := d.host.Site().AwayCopy; a != nil && d.stageReady("launch-declared")() {
			d.makeDueCopy(ctx, a)
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Second):
		}
	}
}

// makeDueCopy makes a copy if it is time, and keeps how that went.
func (d *Daemon) makeDueCopy(ctx context.Context, a *site.AwayCopy) {
	r := d.copier.place.Record()
	if !r.IsDue(time.Now(), time.Duration(a.Every)) {
		return
	}

	to, err := d.copier.send(ctx, a)
	if err != nil {
		d.log.Warn("away copy not made", "error", err)
		r.Tried, r.Error = time.Now().UTC(), err.Error()
	} else {
		d.log.Info("away copy made", "to", to)
		r = away.Record{Made: time.Now().UTC(), To: to}
	}
	if err := d.copier.place.Save(r); err != nil {
		d.log.Warn("away copy not remembered", "error", err)
	}
}

// caFile is the authority of the store that copies go to: the client reads it from a file.
const caFile = stick.RunDir + "/away-ca.crt"

// send makes a copy and stores it; to is where.
func (c *Copier) send(ctx context.Context, a *site.AwayCopy) (to string, err error) {
	recipients, err := away.ParseRecipients(siteRecipients(a))
	if err != nil {
		return "", err
	}

	var sealed bytes.Buffer
	if err := c.Write(&sealed, recipients); err != nil {
		return "", err
	}

	config := s3.Config{
		Endpoint:  string(a.Store.Endpoint),
		Region:    a.Store.Region,
		AccessKey: a.Store.AccessKey,
		SecretKey: a.Store.SecretKey.Reveal(),
	}
	if a.Store.CA != "" {
		config.CAFile = c.path(caFile)
		if err := atomicfile.Write(config.CAFile, []byte(a.Store.CA), 0o644); err != nil {
			return "", err
		}
	}

	client, err := s3.New(config)
	if err != nil {
		return "", err
	}

	_, s, err := c.appliedSite()
	if err != nil {
		return "", err
	}

	object := fmt.Sprintf("%s/%s.age", s.WithDefaults().Name, time.Now().UTC().Format("20060102T150405Z"))
	if err := client.Put(ctx, a.Store.Bucket, object, sealed.Bytes()); err != nil {
		return "", fmt.Errorf("store away copy at %s: %w", a.Store.Endpoint, err)
	}

	return fmt.Sprintf("%s/%s/%s", a.Store.Endpoint, a.Store.Bucket, object), nil
}

// status is how the copies stand.
func (c *Copier) status(a *site.AwayCopy) *status.AwayCopy {
	r := c.place.Record()
	if a == nil && r.Made.IsZero() {
		return nil
	}
	return &status.AwayCopy{Made: r.Made, To: r.To, Tried: r.Tried, Error: r.Error}
}

// notes are what a person should know of copies.
func (c *Copier) notes(a *site.AwayCopy) (all []string) {
	every := time.Duration(0)
	if a != nil {
		every = time.Duration(a.Every)
	}
	if note := c.place.Record().Note(time.Now(), every); note != "" {
		all = append(all, note)
	}
	if c.place.State() != away.None {
		all = append(all, "An away copy is unpacked; to take the rack over, "+carrier.Read(c.place.Root).Restart)
	}
	return all
}

// resume puts an unpacked copy in place, before anything reads the state.
func (d *Daemon) resume() error {
	restored, err := d.copier.place.Resume()
	if err != nil {
		return err
	}
	if restored {
		h, _ := d.copier.place.LastRestore()
		d.log.Info("restored from an away copy", "site", h.Site, "made", h.Made, "hosts", h.Hosts, "clusters", h.Clusters)
	}
	return nil
}
