package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// fakeConsole shows what it is sent, until it is closed.
type fakeConsole struct {
	shown  Screen
	next   chan Screen // closed: the BMC ended it
	closed chan struct{}
}

func newFakeConsole() *fakeConsole {
	return &fakeConsole{Screen{Lines: []string{"login:"}, Column: 7}, make(chan Screen, 8), make(chan struct{})}
}

func (c *fakeConsole) Screen() Screen { return c.shown }
func (c *fakeConsole) Close()         { close(c.closed) }

func (c *fakeConsole) Next(ctx context.Context) (Screen, error) {
	select {
	case screen, ok := <-c.next:
		if !ok {
			return Screen{}, &ConsoleEnd{"the BMC ended the console", "open it again"}
		}
		return screen, nil
	case <-ctx.Done():
		return Screen{}, ctx.Err()
	}
}

// newConsoleFixture is a fixture whose node-004 has a BMC with a console.
func newConsoleFixture(t *testing.T) *fixture {
	r := newFixture(t)
	r.of.hosts["node-004"].Spec.BMC.Address = "ipmi://10.0.0.4"
	return r
}

const testConsole = "/nodes/node-004/console"

func typed(b browser, text string) url.Values {
	return url.Values{"csrf": {b.open("/").all("input")[0].attr("value")}, "text": {text}}
}

func TestAConsoleIsSentAsItChanges(t *testing.T) {
	r := newConsoleFixture(t)
	c := newFakeConsole()
	r.deeds.WatchConsole = func(_ context.Context, node string) (Console, error) {
		assert.Equal(t, "node-004", node)
		return c, nil
	}
	c.next <- Screen{Past: []string{"old"}, Lines: []string{"<script>"}}
	close(c.next)
	b := logInAs(t, r.Server, Operator)
	w := b.ask("GET", testConsole+"/stream", "")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	assert.Equal(t, `event: begin
data: {"Past":null,"Lines":["login:"],"Row":0,"Column":7}

event: screen
data: {"Past":["old"],"Lines":["\u003cscript\u003e"],"Row":0,"Column":0}

event: end
data: {"Text":"the BMC ended the console","Fix":"open it again"}

`, w.Body.String())
	<-c.closed
	entry := r.entries()[len(r.entries())-1]
	assert.Equal(t, "console consoles.page.firstlight.dev/node-004 200 firstlight:ann@laptop",
		strings.Join([]string{entry.Verb, entry.Object, "200", entry.User}, " "))
	assert.EqualValues(t, 200, entry.Code)
}

// TestAConsoleEndsWithItsSession: nobody reads on who has logged out.
func TestAConsoleEndsWithItsSession(t *testing.T) {
	r := newConsoleFixture(t)
	c := newFakeConsole()
	opened, ended := make(chan struct{}), make(chan struct{})
	r.deeds.WatchConsole = func(context.Context, string) (Console, error) { close(opened); return c, nil }
	b := logInAs(t, r.Server, Operator)
	go func() { defer close(ended); b.ask("GET", testConsole+"/stream", "") }()
	<-opened // not earlier: it would end before there is a console
	r.logins.mu.Lock()
	for key := range r.logins.sessions {
		r.logins.end(key)
	}
	r.logins.mu.Unlock()
	<-ended
	<-c.closed
}

// TestConsolesAreNotForViewers, nor for whom the API server refuses, nor for other sites. Each try is in the audit log.
func TestConsolesAreNotForViewers(t *testing.T) {
	r := newConsoleFixture(t)
	tries := 0
	viewer := logIn(t, r.Server)
	assert.Equal(t, http.StatusForbidden, viewer.ask("GET", testConsole, "").Code)
	assert.Nil(t, viewer.open("/nodes/node-004").id("console"))
	assert.NotContains(t, viewer.ask("GET", "/nodes/node-004", "").Body.String(), "serial console")
	for _, try := range []struct {
		b            browser
		method, path string
		form         url.Values
		headers      []string
		code         int
	}{
		{viewer, "GET", testConsole + "/stream", nil, nil, http.StatusForbidden},
		{viewer, "POST", testConsole, typed(viewer, "x"), nil, http.StatusForbidden},
		{logInAs(t, r.Server, Owner), "POST", testConsole, url.Values{"text": {"x"}}, nil, http.StatusForbidden},
	} {
		assert.Equal(t, try.code, try.b.ask(try.method, try.path, try.form.Encode(), try.headers...).Code, try.path)
		tries++
	}
	owner := logInAs(t, r.Server, Owner)
	form := typed(owner, "x")
	assert.Equal(t, http.StatusForbidden, owner.ask("POST", testConsole, form.Encode(), "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").Code)
	assert.Equal(t, http.StatusUnauthorized, newVisitor(t, r.Server).ask("POST", testConsole, form.Encode()).Code)
	assert.Equal(t, http.StatusUnauthorized, newVisitor(t, r.Server).ask("GET", testConsole+"/stream", "").Code)

	r.api.forbids = true
	fresh := newServerWith(t, r.of, r.api.deeds())
	fresh.audit = r.audit
	operator := logInAs(t, fresh, Operator)
	assert.Equal(t, http.StatusForbidden, operator.ask("POST", testConsole, typed(operator, "x").Encode()).Code)
	assert.Contains(t, operator.ask("GET", testConsole+"/stream", "").Body.String(), "does not allow that to your role")
	tries += 2

	assert.Empty(t, r.api.takeDone(), "nothing was done")
	refused := 0
	for _, e := range r.entries() {
		if strings.HasPrefix(e.Object, "consoles.") {
			assert.NotEmpty(t, e.Reason)
			refused++
		}
	}
	assert.Equal(t, tries, refused)
}

func TestWhatIsTypedIsInNoLog(t *testing.T) {
	r := newConsoleFixture(t)
	b := logInAs(t, r.Server, Operator)
	for range 3 {
		assert.Equal(t, http.StatusNoContent, b.ask("POST", testConsole, typed(b, "a-secret\r").Encode()).Code)
	}
	assert.Equal(t, []string{`type "a-secret\r" at node-004`, `type "a-secret\r" at node-004`, `type "a-secret\r" at node-004`}, r.api.takeDone())
	entries := 0
	for _, e := range r.entries() {
		assert.NotContains(t, e.Object+e.Reason, "secret")
		if e.Verb == "type" {
			entries++
		}
	}
	assert.Equal(t, 1, entries, "once, not for each key")

	r.deeds.TypeAtConsole = func(string, []byte) error {
		return &ConsoleEnd{"the console of node-004 is not open", "open it again"}
	}
	before := len(r.entries())
	r.acts.Every, r.acts.Burst = time.Hour, 3
	for range 10 {
		b.ask("POST", testConsole, typed(b, "x").Encode())
	}
	assert.Len(t, r.entries(), before+3, "keys that are refused do not fill the log")
	w := b.ask("POST", testConsole, typed(b, "x").Encode())
	assert.Equal(t, http.StatusUnprocessableEntity, w.Code)
	assert.Equal(t, "the console of node-004 is not open; open it again\n", w.Body.String())

	r.keys.Every, r.keys.Burst = time.Hour, 1
	for b.ask("POST", testConsole, typed(b, "x").Encode()).Code != http.StatusTooManyRequests {
		require.False(t, t.Failed())
	}
}

func TestThePageSaysWhyThereIsNoConsole(t *testing.T) {
	r := newConsoleFixture(t)
	b := logInAs(t, r.Server, Operator)
	assert.NotNil(t, b.open(testConsole).id("console-text"))
	assert.Contains(t, b.ask("GET", "/nodes/node-004", "").Body.String(), `<a href="/nodes/node-004/console">serial console</a>`)
	r.of.hosts["node-004"].Spec.BMC.Address = "redfish://10.0.0.4/redfish/v1/Systems/1"
	r.of.hosts["node-004"].ResourceVersion += "1"
	r.hub.forget()
	d := b.open(testConsole)
	assert.Nil(t, d.id("console-text"))
	assert.Contains(t, d.id("console-none").text(), "spoken to by Redfish")
	assert.Equal(t, http.StatusNotFound, b.ask("GET", "/nodes/nobody/console", "").Code)

	r.deeds.WatchConsole = func(context.Context, string) (Console, error) { return nil, errors.New("no such thing") }
	assert.Contains(t, b.ask("GET", testConsole+"/stream", "").Body.String(), `event: end
data: {"Text":"no such thing","Fix":""}`)
}

// TestAConsoleThatPrintsAlwaysIsCheckedToo: what prints without a pause is read no longer than what is silent.
func TestAConsoleThatPrintsAlwaysIsCheckedToo(t *testing.T) {
	for name, take := range map[string]func(r *fixture, of *session) (says string){
		"a right": func(r *fixture, _ *session) string {
			r.api.forbids = true
			return "Not shown: " + errForbidden.Error() + "."
		},
		"an issuer's word": func(_ *fixture, of *session) string {
			of.isIssued, of.issued = true, issued{&grant{of: new(site.OIDC)}, time.Now()}
			return "your log-in has ended"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newConsoleFixture(t)
			c := newFakeConsole()
			of := &session{person: Person{"ann@laptop", Operator}, ended: make(chan struct{})}
			says := take(r, of)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for {
					select {
					case c.next <- Screen{Lines: []string{"more"}}:
					case <-ctx.Done():
						return
					}
				}
			}()
			w := httptest.NewRecorder()
			end := r.streamConsole(ctx, of, c, eventWriter{w, http.NewResponseController(w)}, time.Millisecond)
			require.NotNil(t, end)
			assert.Equal(t, says, end.Text)
		})
	}
}

func TestWhoTypesIsWrittenDownOnceInTenMinutes(t *testing.T) {
	var of typists
	began, entries := time.Now(), 0
	for minute := range 25 {
		if of.isNew("ann node-1", began.Add(time.Duration(minute)*time.Minute)) {
			entries++
		}
	}
	assert.Equal(t, 3, entries, "also of somebody who types without a pause")
	assert.True(t, of.isNew("ann node-2", began))
}
