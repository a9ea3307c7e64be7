package sitesource

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
)

// longestReason is how many bytes of a reason are kept.
const longestReason = 2000

// step asks the source once, and applies what is new. The error is of the appliance itself.
func (f *Follower) step(ctx context.Context, follow *site.Follow) error {
	source := sourceName(follow)
	r, err := readRecord(f.Path, source)
	if err != nil {
		return err
	}
	f.set(&r)

	q := newRequest(follow)
	q.Base = r.Applied
	answer, err := f.ask(ctx, q, r)
	if ctx.Err() != nil {
		return nil
	}
	next := r
	switch {
	case err != nil:
		next = r.after(outcome{lost: reason(err)}, f.Now())
	case answer.Refusal != "":
		next = r.after(outcome{offered: answer.Revision, refusal: reason(errors.New(answer.Refusal))}, f.Now())
	default:
		if next, err = f.apply(ctx, r, answer, source); err != nil {
			return err
		}
	}

	if err == nil { // what is held is the answer of now
		f.heldFor.Base = next.Applied
		if next.isCurrent(f.held.Revision) {
			f.held = Answer{}
		}
	}
	isSaved, err := next.save(f.Path, r)
	if err != nil {
		return err
	}
	if !isSaved { // what came of it follows from what was forgotten
		f.held = Answer{}
		f.Recheck()
		return nil
	}
	f.report(r, next)
	f.set(&next)
	return nil
}

// ask fetches what is not held or applied already.
func (f *Follower) ask(ctx context.Context, q Request, r record) (Answer, error) {
	isHeld := f.held.Revision != "" && reflect.DeepEqual(q, f.heldFor)
	asked := q
	switch {
	case isHeld:
		asked.Known = f.held.Revision
	case r.isCurrent(r.Applied):
		asked.Known = r.Applied
	}

	answer, err := f.Fetch(ctx, asked)
	if err != nil {
		return Answer{}, err
	}
	if isHeld && answer.Revision == f.held.Revision {
		return f.held, nil
	}
	f.held, f.heldFor = answer, q
	return answer, nil
}

// apply takes the appliance to a revision: its site document first, which may be what lets the API come up. What is wrong
// with the revision is in the record; the error is of the appliance itself.
func (f *Follower) apply(ctx context.Context, r record, a Answer, source string) (record, error) {
	if r.isCurrent(a.Revision) {
		return r.after(outcome{}, f.Now()), nil
	}

	current, err := f.Document()
	if err != nil {
		return r, err
	}
	objects, err := readObjects(a.Files, source)
	if err != nil {
		err = refusal{err}
	}
	if err == nil && r.Applied != a.Revision {
		r, err = f.applySite(r, a, current)
	}
	if err == nil {
		err = f.Objects(ctx, source, objects)
	}
	if err == nil {
		r.Objects = a.Revision
		return r.after(outcome{}, f.Now()), nil
	}

	o := outcome{offered: a.Revision, waiting: reason(err)}
	if isRefusal(err) {
		o.waiting, o.refusal = "", reason(err)
	}
	return r.after(o, f.Now()), nil
}

func (f *Follower) applySite(r record, a Answer, current []byte) (record, error) {
	r.Changes = nil
	if text, isThere := a.Files[SiteName]; isThere {
		d, err := newDraft(text, current)
		if err != nil {
			return r, refusal{err}
		}
		if !bytes.Equal(d.text, current) {
			if err := f.Replace(d.text, f.Digest(current), "source "+shorten(a.Revision)); err != nil {
				return r, err
			}
		}
		r.Changes = d.changes
	}
	r.Applied, r.At = a.Revision, f.Now().UTC().Truncate(time.Second)
	return r, nil
}

// reason is an error for people. It may have names and texts of the source, which could move the cursor of a terminal.
func reason(err error) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return utf8.RuneError
		}
	}, err.Error())
	return excerpt.Start(plain, longestReason)
}

// report logs what became another thing.
func (f *Follower) report(was, now record) {
	log := f.Log.With("source", now.Source)
	if now.Applied != was.Applied {
		log.Info("site follows its source", "revision", now.Applied, "changes", now.Changes)
	}
	if now.Objects != was.Objects {
		log.Info("objects follow their source", "revision", now.Objects)
	}
	if now.Refusal != "" && now.Refusal != was.Refusal {
		log.Warn("revision refused", "revision", now.Offered, "reason", now.Refusal)
	}
	if now.Lost != "" && was.Lost == "" {
		log.Warn("source not read", "error", now.Lost)
	}
	if now.Lost == "" && was.Lost != "" {
		log.Info("source is read again", "since", now.Behind)
	}
}

// sourceName is what a source is known by: its address and folder.
func sourceName(f *site.Follow) string {
	name := f.Address()
	if f.Git != nil {
		name += "@" + f.Git.Branch
	}
	if f.Path != "" {
		name += " " + f.Path
	}
	return name
}

func newRequest(f *site.Follow) Request {
	q := Request{Path: f.Path}
	if g := f.Git; g != nil {
		q.Git = &Git{
			URL:        string(g.URL),
			Branch:     g.Branch,
			Username:   g.Username,
			Password:   g.Password.Reveal(),
			PrivateKey: g.PrivateKey.Reveal(),
			CA:         string(g.CA),
		}
		for _, host := range g.KnownHosts {
			q.Git.KnownHosts = append(q.Git.KnownHosts, string(host))
		}
		for _, key := range g.Verify {
			if key.IsOpenPGP() {
				q.Git.OpenPGP = append(q.Git.OpenPGP, string(key))
			} else {
				q.Git.SSH = append(q.Git.SSH, string(key))
			}
		}
		return q
	}
	b := f.Bucket
	q.Bucket = &Bucket{
		Endpoint:  string(b.Endpoint),
		Region:    b.Region,
		Name:      b.Bucket,
		AccessKey: b.AccessKey,
		SecretKey: b.SecretKey.Reveal(),
		CA:        string(b.CA),
	}
	return q
}
