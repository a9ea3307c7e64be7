package page

import (
	"bytes"
	"crypto"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/audit"
)

// newIssuedServer is a server whose site names an issuer.
func newIssuedServer(t *testing.T) (*Server, *testIssuer, *state) {
	i, of := newTestIssuer(t), rack(1)
	s := *of.site
	s.Appliance.OIDC = i.site()
	of.site = &s
	api := newAPIServer(t)
	api.trusts = i.site()
	return newServerWith(t, of, Deeds{API: api.deeds().API}), i, of
}

// walk logs a user in as a browser does, and returns the answer of the page. change is made to what the issuer sends the
// browser back with.
func (i *testIssuer) walk(b browser, user string, change func(back url.Values)) *httptest.ResponseRecorder {
	begun := b.ask("GET", issuerPath, "")
	require.Equal(i.t, http.StatusSeeOther, begun.Code, begun.Body)
	attempt := cookieOf(i.t, begun.Header(), attemptCookie)
	assert.True(i.t, attempt.Secure && attempt.HttpOnly && attempt.SameSite == http.SameSiteLaxMode && attempt.Path == "/")
	to, err := url.Parse(begun.Header().Get("Location"))
	require.NoError(i.t, err)
	require.Equal(i.t, "https://10.10.110.20"+returnPath, to.Query().Get("redirect_uri"))
	assert.NotContains(i.t, to.String(), attempt.Value, "the secret stays in the browser")

	answer := httptest.NewRecorder()
	r := httptest.NewRequest("POST", to.String(), strings.NewReader(url.Values{"user": {user}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	i.serveAnswer(answer, r)
	back, err := url.Parse(answer.Header().Get("Location"))
	require.NoError(i.t, err)
	query := back.Query()
	if change != nil {
		change(query)
	}
	return b.ask("GET", back.Path+"?"+query.Encode(), "", "Cookie", attemptCookie+"="+attempt.Value,
		"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
}

func TestThePageLogsInByTheIssuer(t *testing.T) {
	s, i, _ := newIssuedServer(t)
	visitor := newVisitor(t, s)
	login := visitor.open("/login")
	assert.Contains(t, login.id("main").text(), "Log in with localhost")
	assert.NotEmpty(t, login.id("code"), "a code needs no issuer")

	for user, shown := range map[string]string{"vic": "viewer oidc:vic@example.com", "ann": "operator oidc:ann@example.com"} {
		w := i.walk(visitor, user, nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		assert.Contains(t, w.Body.String(), `content="0; url=/"`)
		c := cookieOf(t, w.Header(), cookie)
		assert.True(t, c.Secure && c.HttpOnly && c.SameSite == http.SameSiteStrictMode)
		b := browser{t, s, c.Value}
		assert.Equal(t, shown, b.open("/").with("role")[0].text())

		// It is a session like another one: what its role may not, it may not.
		answer := b.ask("GET", "/nodes/node-000/power-off", "").Code
		assert.Equal(t, user == "ann", answer != http.StatusForbidden, "%s: %d", user, answer)
	}
}

func TestWhoeverTheIssuerDoesNotVouchForIsNobody(t *testing.T) {
	other := newKey(t)
	for name, c := range map[string]struct {
		user  string
		forge func(claims map[string]any) crypto.PrivateKey
		back  func(url.Values)
		code  int
		says  string
	}{
		"without a role":    {user: "eve", code: 403, says: "none of your groups has a role"},
		"another client":    {user: "ann", code: 403, says: "is not one for this log-in", forge: func(c map[string]any) crypto.PrivateKey { c["aud"] = "other"; return nil }},
		"another issuer":    {user: "ann", code: 403, says: "is not one for this log-in", forge: func(c map[string]any) crypto.PrivateKey { c["iss"] = "https://other"; return nil }},
		"expired":           {user: "ann", code: 403, says: "is not one for this log-in", forge: func(c map[string]any) crypto.PrivateKey { c["exp"] = time.Now().Unix() - 1; return nil }},
		"another nonce":     {user: "ann", code: 403, says: "is not one for this log-in", forge: func(c map[string]any) crypto.PrivateKey { c["nonce"] = "other"; return nil }},
		"another key":       {user: "ann", code: 403, says: "is not one for this log-in", forge: func(map[string]any) crypto.PrivateKey { return other }},
		"another state":     {user: "ann", code: 403, says: "was begun by another browser", back: func(q url.Values) { q.Set("state", newSecret()) }},
		"of another one":    {user: "ann", code: 403, says: "or at another issuer", back: func(q url.Values) { q.Set("iss", "https://other.example") }},
		"no state":          {user: "ann", code: 403, says: "was begun by another browser", back: func(q url.Values) { q.Del("state") }},
		"another code":      {user: "ann", code: 403, says: "it refuses the log-in: invalid_grant", back: func(q url.Values) { q.Set("code", newSecret()) }},
		"no code":           {user: "ann", code: 403, says: "it refuses the log-in: invalid_grant", back: func(q url.Values) { q.Del("code") }},
		"refused there":     {user: "ann", code: 403, says: "it refuses the log-in: access_denied.", back: func(q url.Values) { q.Set("error", "access_denied") }},
		"words of somebody": {user: "ann", code: 403, says: "it refuses the log-in: error.", back: func(q url.Values) { q.Set("error", "Call 555-0100 now") }},
	} {
		t.Run(name, func(t *testing.T) {
			s, i, _ := newIssuedServer(t)
			i.forge = c.forge
			w := i.walk(newVisitor(t, s), c.user, c.back)
			assert.Equal(t, c.code, w.Code)
			assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), c.says)
			assert.NotContains(t, strings.Join(w.Header()["Set-Cookie"], "\n"), cookie+"=")
			assert.NotContains(t, w.Body.String(), clientSecret, "what the issuer writes is not passed on")
			assert.Empty(t, s.logins.sessions)
		})
	}

	t.Run("twice with one code", func(t *testing.T) {
		s, i, _ := newIssuedServer(t)
		var first url.Values
		require.Equal(t, http.StatusOK, i.walk(newVisitor(t, s), "ann", func(q url.Values) { first = q }).Code)
		w := i.walk(newVisitor(t, s), "vic", func(q url.Values) { q.Set("code", first.Get("code")) })
		assert.Equal(t, http.StatusForbidden, w.Code)
	})
	t.Run("a code of another browser's log-in", func(t *testing.T) { // PKCE: the code is of no use to whoever steals it
		s, i, _ := newIssuedServer(t)
		code := ""
		i.walk(newVisitor(t, s), "ann", func(q url.Values) { code = q.Get("code"); q.Set("state", "") })
		w := i.walk(newVisitor(t, s), "vic", func(q url.Values) { q.Set("code", code) })
		assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), "invalid_grant")
	})
}

// TestALogInEndsAtTheIssuerWhereItBegan: an issuer that the site names in between would be told the code and the verifier
// of the one before.
func TestALogInEndsAtTheIssuerWhereItBegan(t *testing.T) {
	s, first, of := newIssuedServer(t)
	second := newTestIssuer(t)
	other := first.site()
	other.ClientID = "another-client"
	for _, o := range []*site.OIDC{second.site(), other} {
		w := first.walk(newVisitor(t, s), "ann", func(url.Values) {
			edited := *of.site
			edited.Appliance.OIDC = o
			of.site = &edited
		})
		assert.Equal(t, http.StatusForbidden, w.Code)
		assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), "or at another issuer")
		assert.Zero(t, first.refused+second.refused, "nobody was told the code")
		edited := *of.site
		edited.Appliance.OIDC = first.site()
		of.site = &edited
	}
}

// TestALogInHasTheRoleOfTheSiteAsItIsNow: the API server follows the site's issuer later than the page does.
func TestALogInHasTheRoleOfTheSiteAsItIsNow(t *testing.T) {
	logIn := func(user string, change func(o *site.OIDC)) (role string) {
		s, i, of := newIssuedServer(t)
		edited := *of.site
		edited.Appliance.OIDC = i.site()
		change(edited.Appliance.OIDC)
		of.site = &edited
		w := i.walk(newVisitor(t, s), user, nil)
		if w.Code != http.StatusOK {
			assert.Contains(t, parse(t, w.Body.Bytes()).id("error").text(), "none of your groups has a role")
			return ""
		}
		return browser{t, s, cookieOf(t, w.Header(), cookie).Value}.open("/").with("role")[0].text()
	}
	assert.Equal(t, "viewer oidc:ann@example.com", logIn("ann", func(o *site.OIDC) { o.Roles.Operator = nil }))
	assert.Equal(t, "owner oidc:vic@example.com", logIn("vic", func(o *site.OIDC) { o.Roles.Owner = []string{"everybody"} }))
	assert.Empty(t, logIn("vic", func(o *site.OIDC) { o.Roles.Viewer = nil }))
	assert.Empty(t, logIn("ann", func(o *site.OIDC) { o.CA += o.CA }), "of the issuer as it was before")
}

func TestAnIssuerThatIsAwayLocksNobodyOut(t *testing.T) {
	s, i, of := newIssuedServer(t)
	i.Server.Close()
	w := newVisitor(t, s).ask("GET", issuerPath, "")
	assert.Equal(t, http.StatusBadGateway, w.Code)
	d := parse(t, w.Body.Bytes())
	assert.Contains(t, d.id("error").text(), "it does not answer")
	assert.Contains(t, d.id("error").text(), "firstlightd login")

	login, err := s.Login("viewer", "ann@laptop")
	require.NoError(t, err)
	code, header, _ := send(t, s, login.Code)
	require.Equal(t, http.StatusSeeOther, code, "a code opens a session")
	b := browser{t, s, cookieOf(t, header, cookie).Value}
	b.open("/")

	of.site = new(site.Site)
	w = newVisitor(t, s).ask("GET", issuerPath, "")
	assert.Equal(t, "/login", w.Header().Get("Location"), "the site names none")
	assert.NotContains(t, newVisitor(t, s).open("/login").id("main").text(), "Log in with localhost")
	b.open("/")
}

func TestASessionEndsWithTheIssuersWord(t *testing.T) {
	logIn := func(t *testing.T, renews bool) (*Server, *testIssuer, *state, browser, *time.Time) {
		s, i, of := newIssuedServer(t)
		now := time.Now()
		s.logins.now = func() time.Time { return now }
		i.renews, i.lasts = renews, 10*time.Minute
		w := i.walk(newVisitor(t, s), "ann", nil)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return s, i, of, browser{t, s, cookieOf(t, w.Header(), cookie).Value}, &now
	}
	isIn := func(b browser) bool { return b.ask("GET", "/", "").Code == http.StatusOK }

	t.Run("without renewal", func(t *testing.T) {
		_, _, _, b, now := logIn(t, false)
		*now = now.Add(9 * time.Minute)
		assert.True(t, isIn(b))
		*now = now.Add(2 * time.Minute)
		assert.False(t, isIn(b))
	})
	t.Run("renewed", func(t *testing.T) {
		s, i, _, b, now := logIn(t, true)
		for range 5 {
			*now = now.Add(11 * time.Minute)
			assert.True(t, isIn(b))
		}
		i.people["ann"]["groups"] = []string{"everybody"}
		*now = now.Add(11 * time.Minute)
		assert.False(t, isIn(b), "the role is another one: log in again")
		assert.Empty(t, s.logins.sessions)
	})
	t.Run("the role's time is the most", func(t *testing.T) {
		_, _, _, b, now := logIn(t, true)
		for range 23 {
			*now = now.Add(10 * time.Minute)
			require.True(t, isIn(b))
		}
		*now = now.Add(10 * time.Minute)
		assert.False(t, isIn(b), "four hours for an operator")
	})
	t.Run("refused", func(t *testing.T) {
		_, i, _, b, now := logIn(t, true)
		clear(i.users)
		*now = now.Add(11 * time.Minute)
		assert.False(t, isIn(b))
	})
	t.Run("another person", func(t *testing.T) {
		_, i, _, b, now := logIn(t, true)
		for token := range i.users {
			i.users[token] = "vic"
		}
		*now = now.Add(11 * time.Minute)
		assert.False(t, isIn(b))
	})
	t.Run("the issuer is away", func(t *testing.T) {
		_, i, _, b, now := logIn(t, true)
		i.Server.CloseClientConnections()
		i.Server.Close()
		*now = now.Add(9*time.Minute + 45*time.Second)
		assert.True(t, isIn(b), "its word is still good")
		*now = now.Add(30 * time.Second)
		assert.False(t, isIn(b))
	})
	t.Run("the site names another client", func(t *testing.T) {
		_, i, of, b, _ := logIn(t, true)
		edited := *of.site
		edited.Appliance.OIDC = i.site()
		of.site = &edited
		assert.True(t, isIn(b), "read again, and the same")
		edited.Appliance.OIDC.Roles.Operator = nil
		assert.False(t, isIn(b))
	})
	t.Run("logged out", func(t *testing.T) {
		s, _, _, b, _ := logIn(t, true)
		s.logins.close(b.cookie)
		assert.False(t, isIn(b))
	})
}

// TestAnIssuerThatHangsHoldsOneRequest: while it is asked, others continue as long as its word is good, and then share
// the one answer.
func TestAnIssuerThatHangsHoldsOneRequest(t *testing.T) {
	s, i, _ := newIssuedServer(t)
	var passed atomic.Int64
	began := time.Now()
	s.logins.now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	i.renews, i.lasts = true, time.Hour
	w := i.walk(newVisitor(t, s), "ann", nil)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	b := browser{t, s, cookieOf(t, w.Header(), cookie).Value}
	s.logins.mu.Lock()
	for _, of := range s.logins.sessions {
		of.issued.until = began.Add(renewBefore)
	}
	s.logins.mu.Unlock()

	var asked atomic.Int32
	hangs, release := make(chan struct{}, 1), make(chan struct{})
	i.mu.Lock()
	i.forge = func(claims map[string]any) crypto.PrivateKey {
		asked.Add(1)
		hangs <- struct{}{}
		<-release
		claims["sub"] = "somebody else"
		return nil
	}
	i.mu.Unlock()
	ask := func(to chan<- int) { to <- b.ask("GET", "/", "").Code }
	first, rest := make(chan int, 1), make(chan int, 8)
	go ask(first)
	<-hangs
	assert.Equal(t, http.StatusOK, b.ask("GET", "/", "").Code, "its word is still good")

	passed.Store(int64(time.Minute))
	for range cap(rest) {
		go ask(rest)
	}
	close(release)
	assert.NotEqual(t, http.StatusOK, <-first)
	for range cap(rest) {
		assert.NotEqual(t, http.StatusOK, <-rest)
	}
	assert.EqualValues(t, 1, asked.Load(), "one question, not one for each request")
}

func TestTheLogOfALogInNamesThePersonAndNoToken(t *testing.T) {
	s, i, _ := newIssuedServer(t)
	log, code := t.TempDir()+"/page.log", ""
	s.audit = audit.NewLog(log, s.log)
	w := i.walk(newVisitor(t, s), "ann", func(q url.Values) { code = q.Get("code") })
	require.Equal(t, http.StatusOK, w.Code)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Contains(t, string(text), "firstlight:oidc:ann@example.com")
	assert.Contains(t, string(text), `"verb":"login"`)
	assert.NotContains(t, string(text), code)
}

func TestLogInsByTheIssuerAreBounded(t *testing.T) {
	s, i, _ := newIssuedServer(t)
	s.tries.Every = time.Hour // however long the tries take here
	var codes []int
	for range 10 {
		codes = append(codes, newVisitor(t, s).ask("GET", issuerPath, "").Code)
	}
	assert.Contains(t, codes, http.StatusTooManyRequests)
	for range maxIssuerCalls {
		s.issuers.calls <- struct{}{}
	}
	_, err := s.issuers.begin(t.Context(), "https://x", attempt{newSecret(), i.site()})
	assert.ErrorIs(t, err, errIssuerSilent)
}

// TestTheLogHasLittleOfWhatAnIssuerAnswers: whoever asks for the log-in may do that often, and a page is long.
func TestTheLogHasLittleOfWhatAnIssuerAnswers(t *testing.T) {
	s, i, _ := newIssuedServer(t)
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	i.Server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Repeat("busy ", 20_000))
	})
	w := newVisitor(t, s).ask("GET", issuerPath, "")
	assert.Equal(t, http.StatusBadGateway, w.Code)
	assert.Contains(t, log.String(), "503 Service Unavailable: busy busy")
	assert.Less(t, log.Len(), 2*maxLogText)
	assert.NotContains(t, w.Body.String(), "busy")
}

// TestOnePersonOfTheIssuerEndsNobodyElsesSession: who logs in over and over ends the own log-ins.
func TestOnePersonOfTheIssuerEndsNobodyElsesSession(t *testing.T) {
	l := newLogins(time.Now)
	code, _ := l.mint(Person{"ann@laptop", Owner})
	other, _, ok := l.open(code)
	require.True(t, ok)
	open := func() string {
		return l.openIssued(&grant{person: Person{"oidc:vic", Viewer}, expires: time.Now().Add(time.Hour)})
	}
	first := open()
	for range maxSessions {
		open()
	}
	assert.NotNil(t, l.find(other, true))
	assert.Nil(t, l.find(first, true))
	assert.Len(t, l.sessions, 1+maxOwnSessions)
}
