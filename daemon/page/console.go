package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// Patterns of a node's console: the page, and what its script asks for. Keys are sent to the page's own path.
const (
	consolePattern = "/nodes/{name}/console"
	consoleStream  = consolePattern + "/stream"
)

// onConsole is what the audit log and RBAC name. What is printed may hold secrets, so viewers do not see it.
var onConsole = subject{"consoles", consolePattern, consolePattern}

// typeVerb is the verb of RBAC for typing at a console.
const typeVerb = "type"

// textField of a form is what is typed.
const textField = "text"

// screenInterval is how long a browser is left alone after it got a screen.
const screenInterval = 100 * time.Millisecond

// Console is the serial console of a node, as one browser watches it.
type Console interface {
	// Screen is what is shown now. Next waits until that changes; its error is that of ctx, or a *ConsoleEnd.
	Screen() Screen
	Next(ctx context.Context) (Screen, error)
	Close()
}

// Screen is what a terminal shows.
type Screen struct {
	Past        []string // lines that left it since the last one
	Lines       []string // rows
	Row, Column int      // of the cursor, from 0
}

// ConsoleEnd is why a console is not open, for people.
type ConsoleEnd struct{ Text, Fix string }

func (e *ConsoleEnd) Error() string { return e.Text }

func consoleRoutes() []route {
	return []route{
		{"GET", consoleStream, Operator, nil, (*Server).serveConsole},
		{"POST", consolePattern, Operator, nil, (*Server).serveTyping},
	}
}

// isConsole reports whether a pattern is one of consoleRoutes.
func isConsole(method, pattern string) bool {
	return slices.ContainsFunc(consoleRoutes(), func(r route) bool { return r.method == method && r.pattern == pattern })
}

// consoleVerb is what a request to a console does.
func consoleVerb(method string) string {
	if method == http.MethodPost {
		return typeVerb
	}
	return "console"
}

// isConsoleStream reports whether a request is one of consoleStream.
func isConsoleStream(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/nodes/") && strings.HasSuffix(r.URL.Path, "/console/stream")
}

// consoleRules let a role type.
func consoleRules(r Role) []rbacv1.PolicyRule {
	if !r.covers(Operator) {
		return nil
	}
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rightsGroup},
		Resources: []string{onConsole.resource},
		Verbs:     []string{typeVerb},
	}}
}

// consoleView is the page of a console. What it shows comes by a stream.
type consoleView struct {
	Node string
	Path string
	Keys []string // that browsers keep to themselves, or phones lack
	Why  string   // there is none
}

func newConsoleView(p *picture, name string) (consoleView, bool) {
	host := p.hosts[name]
	if !p.named[name] && host == nil {
		return consoleView{}, false
	}

	v := consoleView{
		Node: name,
		Path: "/nodes/" + name,
		Keys: []string{"Escape", "Tab", "ArrowUp", "ArrowDown", "Delete", "F2", "F10", "F12", "Ctrl-C"},
	}
	switch {
	case p.noBMC[name]:
		v.Why = "The node has no BMC, and so no console. Give it bmc.address, bmc.username and bmc.password in site.yaml."
	case host != nil && metal3.BMCAddress(host.Spec.BMC.Address).IsRedfish():
		v.Why = "Its BMC is spoken to by Redfish, which offers the console by other protocols, each maker in its own way. " +
			"Open the console on the BMC's own web page or by its SSH."
	}
	return v, true
}

func showConsole(p *picture, _ Role, r *http.Request) (data any, title string, ok bool) {
	v, ok := newConsoleView(p, r.PathValue("name"))
	return v, "Console of " + r.PathValue("name"), ok
}

// serveConsole sends what a console shows, as server-sent events, until it ends, the browser goes or the session ends:
// "begin" with the whole screen, then "screen" with what is new, and "end" with why it ended.
func (s *Server) serveConsole(w http.ResponseWriter, r *http.Request, of *session) {
	if !s.acquireStream(of) {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many pages are open. Close some, then open the console again.", http.StatusServiceUnavailable)
		return
	}
	defer s.releaseStream(of)

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-of.ended:
			cancel()
		case <-ctx.Done():
		}
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	events := eventWriter{w, http.NewResponseController(w)}
	c, end := s.attach(ctx, of.person, r.PathValue("name"))
	if end != nil {
		s.addConsoleToAudit(r, of.person, "console", http.StatusUnprocessableEntity, end.Text)
		_ = events.send("end", end)
		return
	}
	defer c.Close()
	s.addConsoleToAudit(r, of.person, "console", http.StatusOK, "")
	if events.send("begin", c.Screen()) != nil {
		return
	}
	if end := s.streamConsole(ctx, of, c, events, heartbeat); end != nil {
		_ = events.send("end", end)
	}
}

// attach watches the console of a node as a person.
func (s *Server) attach(ctx context.Context, by Person, node string) (Console, *ConsoleEnd) {
	if err := s.checkConsole(ctx, by); err != nil {
		return nil, err
	}
	c, err := s.deeds.WatchConsole(ctx, node)
	if err != nil {
		return nil, newConsoleEnd(err)
	}
	return c, nil
}

// streamConsole sends screens until the console ends, whose reason it returns; nil if the browser or the session did.
// However much is printed, what was taken away from who watches ends it within the interval.
func (s *Server) streamConsole(
	ctx context.Context, of *session, c Console, events eventWriter, interval time.Duration,
) *ConsoleEnd {
	for checked := time.Now(); ; {
		waiting, cancel := context.WithTimeout(ctx, interval)
		screen, err := c.Next(waiting)
		cancel()
		isSilent := errors.Is(err, context.DeadlineExceeded)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !isSilent:
			return newConsoleEnd(err)
		case isSilent || time.Since(checked) >= interval:
			if end := s.checkWatching(ctx, of); end != nil {
				return end
			}
			checked = time.Now()
		}
		if isSilent {
			if events.beat() != nil {
				return nil
			}
			continue
		}
		if events.send("screen", screen) != nil {
			return nil
		}
		select {
		case <-time.After(screenInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// checkWatching is why a session may not watch a console any more; nil if it may. A stream sends no requests, by which
// an issuer would be asked again.
func (s *Server) checkWatching(ctx context.Context, of *session) *ConsoleEnd {
	s.logins.sweep()
	if !s.isStillIssued(ctx, of) {
		return &ConsoleEnd{"your log-in has ended", "log in again"}
	}
	return s.checkConsole(ctx, of.person)
}

// checkConsole is why a person may not see consoles; nil if it may.
func (s *Server) checkConsole(ctx context.Context, by Person) *ConsoleEnd {
	of, _ := findReading(consolePattern)
	if err := s.checkReading(ctx, by, of); err != nil {
		return &ConsoleEnd{Text: deniedText(err)}
	}
	return nil
}

func newConsoleEnd(err error) *ConsoleEnd {
	var end *ConsoleEnd
	if errors.As(err, &end) {
		return end
	}
	return &ConsoleEnd{Text: err.Error()}
}

// serveTyping types at a console that is open. What was typed is written nowhere.
func (s *Server) serveTyping(w http.ResponseWriter, r *http.Request, of *session) {
	node := r.PathValue("name")
	refuse := func(code int, text string) {
		if s.acts.Allow(r) { // keys come faster than actions, and may not fill the log
			s.addConsoleToAudit(r, of.person, typeVerb, code, text)
		}
		http.Error(w, text, code)
	}
	if !s.keys.Allow(r) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "You type too fast. It is sent again in a moment.", http.StatusTooManyRequests)
		return
	}
	if err := s.checkCached(r.Context(), of.person, right{typeVerb, onConsole.resource}); err != nil {
		no := newRefusal(err)
		refuse(no.code, no.text)
		return
	}
	if err := s.deeds.TypeAtConsole(node, []byte(r.PostFormValue(textField))); err != nil {
		end := newConsoleEnd(err)
		refuse(http.StatusUnprocessableEntity, strings.TrimSuffix(end.Text+"; "+end.Fix, "; "))
		return
	}
	if s.typists.isNew(of.person.Name+" "+node, time.Now()) {
		s.addConsoleToAudit(r, of.person, typeVerb, http.StatusOK, "")
	}
	w.WriteHeader(http.StatusNoContent)
}

// addConsoleToAudit writes down who watches a console, or types there.
func (s *Server) addConsoleToAudit(r *http.Request, by Person, verb string, code int, reason string) {
	s.addToAudit(r, by, action{name: verb, on: onConsole}, code, reason)
}

// typists are who typed where, and when the audit log was last told so: it has that now and then, not each key.
type typists struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Bounds of typists.
const (
	typistForgotten = 10 * time.Minute
	maxTypists      = 1024
)

// isNew reports whether the audit log was not told lately that somebody types there.
func (t *typists) isNew(who string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || len(t.last) >= maxTypists {
		t.last = map[string]time.Time{}
	}
	if before, ok := t.last[who]; ok && now.Sub(before) < typistForgotten {
		return false
	}
	t.last[who] = now
	return true
}

// eventWriter sends server-sent events (HTML, section 9.2).
type eventWriter struct {
	w  http.ResponseWriter
	to *http.ResponseController
}

func (e eventWriter) send(name string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("write event %s: %w", name, err)
	}
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

// beat says that nothing is new.
func (e eventWriter) beat() error { return e.write(": still here\n\n") }

func (e eventWriter) write(text string) error {
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.to.Flush()
}
