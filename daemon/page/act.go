package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/metal/provisioning"
)

// confirmView is what a person is asked before an action.
type confirmView struct {
	Path    string
	Back    string
	CSRF    string
	Token   string
	Title   string // of the button
	Effect  string
	Details []string
	About   string
	Chosen  []string // before
	Typed   string   // what is typed where it cannot be undone; "": nothing
	By      Person
	Error   string
}

// refusal is why something was not done.
type refusal struct {
	code int // of HTTP
	text string
}

// serveConfirmation asks whether an action is meant.
func (s *Server) serveConfirmation(w http.ResponseWriter, r *http.Request, of *session, a action) {
	s.askToConfirm(w, r, of, a, http.StatusOK, "")
}

// askToConfirm asks whether an action is meant, with what was wrong with the last answer.
func (s *Server) askToConfirm(w http.ResponseWriter, r *http.Request, of *session, a action, code int, problem string) {
	if a.read != nil {
		a.read(s, r)
	}
	p, err := s.hub.current()
	if err != nil {
		s.fail(w, err)
		return
	}

	name, chosen := r.PathValue("name"), chosenBy(r)
	if _, ok := a.offered(p, name); !ok {
		s.showResult(w, r, of, a, notice{notOffered, bad})
		return
	}
	if a.choice != nil && len(chosen) == 0 {
		s.askToChoose(w, r, of, a, p, cmp.Or(problem, chooseFirst(r)))
		return
	}
	q, err := s.newQuestion(r.Context(), p, a, name, chosen)
	if err != nil {
		s.askToChoose(w, r, of, a, p, err.Error())
		return
	}

	s.showQuestion(w, r, of, p, code, a.describe(name), "confirm.html", confirmView{
		Path:    a.path(name),
		Back:    a.back(name),
		CSRF:    of.csrf,
		Token:   s.logins.ask(of, confirmation{action: a.name, name: name, asked: q.text(), chosen: chosen}),
		Title:   a.title,
		Effect:  a.effect,
		Details: q.details,
		About:   q.about,
		Chosen:  chosen,
		Typed:   a.typedFor(p, name),
		By:      of.person,
		Error:   problem,
	})
}

// showQuestion shows a page that waits for an answer.
func (s *Server) showQuestion(
	w http.ResponseWriter, r *http.Request, of *session, p *picture, code int, title, template string, data any,
) {
	main, err := execute(template, mainView{Version: p.version, Title: title, Headline: newHeadline(p.doc), Data: data})
	if err != nil {
		s.fail(w, err)
		return
	}

	frame := newFrame(p, of, r.URL.Path, title, main)
	frame.IsStill = true
	s.write(w, r, code, "frame.html", frame)
}

// question is what a person is asked before an action.
type question struct {
	about   string
	details []string // what becomes of it, a line each
}

// text is all of it: if it is another one when the answer comes, it is asked again.
func (q question) text() string { return strings.Join(append([]string{q.about}, q.details...), "\n") }

// newQuestion is what a person is asked before an action that makes sense now. The error, for people, is why what was
// chosen cannot be done.
func (s *Server) newQuestion(ctx context.Context, p *picture, a action, name string, chosen []string) (question, error) {
	if a.choice != nil {
		return a.choice.preview(ctx, s, p, name, chosen)
	}
	about, _ := a.offered(p, name)
	q := question{about: about}
	if a.details != nil {
		q.details = a.details(p, name)
	}
	return q, nil
}

// serveAction does what was confirmed, and says on the page that it came from what became of it.
func (s *Server) serveAction(w http.ResponseWriter, r *http.Request, of *session, a action) {
	o, no := s.readOrder(r, of, a)
	if no != nil {
		s.addToAudit(r, of.person, a, no.code, no.text)
		s.askToConfirm(w, r, of, a, no.code, no.text)
		return
	}

	done, no := s.perform(r.Context(), a, o)
	switch {
	case no != nil && no.code == http.StatusConflict:
		s.addToAudit(r, of.person, a, no.code, no.text)
		s.askToConfirm(w, r, of, a, no.code, no.text)
	case no != nil:
		s.addToAudit(r, of.person, a, no.code, no.text)
		s.showResult(w, r, of, a, notice{no.text, bad})
	case done.write != nil:
		s.addToAudit(r, of.person, a, http.StatusOK, "")
		s.sendFile(w, a, done)
	default:
		s.addToAudit(r, of.person, a, http.StatusOK, "")
		s.showResult(w, r, of, a, notice{done.text, cmp.Or(done.level, good)})
	}
}

// readOrder is what the form confirms, once.
func (s *Server) readOrder(r *http.Request, of *session, a action) (order, *refusal) {
	if a.read != nil {
		a.read(s, r)
	}
	p, err := s.hub.current()
	if err != nil {
		return order{}, &refusal{http.StatusInternalServerError, "The appliance does not know how it stands. Try again."}
	}

	name := r.PathValue("name")
	asked, ok := s.logins.answer(of, r.PostFormValue(confirmField))
	_, isOffered := a.offered(p, name)
	switch {
	case !ok, asked.action != a.name, asked.name != name:
		return order{}, &refusal{http.StatusConflict, "This was confirmed before, or is too old. Confirm it again if it is meant."}
	case !isOffered:
		return order{}, &refusal{http.StatusConflict, notOffered}
	}

	q, err := s.newQuestion(r.Context(), p, a, name, asked.chosen)
	switch {
	case err != nil:
		return order{}, newRefusal(err)
	case q.text() != asked.asked:
		return order{}, &refusal{http.StatusConflict, "It is about something else now. Read it again."}
	}
	if typed := a.typedFor(p, name); typed != "" && r.PostFormValue(nameField) != typed {
		return order{}, &refusal{http.StatusUnprocessableEntity, "The name that was typed is another one: type " + typed + "."}
	}
	return order{by: of.person, name: name, about: q.about, asked: asked.asked, chosen: asked.chosen}, nil
}

// checkAsked is nil if what would be asked now is what was confirmed.
func (o order) checkAsked(now question) error {
	if now.text() != o.asked {
		return fmt.Errorf("it is about something else now; %w", provisioning.ErrNotAsRead)
	}
	return nil
}

const notOffered = "This cannot be done now: something has changed meanwhile."

// perform does an action, if the API server says that the person has the right to.
func (s *Server) perform(ctx context.Context, a action, o order) (result, *refusal) {
	api, err := s.deeds.API()
	if err != nil {
		return result{}, newRefusal(fmt.Errorf("%w: %w", errNoAPI, err))
	}
	if err := checkRight(ctx, api, o.by, right{a.name, a.on.resource}, o.name); err != nil {
		return result{}, newRefusal(err)
	}

	done, err := a.do(ctx, s, o)
	s.hub.forget()
	if err != nil {
		return result{}, newRefusal(err)
	}
	return done, nil
}

// newRefusal says an error in one sentence. What the API server says besides is for the log.
func newRefusal(err error) *refusal {
	switch {
	case errors.Is(err, errForbidden):
		return &refusal{http.StatusForbidden, "Not done: " + errForbidden.Error() + "."}
	case errors.Is(err, provisioning.ErrNotAsRead):
		return &refusal{http.StatusConflict, "Not done: " + err.Error() + "."}
	case errors.Is(err, errNoAPI):
		return &refusal{http.StatusServiceUnavailable, "Not done: " + errNoAPI.Error() + "."}
	}
	return &refusal{http.StatusUnprocessableEntity, "Not done: " + err.Error()}
}

// showResult leads to the page that an action came from, where the notice is shown.
func (s *Server) showResult(w http.ResponseWriter, r *http.Request, of *session, a action, n notice) {
	s.logins.leaveNotice(of, n)
	http.Redirect(w, r, a.back(r.PathValue("name")), http.StatusSeeOther)
}

// sendFile sends what the browser saves. A file that breaks off ends the connection, so that the browser knows.
func (s *Server) sendFile(w http.ResponseWriter, a action, done result) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": done.file}))
	if err := done.write(w); err != nil {
		s.log.Error("file not sent", "action", a.name, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// addToAudit writes down what a person did, or was not let to do.
func (s *Server) addToAudit(r *http.Request, by Person, a action, code int, reason string) {
	s.log.Info("action asked", "action", a.name, "user", by.user(), "code", code, "reason", reason)
	s.audit.Add(audit.Request{
		HTTP:     r,
		Received: time.Now(),
		User:     by.user(),
		Verb:     a.name,
		Object:   auditv1.ObjectReference{APIGroup: rightsGroup, Resource: a.on.resource, Name: r.PathValue("name")},
		Code:     code,
		Reason:   reason,
	})
}
