package page

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newVisitor is a browser that is not logged in.
func newVisitor(t *testing.T, s *Server) browser { return browser{t, s, ""} }

// cookieOf is a cookie that an answer sets.
func cookieOf(t *testing.T, header http.Header, name string) *http.Cookie {
	for _, c := range (&http.Response{Header: header}).Cookies() {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no cookie "+name)
	return nil
}

// send fills in the log-in form as a browser does, and returns the answer.
func send(t *testing.T, s *Server, code string) (answer int, header http.Header, page document) {
	b := newVisitor(t, s)
	form := b.ask("GET", "/login?code="+url.QueryEscape(code), "")
	require.Equal(t, http.StatusOK, form.Code)
	d := parse(t, form.Body.Bytes())
	fields := url.Values{}
	for _, input := range d.all("input") {
		fields.Set(input.attr("name"), input.attr("value"))
	}
	require.Equal(t, code, fields.Get("code"), "the link fills it in")
	w := b.ask("POST", "/login", fields.Encode(), "Cookie", formCookie+"="+cookieOf(t, form.Header(), formCookie).Value,
		"Origin", "https://10.10.110.20", "Sec-Fetch-Site", "same-origin")
	return w.Code, w.Header(), parse(t, w.Body.Bytes())
}

func TestACodeOpensOneSession(t *testing.T) {
	s := newServer(t, rack(1))
	login, err := s.Login("viewer", "ann@laptop")
	require.NoError(t, err)
	assert.Equal(t, []string{"https://10.10.110.20/"}, login.URLs)
	assert.Regexp(t, `^[a-z2-7]{4}(-[a-z2-7]{4}){3}$`, login.Code)
	assert.Regexp(t, `^[0-9A-F]{2}(:[0-9A-F]{2}){31}$`, login.Fingerprint)
	assert.Equal(t, "https://10.10.110.20/login?code="+login.Code, LoginURL(login.URLs[0], login.Code))

	code, header, _ := send(t, s, strings.ToUpper(strings.ReplaceAll(login.Code, "-", " ")))
	require.Equal(t, http.StatusSeeOther, code, "however it is typed")
	c := cookieOf(t, header, cookie)
	assert.True(t, c.Secure && c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "")
	assert.Equal(t, http.StatusOK, browser{t, s, c.Value}.ask("GET", "/", "").Code)

	code, header, page := send(t, s, login.Code)
	assert.Equal(t, http.StatusUnauthorized, code, "it was used")
	assert.Contains(t, page.id("error").text(), "Run firstlightd login again")
	assert.NotContains(t, fmt.Sprint(header["Set-Cookie"]), cookie+"=")
}

func TestACodeIsForSomebodyWithARole(t *testing.T) {
	s := newServer(t, ready())
	login, err := s.Login("owner", "ann@laptop")
	require.NoError(t, err)
	assert.Equal(t, []string{"owner", "ann@laptop"}, []string{login.Role, login.User})
	_, header, _ := send(t, s, login.Code)
	b := browser{t, s, cookieOf(t, header, cookie).Value}
	assert.Equal(t, "owner ann@laptop", b.open("/").with("role")[0].text())
	assert.Equal(t, 3600, cookieOf(t, header, cookie).MaxAge)

	for _, c := range []struct{ role, user, says string }{
		{"root", "ann@laptop", "use viewer, operator or owner"},
		{"", "ann@laptop", "is unknown"},
		{"owner", "ann", "is not USER@HOST"},
		{"owner", "system:masters", "is not USER@HOST"},
		{"owner", "", "is not USER@HOST"},
	} {
		_, err := s.Login(c.role, c.user)
		assert.ErrorContains(t, err, c.says)
	}
}

// TestARoleIsTakenByAnotherCode: whoever is a viewer gets another role by a link, and the session of before ends.
func TestARoleIsTakenByAnotherCode(t *testing.T) {
	s := newServer(t, ready())
	b := logIn(t, s)
	code, _ := s.logins.mint(ann(Operator))
	form := b.ask("GET", "/login?code="+code, "")
	require.Equal(t, http.StatusOK, form.Code, "the link is not ignored")
	token := cookieOf(t, form.Header(), formCookie).Value
	w := b.ask("POST", "/login", url.Values{"code": {code}, "csrf": {token}}.Encode(),
		"Cookie", formCookie+"="+token+"; "+cookie+"="+b.cookie)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	now := browser{t, s, cookieOf(t, w.Header(), cookie).Value}
	assert.Equal(t, "operator ann@laptop", now.open("/").with("role")[0].text())
	assert.Equal(t, http.StatusSeeOther, b.ask("GET", "/", "").Code, "the viewer's session")
}

func TestACodeNeedsAnAddress(t *testing.T) {
	of := ready()
	of.doc.Addresses = of.doc.Addresses[:1]
	_, err := newServer(t, of).Login("viewer", "ann@laptop")
	assert.ErrorContains(t, err, "bmc: {allow: [page]}")
}

func TestWhatOpensThePageEnds(t *testing.T) {
	now := time.Now()
	s := newServer(t, rack(1))
	s.logins.now = func() time.Time { return now }

	code, _ := s.logins.mint(ann(Viewer))
	now = now.Add(codeTTL)
	answer, _, _ := send(t, s, code)
	assert.Equal(t, http.StatusUnauthorized, answer, "a code that has ended")

	for _, role := range Roles() {
		good := role.lifetime()
		idle := logInAs(t, s, role)
		now = now.Add(good.idle - time.Second)
		require.Equal(t, http.StatusOK, idle.ask("GET", "/", "").Code)
		now = now.Add(good.idle)
		w := idle.ask("GET", "/", "")
		assert.Equal(t, http.StatusSeeOther, w.Code, "a session that nobody used")
		assert.Equal(t, "/login", w.Header().Get("Location"))
		assert.Equal(t, http.StatusUnauthorized, idle.ask("GET", "/?part=main", "").Code, "what the script is told")

		used := logInAs(t, s, role)
		for end := now.Add(good.total); now.Before(end); now = now.Add(good.idle / 2) {
			require.Equal(t, http.StatusOK, used.ask("GET", "/", "").Code)
		}
		assert.Equal(t, http.StatusSeeOther, used.ask("GET", "/", "").Code, "a session that was used all the time")

		left := logInAs(t, s, role)
		for range 3 {
			now = now.Add(good.idle / 2)
			left.ask("GET", "/?part=main", "")
		}
		isOpen := left.ask("GET", "/", "").Code == http.StatusOK
		assert.Equal(t, role == Viewer, isOpen, "%s: a page that was left open", role)
	}
}

func TestCodesAndSessionsAreBounded(t *testing.T) {
	s := newServer(t, rack(1))
	first, _ := s.logins.mint(ann(Viewer))
	for range maxCodes {
		s.logins.mint(ann(Viewer))
	}
	_, _, ok := s.logins.open(first)
	assert.False(t, ok, "the oldest code")
	sessions := []browser{}
	for range maxSessions + 1 {
		sessions = append(sessions, logIn(t, s))
	}
	assert.Equal(t, http.StatusSeeOther, sessions[0].ask("GET", "/", "").Code, "the oldest session")
	assert.Equal(t, http.StatusOK, sessions[1].ask("GET", "/", "").Code)
	assert.Len(t, s.logins.sessions, maxSessions)
}

func TestNothingIsShownWithoutASession(t *testing.T) {
	s := newServer(t, rack(10))
	code, _ := s.logins.mint(ann(Viewer))
	for _, forged := range []string{"", code, newSecret(), "..", strings.Repeat("x", 4096)} {
		b := browser{t, s, forged}
		for _, to := range routes() {
			if to.needs == Nobody {
				continue
			}
			path := strings.NewReplacer("{$}", "", "{name}", "node-001").Replace(to.pattern)
			w := b.ask(to.method, path, "")
			assert.Contains(t, []int{http.StatusSeeOther, http.StatusUnauthorized}, w.Code, "%s %s", to.method, path)
			assert.NotContains(t, w.Body.String(), "node-001")
		}
	}
	login := newVisitor(t, s).ask("GET", "/login", "").Body.String()
	assert.NotContains(t, login, "firstlight-ab12", "the log-in names nothing of the site")
	assert.NotContains(t, login, s.sources.Document().Version)
}

func TestTriesAreFew(t *testing.T) {
	s := newServer(t, rack(1))
	s.tries.Every = time.Hour // however long the test takes
	right, _ := s.logins.mint(ann(Viewer))
	refused := 0
	for range 20 {
		if code, header, _ := send(t, s, "aaaa-aaaa-aaaa-aaaa"); code == http.StatusTooManyRequests {
			assert.NotEmpty(t, header.Get("Retry-After"))
			refused++
		}
	}
	assert.Equal(t, 20-s.tries.Burst, refused)
	code, _, _ := send(t, s, right)
	assert.Equal(t, http.StatusTooManyRequests, code, "the right one waits, too, from that address")
}

func TestFormsAreOfTheSession(t *testing.T) {
	s := newServer(t, rack(1))
	b, other := logIn(t, s), logIn(t, s)
	csrf := func(b browser) string { return b.open("/").all("input")[0].attr("value") }
	for name, form := range map[string]string{
		"none":                 "a=b",
		"made up":              "csrf=" + newSecret(),
		"of another session":   "csrf=" + csrf(other),
		"the session's secret": "csrf=" + b.cookie,
	} {
		assert.Equal(t, http.StatusForbidden, b.ask("POST", "/logout", form).Code, name)
	}
	assert.Equal(t, http.StatusForbidden, b.ask("POST", "/logout?csrf="+csrf(b), "a=b").Code, "in the address")
	code, _ := s.logins.mint(ann(Viewer))
	assert.Equal(t, http.StatusForbidden, newVisitor(t, s).ask("POST", "/login", "code="+code).Code, "without the form's cookie")

	require.Equal(t, http.StatusSeeOther, b.ask("POST", "/logout", "csrf="+csrf(b)).Code)
	assert.Equal(t, http.StatusSeeOther, b.ask("GET", "/", "").Code, "the session has ended on the server")
	assert.Equal(t, http.StatusOK, other.ask("GET", "/", "").Code)
}

func TestOtherSitesAreRefused(t *testing.T) {
	s := newServer(t, rack(1))
	b := logIn(t, s)
	csrf := b.open("/").all("input")[0].attr("value")
	for _, c := range []struct {
		name, method, path string
		headers            []string
		want               int
	}{
		{"a form of another site", "POST", "/logout", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site",
			"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, http.StatusForbidden},
		{"the same, of a browser without Fetch Metadata", "POST", "/logout",
			[]string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{"a frame without an origin", "POST", "/logout", []string{"Origin", "null"}, http.StatusForbidden},
		{"another port of the appliance", "POST", "/logout",
			[]string{"Origin", "https://10.10.110.20:9015", "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"a script", "GET", "/?part=main", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"a picture", "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, http.StatusForbidden},
		{"a frame", "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "iframe"}, http.StatusForbidden},
		{"a stream", "GET", "/events", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"a link", "GET", "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "document"}, http.StatusOK},
		{"the page itself", "POST", "/logout", []string{"Origin", "https://10.10.110.20", "Sec-Fetch-Site", "same-origin"},
			http.StatusSeeOther},
	} {
		form := ""
		if c.method == "POST" {
			form = "csrf=" + csrf
		}
		// A stream that is not refused has no end: it is not reached where one of those before it was answered.
		require.Equal(t, c.want, b.ask(c.method, c.path, form, c.headers...).Code, c.name)
	}
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	s := newServer(t, rack(1))
	for _, b := range []browser{newVisitor(t, s), logIn(t, s)} {
		for _, path := range []string{"/", "/login", "/nodes/nobody", "/assets/none", "/?part=main"} {
			h := b.ask("GET", path, "").Header()
			policy := h.Get("Content-Security-Policy")
			assert.Contains(t, policy, "default-src 'none'", path)
			assert.Contains(t, policy, "frame-ancestors 'none'", path)
			assert.NotContains(t, policy, "unsafe", path)
			assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
			assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), path)
			assert.Equal(t, "no-store", h.Get("Cache-Control"), path)
		}
	}
	for name := range assets() {
		assert.Contains(t, newVisitor(t, s).ask("GET", "/assets/"+name, "").Header().Get("Cache-Control"), "immutable")
	}
}

// TestNoOtherRequestChangesAnything sends every method to every page: what acts is an action of the list, or the
// session's own end.
func TestNoOtherRequestChangesAnything(t *testing.T) {
	for _, to := range routes() {
		if to.method != "GET" && to.action == nil && !isUpload(to.pattern) && !isConsole(to.method, to.pattern) {
			assert.Contains(t, []string{"/login", "/logout", editPath, tenantEditPath}, to.pattern, "what acts is an action")
		}
		if to.action != nil {
			assert.NotEqual(t, Viewer, to.needs, "what acts needs a role above viewer")
			assert.Equal(t, to.action.needs, to.needs)
		}
	}
	s := newServer(t, rack(10))
	b := logInAs(t, s, Owner)
	csrf := b.open("/").all("input")[0].attr("value")
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"} {
		for _, path := range []string{
			"/", "/events", "/clusters", "/nodes/node-001", "/nodes/node-001/power", "/v1/reload", "/v1/adopt", "/v1/login",
		} {
			assert.Equal(t, http.StatusMethodNotAllowed, b.ask(method, path, "csrf="+csrf).Code, "%s %s", method, path)
		}
	}
	for _, path := range []string{"/v1/status", "/metrics", "/debug/pprof/", "/../../etc/passwd", "/assets/../page.go"} {
		w := b.ask("GET", path, "")
		assert.Contains(t, []int{http.StatusNotFound, http.StatusTemporaryRedirect, http.StatusMovedPermanently}, w.Code, path)
	}
}
