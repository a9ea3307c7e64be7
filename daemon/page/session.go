package page

import (
	"net/http"
	"net/url"
)

// Fields of forms.
const (
	codeField    = "code"
	csrfField    = "csrf"
	confirmField = "confirm"
	nameField    = "name"
)

// formCookie holds the token of the log-in form, which has no session yet.
const formCookie = "__Host-firstlight-form"

// loginView is what the log-in form shows.
type loginView struct {
	Code   string // from the link, filled in
	CSRF   string
	Error  string
	Issuer string // by which one may log in, too; "": none
}

// serveLoginForm shows the form. A link with a code fills it in and uses nothing up: programs open links, too. Whoever
// is logged in may use a code for another role.
func (s *Server) serveLoginForm(w http.ResponseWriter, r *http.Request, of *session) {
	if of != nil && !r.URL.Query().Has(codeField) {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	s.showLogin(w, r, http.StatusOK, "")
}

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request, code int, problem string) {
	token := newSecret()
	setCookie(w, formCookie, token, int(codeTTL.Seconds()))
	s.write(w, r, code, "login.html", loginView{
		Code: r.URL.Query().Get(codeField), CSRF: token, Error: problem, Issuer: s.issuerName(),
	})
}

// serveLogin uses a code up for a session, which takes the place of the one that the browser had.
func (s *Server) serveLogin(w http.ResponseWriter, r *http.Request, _ *session) {
	form, err := r.Cookie(formCookie)
	if err != nil || !isSame(form.Value, r.PostFormValue(csrfField)) {
		s.showLogin(w, r, http.StatusForbidden, "The form was too old, or your browser keeps no cookies. Try again.")
		return
	}

	// Tries are counted before the code is looked at, so that nothing is learned from the ones beyond.
	if !s.tries.Allow(r) {
		s.log.Warn("too many log-ins", "from", r.RemoteAddr)
		w.Header().Set("Retry-After", "10")
		s.showLogin(w, r, http.StatusTooManyRequests, tooManyLogins)
		return
	}

	secret, by, ok := s.logins.open(r.PostFormValue(codeField))
	if !ok {
		s.log.Warn("log-in refused", "from", r.RemoteAddr)
		s.showLogin(
			w, r, http.StatusUnauthorized,
			"This code is wrong, was used or has ended. Run firstlightd login again on the appliance.",
		)
		return
	}

	if before, err := r.Cookie(cookie); err == nil {
		s.logins.close(before.Value)
	}

	s.addToAudit(r, by, action{name: "login", on: onAppliance}, http.StatusOK, "")
	s.log.Info("logged in", "from", r.RemoteAddr, "role", string(by.Role))
	setCookie(w, cookie, secret, int(by.Role.lifetime().total.Seconds()))
	setCookie(w, formCookie, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// serveLogout ends the session.
func (s *Server) serveLogout(w http.ResponseWriter, r *http.Request, _ *session) {
	if c, err := r.Cookie(cookie); err == nil {
		s.logins.close(c.Value)
	}

	s.log.Info("logged out", "from", r.RemoteAddr)
	setCookie(w, cookie, "", -1)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// setCookie gives a browser a cookie for so many seconds; less than none removes it.
func setCookie(w http.ResponseWriter, name, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		MaxAge:   seconds,
		Secure:   true,
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
}

// LoginURL is the link to a page's log-in with a code filled in.
func LoginURL(page, code string) string {
	return page + "login?" + url.Values{codeField: {code}}.Encode()
}
