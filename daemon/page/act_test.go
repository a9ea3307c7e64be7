package page

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/appliance/audit"
)

// fixture is a server whose actions all make sense somewhere, and what it did.
type fixture struct {
	*Server
	t      *testing.T
	of     *state
	places map[string]string
	api    *apiServer
	log    string // its audit log
}

func newFixture(t *testing.T) *fixture {
	of, places := acting()
	api := newAPIServer(t)
	api.stick, api.hosts = of.siteText, of.hosts
	s := newServerWith(t, of, api.deeds())
	log := t.TempDir() + "/page.log"
	s.audit = audit.NewLog(log, s.log)
	return &fixture{s, t, of, places, api, log}
}

// form is what a browser sends after a person has read the confirmation of an action and agreed.
func (r *fixture) form(b browser, a action) url.Values {
	d := b.open(r.question(a))
	fields := url.Values{}
	for _, input := range d.id("main").all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	if typed := r.typed(a); typed != "" {
		require.NotNil(r.t, d.id("name"), "%s asks for the name", a.name)
		fields.Set("name", typed)
	}
	return fields
}

// typed is what whoever confirms an action types; "": nothing.
func (r *fixture) typed(a action) string {
	return a.typedFor(mustPicture(r.t, r.Server), r.places[a.name])
}

// question is where an action is asked to be confirmed, with something chosen where that is to be.
func (r *fixture) question(a action) string {
	path := a.path(r.places[a.name])
	if a.choice != nil {
		path += "?" + url.Values{choiceField: {chosen[a.name]}}.Encode()
	}
	return path
}

// order is what a person has confirmed.
func (r *fixture) order(a action, role Role, about string) order {
	o := order{by: ann(role), name: r.places[a.name], about: about}
	if a.choice != nil {
		o.chosen = []string{chosen[a.name]}
	}
	q, err := r.newQuestion(r.t.Context(), mustPicture(r.t, r.Server), a, o.name, o.chosen)
	require.NoError(r.t, err)
	o.asked = q.text()
	return o
}

// look has in the picture what an action is about.
func (r *fixture) look(a action) {
	if a.read != nil {
		request := httptest.NewRequestWithContext(r.t.Context(), "GET", "/", http.NoBody)
		request.SetPathValue("name", r.places[a.name])
		a.read(r.Server, request)
	}
}

// chosen is what is chosen by the actions that have a choice.
var chosen = map[string]string{
	"erase": "D1", "update": "alpha/edge/firstlight.img", "rotate-bmc": "node-001", "rotate-cluster": "far",
}

func (r *fixture) post(b browser, a action, form url.Values, headers ...string) *httptest.ResponseRecorder {
	return b.ask("POST", a.path(r.places[a.name]), form.Encode(), headers...)
}

// entries are what the audit log has.
func (r *fixture) entries() []audit.Entry {
	all, err := audit.Read([]string{r.log}, time.Time{})
	require.NoError(r.t, err)
	return all
}

// ways are how an action is tried by someone who may do it, and yet is not to get it done.
func ways() []struct {
	name  string
	try   func(r *fixture, b browser, a action) *httptest.ResponseRecorder
	known bool // who tries it: it is in the audit log
} {
	return []struct {
		name  string
		try   func(r *fixture, b browser, a action) *httptest.ResponseRecorder
		known bool
	}{
		{"without a session", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			return r.post(newVisitor(r.t, r.Server), a, form)
		}, false},
		{"session ended", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			r.logins.now = func() time.Time { return time.Now().Add(a.needs.lifetime().idle) }
			return r.post(b, a, form)
		}, false},
		{"another site", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			return r.post(b, a, r.form(b, a), "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
		}, false},
		{"no token", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			form.Del("csrf")
			return r.post(b, a, form)
		}, true},
		{"forged token", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			form.Set("csrf", newSecret())
			return r.post(b, a, form)
		}, true},
		{"not confirmed", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			form.Del("confirm")
			return r.post(b, a, form)
		}, true},
		{"confirmed by another session", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(logInAs(r.t, r.Server, a.needs), a)
			form.Set("csrf", r.form(b, a).Get("csrf"))
			return r.post(b, a, form)
		}, true},
		{"replayed", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			r.post(b, a, form)
			require.Len(r.t, r.api.takeDone(), 1, a.name)
			return r.post(b, a, form)
		}, true},
		{"another name typed", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			if r.look(a); r.typed(a) == "" {
				return nil
			}
			form := r.form(b, a)
			form.Set("name", "node-999")
			return r.post(b, a, form)
		}, true},
		{"the API server says no", func(r *fixture, b browser, a action) *httptest.ResponseRecorder {
			form := r.form(b, a)
			r.api.forbids = true
			w := r.post(b, a, form)
			require.Equal(r.t, http.StatusSeeOther, w.Code)
			notice := parse(r.t, b.ask("GET", w.Header().Get("Location"), "").Body.Bytes()).id("notice")
			require.NotNil(r.t, notice)
			assert.Equal(r.t, "Not done: the appliance's API server does not allow that to your role.", notice.text())
			w.Code = http.StatusForbidden // as the audit log has it
			return w
		}, true},
	}
}

// TestEveryActionIsTriedByEveryRole tries each action as each role, past the page's own checks too, and in each way that
// must not work. It prints the table of docs/page.md.
func TestEveryActionIsTriedByEveryRole(t *testing.T) {
	var b strings.Builder
	b.WriteString("| action | link | viewer | operator | owner |")
	for _, way := range ways() {
		b.WriteString(" " + way.name + " |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", 4+len(ways())) + "|\n")

	for _, a := range actions() {
		fmt.Fprintf(&b, "| `%s` | %s |", a.name, a.title)
		for _, role := range Roles() {
			b.WriteString(" " + tryAs(t, a, role) + " |")
		}
		for _, way := range ways() {
			r := newFixture(t)
			w := way.try(r, logInAs(t, r.Server, a.needs), a)
			if w == nil {
				b.WriteString(" – |")
				continue
			}
			assert.GreaterOrEqual(t, w.Code, 400, "%s: %s", a.name, way.name)
			assert.Empty(t, r.api.takeDone(), "%s: %s", a.name, way.name)
			isLogged := slices.ContainsFunc(r.entries(), func(e audit.Entry) bool {
				return e.User == "firstlight:ann@laptop" && e.Verb == a.name && int(e.Code) == w.Code && e.Reason != ""
			})
			assert.Equal(t, way.known, isLogged, "%s: %s: the audit log", a.name, way.name)
			fmt.Fprintf(&b, " %d |", w.Code)
		}
		b.WriteString("\n")
	}

	goldentest.CheckPart(t, "../../docs/page.md", "actions", b.String())
}

// tryAs does an action as a role, by the page and by what is behind its checks, and says what became of it.
func tryAs(t *testing.T, a action, role Role) string {
	r := newFixture(t)
	b := logInAs(t, r.Server, role)
	name := r.places[a.name]
	r.look(a)
	about, ok := a.offered(mustPicture(t, r.Server), name)
	require.True(t, ok, a.name)

	if !role.covers(a.needs) {
		assert.Equal(t, http.StatusForbidden, b.ask("GET", a.path(name), "").Code)
		form := r.form(logInAs(t, r.Server, Owner), a)
		form.Set("csrf", b.open("/").all("input")[0].attr("value"))
		page := r.post(b, a, form)
		require.Equal(t, http.StatusForbidden, page.Code, a.name)
		require.Contains(t, page.Body.String(), "firstlightd login --role "+string(a.needs))

		_, no := r.perform(t.Context(), a, r.order(a, role, about))
		require.NotNil(t, no, "%s as %s: the API server", a.name, role)
		require.Equal(t, http.StatusForbidden, no.code)
		require.Empty(t, r.api.takeDone())
		require.Equal(t, "firstlight:ann@laptop "+role.group(), r.api.reviewed[0])

		refused := r.entries()
		require.Len(t, refused, 1)
		assert.EqualValues(t, http.StatusForbidden, refused[0].Code)
		assert.Equal(t, "firstlight:ann@laptop", refused[0].User)
		return fmt.Sprintf("page %d, API %d", page.Code, no.code)
	}

	w := r.post(b, a, r.form(b, a), "Origin", "https://10.10.110.20", "Sec-Fetch-Site", "same-origin")
	if w.Code == http.StatusSeeOther {
		shown := b.open(w.Header().Get("Location"))
		require.NotNil(t, shown.id("notice"), a.name)
		assert.Equal(t, "notice good", shown.id("notice").attr("class"), "%s: %s", a.name, shown.id("notice").text())
		assert.Nil(t, b.open(w.Header().Get("Location")).id("notice"), "it is said once")
	} else {
		require.Equal(t, http.StatusOK, w.Code)
		assert.Contains(t, w.Header().Get("Content-Disposition"), "attachment; filename=")
	}
	require.Len(t, r.api.takeDone(), 1, a.name)

	done := r.entries()
	require.Len(t, done, 1)
	assert.Equal(t, audit.Entry{
		Time: done[0].Time, User: "firstlight:ann@laptop", From: "10.10.110.66", Verb: a.name, Code: http.StatusOK,
		Object: strings.TrimSuffix(a.on.resource+"."+rightsGroup+"/"+name, "/"),
	}, done[0])
	return "done"
}

func mustPicture(t *testing.T, s *Server) *picture {
	p, err := s.hub.current()
	require.NoError(t, err)
	return p
}

// TestWhatActionsDo: the very deed, for the very thing that was confirmed.
func TestWhatActionsDo(t *testing.T) {
	want := map[string]string{
		"approve":         "approve [node-abc/52:54:00:99:00:01]",
		"approve-all":     "approve [node-abc/52:54:00:99:00:01 node-s10/10.30.0.102]",
		"adopt":           "adopt [node-000]",
		"power-on":        `firstlight:ann@laptop: node-005 {"spec":{"online":true}}`,
		"power-off":       `firstlight:ann@laptop: node-004 {"spec":{"online":false}}`,
		"reboot":          `firstlight:ann@laptop: node-004 {"metadata":{"annotations":{"reboot.metal3.io":""}}}`,
		"inspect":         `firstlight:ann@laptop: node-001 {"metadata":{"annotations":{"inspect.metal3.io":""}}}`,
		"resume":          `firstlight:ann@laptop: node-002 {"metadata":{"annotations":{"baremetalhost.metal3.io/paused":null}}}`,
		"overwrite":       `firstlight:ann@laptop: node-001 {"metadata":{"annotations":{"firstlight.dev/overwrite":"data-00000000000a"}}}`,
		"erase":           "erase [D1] of node-001",
		"replace-server":  "replace the server of node-007",
		"end-maintenance": "end maintenance of node-003",
		"trust":           "trust node-006 " + strings.Repeat("ab", 32),
		"kubeconfig":      "kubeconfig edge",
		"reload":          "reload",
		"bundle":          "bundle",
		"replace":         "replace site by ann@laptop",
		"put-tenant": "firstlight:ann@laptop: put alpha of edge, version \"7\": namespaces:\n- alpha-dev\n" +
			"- alpha-test\n",
		"update":             "update to alpha/edge/firstlight.img",
		"restart":            "restart",
		"begin-node-updates": `firstlight:ann@laptop: default/page-edge {"apiVersion":"bpa.akraino.org/v1alpha1","kind":"NodeUpdate","metadata":{"labels":{"cluster":"edge"},"name":"page-edge"},"spec":{}}`,
		"end-node-updates":   "firstlight:ann@laptop: deletes default/nightly",

		"pause-node-updates":  `firstlight:ann@laptop: default/page-far {"spec":{"paused":true}}`,
		"resume-node-updates": `firstlight:ann@laptop: default/nightly {"spec":{"paused":false}}`,

		"remove-tenant": "firstlight:ann@laptop: remove alpha a of edge",

		"rotate-authority":   "rotate authority []",
		"rotate-packages":    "rotate packages []",
		"rotate-nodes":       "rotate nodes []",
		"rotate-host-key":    "rotate host-key []",
		"rotate-kubernetes":  "rotate kubernetes []",
		"rotate-ironic":      "rotate ironic []",
		"rotate-standin-bmc": "rotate standin-bmc []",
		"rotate-bmc":         `rotate bmc ["node-001"]`,
		"rotate-cluster":     `rotate cluster ["far"]`,
	}
	for _, a := range actions() {
		r := newFixture(t)
		b := logInAs(t, r.Server, Owner)
		r.post(b, a, r.form(b, a))
		assert.Equal(t, []string{want[a.name]}, r.api.takeDone(), a.name)
	}
}

// TestActionsAreOfferedWhereTheyMakeSense: to those who may do them, and nowhere else.
func TestActionsAreOfferedWhereTheyMakeSense(t *testing.T) {
	r := newFixture(t)
	titles := func(role Role, path string) []string {
		var list []string
		if actions := logInAs(t, r.Server, role).open(path).id("actions"); actions != nil {
			list = texts(actions.all("a"))
		}
		return list
	}
	for _, c := range []struct {
		role Role
		path string
		want []string
	}{
		{Viewer, "/nodes/node-001", nil},
		{Viewer, "/appliance", nil},
		{Operator, "/nodes/52:54:00:99:00:01", []string{"Make it a node"}},
		{Operator, "/nodes/node-000", []string{"Take it into service as it is"}},
		{Operator, "/nodes/node-001", []string{"Inspect again"}},
		{Owner, "/nodes/node-001", []string{"Inspect again", "Install over its data", "Erase its disks"}},
		{Operator, "/nodes/node-002", []string{"Resume"}},
		{Operator, "/nodes/node-003", []string{"End its maintenance"}}, // nothing else: it is being installed
		{Operator, "/nodes/node-004", []string{"Switch off", "Restart"}},
		{Operator, "/nodes/node-005", []string{"Switch on"}},
		{Operator, "/nodes/node-006", nil},
		{Operator, "/nodes/node-007", nil},
		{Owner, "/nodes/node-007", []string{"Let its new server take its place"}},
		{Owner, "/nodes/node-006", []string{"Trust its BMC's new certificate"}},
		{Operator, "/appliance", []string{"Reload the site", "Download the support bundle"}},
	} {
		assert.Equal(t, c.want, titles(c.role, c.path), "%s %s", c.role, c.path)
	}

	clusters := func(role Role) string { return logInAs(t, r.Server, role).open("/clusters").id("main").text() }
	assert.Contains(t, clusters(Owner), "Download the kubeconfig of edge")
	assert.NotContains(t, clusters(Owner), "kubeconfig of lab", "it failed")
	assert.NotContains(t, clusters(Operator), "kubeconfig")
}

// TestOnlyWhatWasReadIsConfirmed: what changes between the question and the answer is asked for again.
func TestOnlyWhatWasReadIsConfirmed(t *testing.T) {
	overwrite := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == "overwrite" })]
	r := newFixture(t)
	b := logInAs(t, r.Server, Owner)
	form := r.form(b, overwrite)
	r.of.losable["node-001"] = "data-00000000000b"
	r.hub.forget()
	w := r.post(b, overwrite, form)
	assert.Equal(t, http.StatusConflict, w.Code)
	again := parse(t, w.Body.Bytes())
	assert.Equal(t, "It is about something else now. Read it again.", again.id("error").text())
	assert.Contains(t, again.id("main").text(), "data-00000000000b")

	form = r.form(b, overwrite)
	delete(r.of.losable, "node-001")
	r.hub.forget()
	w = r.post(b, overwrite, form)
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Equal(t, notOffered, b.open(w.Header().Get("Location")).id("notice").text())
	assert.Empty(t, r.api.takeDone())
	assert.Len(t, r.entries(), 2)
}

// TestFailuresAreToldInOneSentence: that of the deed, of an API server that does not answer, of a bundle under way.
func TestFailuresAreToldInOneSentence(t *testing.T) {
	say := func(change func(*fixture), name string) string {
		r := newFixture(t)
		change(r)
		a := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == name })]
		b := logInAs(t, r.Server, Owner)
		w := r.post(b, a, r.form(b, a))
		require.Equal(t, http.StatusSeeOther, w.Code)
		notice := b.open(w.Header().Get("Location")).id("notice")
		assert.Equal(t, "notice bad", notice.attr("class"))
		require.Len(t, r.entries(), 1)
		assert.Equal(t, notice.text(), strings.Join(strings.Fields(r.entries()[0].Reason), " "))
		return notice.text()
	}
	assert.Equal(t, "Not done: site.yaml:3: unknown key", say(func(r *fixture) {
		r.deeds.Reload = func() error { return errors.New("site.yaml:3: unknown key") }
	}, "reload"))
	const silent = "Not done: the appliance's API server does not answer, so nobody's rights are known; " +
		"firstlightd status on the appliance says why."
	assert.Equal(t, silent, say(func(r *fixture) { r.api.Close() }, "power-off"))
	assert.Equal(t, silent, say(func(r *fixture) {
		r.deeds.API = func() (*rest.Config, error) { return nil, os.ErrNotExist }
	}, "reload"))
	assert.Contains(t, say(func(r *fixture) { r.bundles <- struct{}{} }, "bundle"), "another support bundle is being collected")
}

// TestAFileThatBreaksOffIsNotTakenForAWholeOne: its connection ends, and the next bundle is not kept back.
func TestAFileThatBreaksOffIsNotTakenForAWholeOne(t *testing.T) {
	bundle := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == "bundle" })]
	r := newFixture(t)
	collect := r.deeds.Bundle
	r.deeds.Bundle = nil // it panics, too
	b := logInAs(t, r.Server, Operator)
	form := r.form(b, bundle)
	assert.Panics(t, func() { r.post(b, bundle, form) })
	r.deeds.Bundle = collect
	w := r.post(b, bundle, r.form(b, bundle))
	assert.Equal(t, "archive", w.Body.String())
	assert.Regexp(t, `^attachment; filename=firstlight-\d{8}T\d{6}Z\.tar\.gz$`, w.Header().Get("Content-Disposition"))
}

func TestActionsAreFew(t *testing.T) {
	r := newFixture(t)
	b := logInAs(t, r.Server, Operator)
	reload := actions()[slices.IndexFunc(actions(), func(a action) bool { return a.name == "reload" })]
	r.acts.Every = time.Hour // however long the test takes
	refused := 0
	for range 30 {
		if w := r.post(b, reload, r.form(b, reload)); w.Code == http.StatusTooManyRequests {
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
			refused++
		}
	}
	assert.Equal(t, 30-r.acts.Burst, refused)
	assert.Len(t, r.api.takeDone(), 30-refused)
	assert.Len(t, r.entries(), 30-refused, "what is too much does not fill the log")
}
