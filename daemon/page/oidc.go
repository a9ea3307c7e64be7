package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// Where a log-in by the site's issuer begins, and where the issuer sends browsers back to. The latter is what people
// allow at the issuer, for each address of the page.
const (
	issuerPath = "/login/oidc"
	returnPath = "/login/oidc/callback"
)

// attemptCookie holds the secret of a log-in that is under way at the issuer. It is Lax and not Strict: the issuer's
// answer is a link of another site.
const attemptCookie = "__Host-firstlight-oidc"

// renewBefore is how long before its end an issuer's word is renewed, if it can be.
const renewBefore = 30 * time.Second

// issued is the issuer's word by which a session is open.
type issued struct {
	grant *grant
	until time.Time // by the clock of logins
}

// newIssued is an issuer's word. Its end is told by the wall clock, and waited for by one that nobody sets.
func newIssued(g *grant, now time.Time) issued {
	return issued{grant: g, until: now.Add(time.Until(g.expires))}
}

// hasEnded reports whether the word has ended and cannot be renewed.
func (i issued) hasEnded(now time.Time) bool {
	return i.grant != nil && i.grant.refresh == "" && !now.Before(i.until)
}

// issuer is that of the site; nil if it names none.
func (s *Server) issuer() *site.OIDC { return issuerOf(s.sources.Site()) }

// issuerOf is that of a site, which may be nil.
func issuerOf(of *site.Site) *site.OIDC {
	if of == nil {
		return nil
	}
	return of.Appliance.OIDC
}

// issuerName is what people know the issuer by: its host.
func (s *Server) issuerName() string {
	o := s.issuer()
	if o == nil {
		return ""
	}
	u, err := url.Parse(string(o.Issuer))
	if err != nil {
		return ""
	}
	return u.Host
}

// serveIssuer sends a browser to the issuer. A session that it had ends, as with every log-in.
func (s *Server) serveIssuer(w http.ResponseWriter, r *http.Request, _ *session) {
	o := s.issuer()
	if o == nil {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	if !s.tries.Allow(r) {
		s.log.Warn("too many log-ins", "from", r.RemoteAddr)
		w.Header().Set("Retry-After", "10")
		s.showLogin(w, r, http.StatusTooManyRequests, tooManyLogins)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), issuerTimeout)
	defer cancel()
	a := attempt{newSecret(), o}
	to, err := s.issuers.begin(ctx, returnURL(r), a)
	if err != nil {
		s.refuseIssued(w, r, o, err)
		return
	}

	if before, err := r.Cookie(cookie); err == nil {
		s.logins.close(before.Value)
	}
	setAttempt(w, a.secret, int(codeTTL.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// returnURL is where the issuer sends a browser back to: the address that it has now. The issuer allows no other one
// than those that it was told.
func returnURL(r *http.Request) string { return "https://" + r.Host + returnPath }

// serveReturn opens a session for whom the issuer knows.
func (s *Server) serveReturn(w http.ResponseWriter, r *http.Request, _ *session) {
	asked := r.URL.Query()
	began, err := r.Cookie(attemptCookie)
	o := s.issuer()
	setAttempt(w, "", -1)
	switch {
	case o == nil:
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	case err != nil || !isSame(asked.Get("state"), attempt{began.Value, o}.state()) ||
		asked.Has("iss") && asked.Get("iss") != string(o.Issuer): // RFC 9207
		s.log.Warn("log-in refused", "from", r.RemoteAddr, "reason", "no log-in of this browser is under way at the issuer")
		s.showLogin(w, r, http.StatusForbidden,
			"This log-in was too old, was begun by another browser, or at another issuer. Try again.")
		return
	case !s.tries.Allow(r):
		s.log.Warn("too many log-ins", "from", r.RemoteAddr)
		w.Header().Set("Retry-After", "10")
		s.showLogin(w, r, http.StatusTooManyRequests, tooManyLogins)
		return
	case asked.Has("error"):
		s.refuseIssued(w, r, o, fmt.Errorf("%w: %s", errIssuerRefuses, cleanCode(asked.Get("error"))))
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), issuerTimeout+apiTimeout)
	defer cancel()
	g, err := s.issuers.finish(ctx, returnURL(r), attempt{began.Value, o}, asked.Get("code"))
	if err != nil {
		s.refuseIssued(w, r, o, err)
		return
	}

	secret := s.logins.openIssued(g)
	s.addToAudit(r, g.person, action{name: "login", on: onAppliance}, http.StatusOK, "")
	s.log.Info("logged in", "from", r.RemoteAddr, "role", string(g.person.Role), "issuer", string(o.Issuer))
	setCookie(w, cookie, secret, int(g.person.Role.lifetime().total.Seconds()))
	// Not a redirect: browsers do not send a Strict cookie with one that began at another site.
	s.write(w, r, http.StatusOK, "loggedin.html", g.person)
}

const tooManyLogins = "Too many tries from your address. Wait ten seconds, then try again."

// refuseIssued says why nobody is logged in by the issuer. Logging in by a code needs no issuer.
func (s *Server) refuseIssued(w http.ResponseWriter, r *http.Request, o *site.OIDC, err error) {
	s.log.Warn("log-in refused", "from", r.RemoteAddr, "issuer", string(o.Issuer), "error", logText(err))
	code, why := http.StatusForbidden, ""
	switch {
	case errors.Is(err, errIssuerSilent):
		code, why = http.StatusBadGateway, errIssuerSilent.Error()
	case errors.Is(err, errNoAPI):
		code, why = http.StatusServiceUnavailable, errNoAPI.Error()
	case errors.Is(err, errToken):
		why = errToken.Error()
	default:
		why = err.Error()
	}
	s.showLogin(w, r, code, fmt.Sprintf(
		"Not logged in with %s: %s. Try again, or run firstlightd login on the appliance.", s.issuerName(), why,
	))
}

// isStillIssued reports whether a session may continue, and asks the issuer again when its word ends. A session that was
// opened by a code needs no issuer.
func (s *Server) isStillIssued(ctx context.Context, of *session) bool {
	if !of.isIssued {
		return true
	}

	word, left := s.logins.wordOf(of)
	switch {
	case !reflect.DeepEqual(word.of, s.issuer()):
		s.log.Info("log-in ended", "user", of.person.user(), "reason", "the site names another issuer")
		return false
	case left > renewBefore || word.refresh == "":
		return left > 0
	}

	// One request asks. Others wait for it only when the word has ended, and for one answer, not for one each.
	if !of.renewing.TryLock() {
		if left > 0 {
			return true
		}
		of.renewing.Lock()
	}
	defer of.renewing.Unlock()
	if of.isOver {
		return false
	}
	if word, left = s.logins.wordOf(of); left > renewBefore {
		return true
	}

	// Whoever asks may go: the issuer gives some of its answers once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTimeout+apiTimeout)
	defer cancel()
	renewed, err := s.issuers.renew(ctx, word)
	if err != nil {
		s.log.Warn("log-in not renewed", "user", of.person.user(), "error", logText(err))
		of.isOver = left <= 0 || !errors.Is(err, errIssuerSilent)
		return !of.isOver
	}
	s.logins.setWord(of, renewed)
	return true
}

func setAttempt(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name:     attemptCookie,
		Value:    value,
		Path:     "/",
		MaxAge:   seconds,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	})
}
