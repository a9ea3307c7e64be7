package page

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/site/summary"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
)

// editPath is where a site document is edited and checked.
const editPath = "/site/edit"

// Fields of the form of a document, and what editPath takes.
const (
	documentField = "document"
	baseField     = "base"   // digest of the document that held when the form was shown
	originField   = "origin" // digest of the document whose secrets the form hides
	fromField     = "from"   // number of the document of the history that is edited; "": the one that holds
)

// siteView is the page of the site document.
type siteView struct {
	Text   string // with its secrets hidden; "" if there is none
	Digest string // as digestFor
	Error  string // why the text is not shown
	Edit   string // where it is edited; "": not by this role
	Past   []pastDocument
}

// pastDocument is one document of the history.
type pastDocument struct {
	Path     string
	Time     time.Time
	By       string
	Number   int
	Digest   string // as digestFor
	IsActive bool   // it is the one that holds
}

func newSiteView(p *picture, by Role) siteView {
	v := siteView{Edit: editLink(by, "")}
	if len(p.siteText) > 0 {
		v.Digest = digestFor(by, p.siteText)
	}
	masked, err := p.masks.mask(p.siteText)
	if err != nil {
		v.Error = errNotYAML.Error()
	} else {
		v.Text = string(masked)
	}
	for _, e := range slices.Backward(p.history) {
		v.Past = append(v.Past, newPastDocument(p, by, e))
	}
	return v
}

func newPastDocument(p *picture, by Role, e sitedocument.Entry) pastDocument {
	return pastDocument{
		Path:     documentPath(e.Number),
		Time:     e.Time,
		By:       e.By,
		Number:   e.Number,
		Digest:   digestFor(by, e.Text),
		IsActive: bytes.Equal(e.Text, p.siteText),
	}
}

func documentPath(number int) string { return "/site/documents/" + strconv.Itoa(number) }

// digestFor is the beginning of a document's digest, for owners: "" for others. Whoever sees all of a document but a
// password tries passwords until the digest is the same.
func digestFor(by Role, text []byte) string {
	if !by.covers(Owner) {
		return ""
	}
	return sitedocument.Digest(text)[:16]
}

// editLink is where a role edits a document; "" if it may not.
func editLink(by Role, from string) string {
	switch {
	case !by.covers(Owner):
		return ""
	case from == "":
		return editPath
	}
	return editPath + "?" + fromField + "=" + from
}

var errNotYAML = errors.New("the document is no YAML, so its secrets cannot be told from the rest and nothing of it is " +
	"shown; firstlightd site show on the appliance prints it")

// documentView is the page of one document of the history: what it changed.
type documentView struct {
	Document pastDocument
	Diff     diff
	Since    *pastDocument // the one before it; nil: none is kept
	Error    string
	Edit     string // where one goes back to it
}

func newDocumentView(p *picture, by Role, name string) (documentView, bool) {
	i := slices.IndexFunc(p.history, func(e sitedocument.Entry) bool { return strconv.Itoa(e.Number) == name })
	if i < 0 {
		return documentView{}, false
	}

	e := p.history[i]
	v := documentView{Document: newPastDocument(p, by, e), Edit: editLink(by, name)}
	var before []byte
	if i > 0 {
		since := newPastDocument(p, by, p.history[i-1])
		before, v.Since = p.history[i-1].Text, &since
	}
	var err error
	if v.Diff, err = p.masks.diff(before, e.Text); err != nil {
		v.Error = err.Error()
	}
	return v, true
}

// maxDiffLines is how many lines two documents may have together to be compared line by line, whose time grows as their
// square.
const maxDiffLines = 10_000

// diff is what differs in two documents.
type diff struct {
	Lines  []diffLine
	IsLong bool             // they are too long for Lines
	Parts  []differenceView // in place of Lines; none if one of them has mistakes
}

// diffLine is one line of a difference of two texts.
type diffLine struct {
	Kind string // "add", "del", "at" for a place, or ""
	Text string
}

// diff is the difference of two documents with their secrets hidden, with three lines around each.
func (m *masks) diff(from, to []byte) (diff, error) {
	var sides [2][]string
	for i, text := range [][]byte{from, to} {
		masked, err := m.mask(text)
		if err != nil {
			return diff{}, errNotYAML
		}
		if len(text) > 0 {
			sides[i] = difflib.SplitLines(string(masked))
		}
	}

	if len(sides[0])+len(sides[1]) > maxDiffLines {
		d := diff{IsLong: true}
		before, _, problems := site.Accept(sitedocument.Name, from)
		after, _, more := site.Accept(sitedocument.Name, to)
		if len(problems)+len(more) == 0 {
			for _, of := range site.Compare(before, after) {
				d.Parts = append(d.Parts, newDifferenceView(of))
			}
		}
		return d, nil
	}

	return diffLines(sides[0], sides[1])
}

// diffLines is the difference of two texts, with three lines around each.
func diffLines(from, to []string) (diff, error) {
	unified, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: from, B: to, Context: 3})
	if err != nil {
		return diff{}, err
	}
	var d diff
	for line := range strings.Lines(unified) {
		l := diffLine{Text: strings.TrimRight(line, "\r\n")}
		switch line[0] {
		case '+':
			l.Kind = "add"
		case '-':
			l.Kind = "del"
		case '@':
			l.Kind = "at"
		}
		d.Lines = append(d.Lines, l)
	}
	return d, nil
}

// editView is the form of a document, and what its check found.
type editView struct {
	CSRF   string
	Text   string
	Base   string        // as baseField
	Origin string        // as originField
	Past   *pastDocument // of the history, that is edited; nil: the one that holds

	Error    string // why it was not checked
	Problems []problemView
	Keys     []keySection // all that a document may have

	IsSound     bool     // it has no mistakes
	Summary     []string // what it asks for
	Differences []differenceView
	Diff        diff
	Held        []heldNode
	HeldError   string // why it is not known which nodes would be held
	Apply       string // where it is applied; "": nothing would change
}

// heldNode is a node that would not be changed, and why.
type heldNode struct{ Name, Why string }

// serveSiteEditor shows the form with the document that holds, or with one of the history.
func (s *Server) serveSiteEditor(w http.ResponseWriter, r *http.Request, of *session) {
	current, err := s.deeds.ReadSite()
	if err != nil {
		s.showEditor(w, r, of, http.StatusInternalServerError, editView{Error: err.Error()})
		return
	}

	v, text := editView{Base: sitedocument.Digest(current)}, current
	if from := r.URL.Query().Get(fromField); from != "" {
		history := s.sources.SiteHistory()
		i := slices.IndexFunc(history, func(e sitedocument.Entry) bool { return strconv.Itoa(e.Number) == from })
		if i < 0 {
			v.Error = "This document is not kept any more."
			s.showEditor(w, r, of, http.StatusNotFound, v)
			return
		}
		text = history[i].Text
	}

	v.Origin = sitedocument.Digest(text)
	masked, err := s.masks.mask(text)
	if err != nil {
		v.Error = errNotYAML.Error() + ". Write a whole one here to replace it."
	}
	v.Text = string(masked)
	s.showEditor(w, r, of, http.StatusOK, v)
}

// findDocument is the document of a digest: the one that holds, or one of the history.
func (s *Server) findDocument(digest string, current []byte) ([]byte, bool) {
	if digest == sitedocument.Digest(current) {
		return current, true
	}
	for _, e := range s.sources.SiteHistory() {
		if digest == sitedocument.Digest(e.Text) {
			return e.Text, true
		}
	}
	return nil, false
}

// serveSiteCheck says what is wrong with a document, and what would become of the site by it. Nothing is changed.
func (s *Server) serveSiteCheck(w http.ResponseWriter, r *http.Request, of *session) {
	v := editView{
		Text:   strings.ReplaceAll(r.PostFormValue(documentField), "\r\n", "\n"),
		Base:   r.PostFormValue(baseField),
		Origin: r.PostFormValue(originField),
	}
	if !s.acts.Allow(r) {
		v.Error = "Too many checks from your address. Wait ten seconds, then try again."
		s.showEditor(w, r, of, http.StatusTooManyRequests, v)
		return
	}
	if err := s.mayReplaceSite(r.Context(), of.person); err != nil {
		no := newRefusal(err)
		v.Error = no.text
		s.showEditor(w, r, of, no.code, v)
		return
	}

	code, v := s.checkDocument(r.Context(), v)
	s.showEditor(w, r, of, code, v)
}

// mayReplaceSite asks the API server whether a person may do what a check prepares.
func (s *Server) mayReplaceSite(ctx context.Context, by Person) error {
	api, err := s.deeds.API()
	if err != nil {
		return errors.Join(errNoAPI, err)
	}
	return checkRight(ctx, api, by, right{replaceAction, onDraft.resource}, "")
}

// checkDocument is the answer to a form, and its code.
func (s *Server) checkDocument(ctx context.Context, v editView) (int, editView) {
	current, err := s.deeds.ReadSite()
	if err != nil {
		v.Error = err.Error()
		return http.StatusInternalServerError, v
	}
	original, ok := s.findDocument(v.Origin, current)
	if base := sitedocument.Digest(current); base != v.Base {
		v.Base, v.Error = base, "Somebody has replaced site.yaml meanwhile. Below is what you wrote: compare it with "+
			"the site page, then check it again."
		return http.StatusConflict, v
	}
	if !ok {
		v.Error = "The document that this one was made of is not kept any more. Open the site page again."
		return http.StatusConflict, v
	}

	text := site.Unmask([]byte(v.Text), original)
	if bytes.Contains(original, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) // a form has one kind of line ends
	}
	if len(bytes.TrimSpace(text)) == 0 {
		v.Error = "The document is empty."
		return http.StatusUnprocessableEntity, v
	}
	to, problems := site.LoadAfter(sitedocument.Name, text, current)
	if len(problems) > 0 {
		v.Problems = newProblemViews(problems.Fold())
		return http.StatusUnprocessableEntity, v
	}
	return http.StatusOK, s.previewDocument(ctx, v, current, text, to)
}

// previewDocument adds what would become of the site by a document without mistakes.
func (s *Server) previewDocument(ctx context.Context, v editView, current, text []byte, to *site.Site) editView {
	v.IsSound = true
	v.Summary = strings.Split(summary.Describe(sitedocument.Name, to), "\n")
	from, _, problems := site.Accept(sitedocument.Name, current)
	if len(problems) > 0 {
		from = &site.Site{} // the one that is replaced is wrong
	}
	if !bytes.Equal(current, text) {
		one := s.drafts.add(text, v.Base, from, to)
		v.Apply = newReplaceAction().path(one.name)
		for _, d := range one.differences {
			v.Differences = append(v.Differences, newDifferenceView(d))
		}
		v.Diff, _ = s.masks.diff(current, text) // one that is no YAML is not compared
	}

	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	blocks, err := s.deeds.PreviewSite(ctx, to.WithDefaults())
	if err != nil {
		s.log.Warn("site not tried", "error", err)
		v.HeldError = "Which nodes would wait for a person is not known: the appliance's API server does not answer."
	}
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		v.Held = append(v.Held, heldNode{name, blocks[name].Sentence})
	}
	return v
}

// showEditor shows the form of a document.
func (s *Server) showEditor(w http.ResponseWriter, r *http.Request, of *session, code int, v editView) {
	p, err := s.hub.current()
	if err != nil {
		s.fail(w, err)
		return
	}

	v.CSRF, v.Keys = of.csrf, newKeySections(v.Problems)
	for _, e := range p.history {
		if v.Origin != v.Base && v.Origin == sitedocument.Digest(e.Text) {
			past := newPastDocument(p, of.person.Role, e)
			v.Past = &past
		}
	}
	const title = "Edit the site"
	main, err := execute("siteedit.html", mainView{
		Version:  p.version,
		Title:    title,
		Headline: newHeadline(p.doc),
		Data:     v,
	})
	if err != nil {
		s.fail(w, err)
		return
	}
	frame := newFrame(p, of, r.URL.Path, title, main)
	frame.IsStill, frame.Site = true, true
	s.write(w, r, code, "frame.html", frame)
}
