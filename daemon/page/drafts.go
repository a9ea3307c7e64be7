package page

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
)

// maxDrafts is how many documents are kept that were checked; one more takes the place of the oldest.
const maxDrafts = 8

const replaceAction = "replace"

// newReplaceAction applies a site document that was checked.
func newReplaceAction() action {
	return action{
		name: replaceAction, on: onDraft, needs: Owner, title: "Apply it",
		effect: "site.yaml on the stick is replaced by this document and read. Nodes and clusters follow what has " +
			"changed in it.",
		offered: isDraft,
		details: describeDraft,
		typed:   typedForDraft,
		do: func(_ context.Context, s *Server, o order) (result, error) {
			d, ok := s.drafts.find(o.name)
			if !ok {
				return result{}, errors.New("the document is not kept any more; check it again")
			}
			if d.about() != o.about { // somebody has checked it against another one since it was confirmed
				return result{}, sitedocument.ErrChanged
			}
			err := s.deeds.ReplaceSite(d.text, d.base, o.by.Name)
			if errors.Is(err, sitedocument.ErrNotRead) {
				return result{level: bad, text: "site.yaml is replaced, and not in effect yet: " + err.Error() +
					"; run on the appliance: firstlightd reload"}, nil
			}
			return result{text: "site.yaml is replaced and in effect."}, err
		},
	}
}

// draft is a site document that was checked, has no mistakes, and may be applied.
type draft struct {
	name        string // that says nothing of its text: the audit log has it, and the support bundle has that
	digest      string
	text        []byte // with its secrets
	base        string // digest of the document that it was compared with: nothing else is replaced by it
	site        site.Name
	differences []site.Difference
	consents    []string // nodes whose data may be lost from then on
}

// drafts are the documents that people have checked lately, the newest last.
type drafts struct {
	mu  sync.Mutex
	key []byte // of names; nil: a random one when the first is needed
	all []draft
}

// add keeps a document that was checked.
func (d *drafts) add(text []byte, base string, from, to *site.Site) draft {
	one := draft{
		digest:      sitedocument.Digest(text),
		text:        text,
		base:        base,
		site:        to.WithDefaults().Name,
		differences: site.Compare(from, to),
		consents:    site.NewConsents(from, to),
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	one.name = d.nameOf(text)
	d.all = slices.DeleteFunc(d.all, func(o draft) bool { return o.name == one.name })
	d.all = append(d.all, one)
	d.all = d.all[max(0, len(d.all)-maxDrafts):]
	return one
}

// nameOf is the name of a text, by which nobody finds out its secrets who knows all else of it. d.mu is held.
func (d *drafts) nameOf(text []byte) string {
	if d.key == nil {
		d.key = make([]byte, sha256.Size)
		_, _ = rand.Read(d.key) // never fails, crypto/rand
	}
	sum := hmac.New(sha256.New, d.key)
	sum.Write(text)
	return hex.EncodeToString(sum.Sum(nil))
}

// find is the draft of a name; false if it is not kept.
func (d *drafts) find(name string) (draft, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o draft) bool { return o.name == name })
	if i < 0 {
		return draft{}, false
	}
	return d.all[i], true
}

// isDraft is about the digests of the document that is applied, and of the one that is replaced.
func isDraft(p *picture, name string) (about string, ok bool) {
	d, ok := p.drafts.find(name)
	return d.about(), ok
}

func (d draft) about() string {
	return "sha256 " + d.digest + " in place of " + d.base
}

// describeDraft says what becomes of a site by a draft, a line each.
func describeDraft(p *picture, name string) (lines []string) {
	d, _ := p.drafts.find(name)
	for _, one := range d.differences {
		lines = append(lines, newDifferenceView(one).Text())
	}
	if len(d.consents) > 0 {
		lines = append(lines, "Data on the disks of these nodes may be lost from then on: "+strings.Join(d.consents, ", "))
	}
	return lines
}

// typedForDraft is the name of the site where a draft lets data be lost.
func typedForDraft(p *picture, name string) string {
	if d, _ := p.drafts.find(name); len(d.consents) > 0 {
		return string(d.site)
	}
	return ""
}

// differenceView is what becomes of one part of a site.
type differenceView struct {
	Part   string // "node node-1", "networks"
	Change site.Change
	Effect string // of it, for people
}

// maxKeys is how many keys of one part are named.
const maxKeys = 12

func newDifferenceView(d site.Difference) differenceView {
	v := differenceView{Part: d.Section, Change: d.Change}
	switch d.Section {
	case "nodes":
		v.Part = "node " + d.Name
		v.Effect = map[site.Change]string{
			site.Added:   "It is checked, inspected, installed and verified.",
			site.Removed: "It is left alone as it is.",
		}[d.Change]
	case "clusters":
		v.Part = "cluster " + d.Name
		v.Effect = map[site.Change]string{
			site.Added:   "It is installed when its nodes are verified.",
			site.Removed: "Its Provisioning stays as it is.",
		}[d.Change]
	}

	if v.Effect == "" && len(d.Keys) > 0 {
		keys := d.Keys[:min(maxKeys, len(d.Keys))]
		v.Effect = strings.Join(keys, ", ")
		if len(keys) < len(d.Keys) {
			v.Effect += " and more"
		}
	}
	return v
}

// Text is the difference in one line.
func (v differenceView) Text() string {
	return strings.TrimSuffix(v.Part+" "+string(v.Change)+": "+v.Effect, ": ")
}
