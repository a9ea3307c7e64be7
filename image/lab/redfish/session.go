package redfish

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
)

// serveLogin opens a session (DSP0266, 13.3.4): its token goes into a header.
func (b *BMC) serveLogin(w http.ResponseWriter, r *http.Request) {
	var ask struct{ UserName, Password string }
	if !readJSON(w, r, &ask) {
		return
	}
	if !b.isPassword(ask.UserName, ask.Password) {
		writeError(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}

	token := rand.Text()
	b.mu.Lock()
	b.sessions[token] = true
	b.mu.Unlock()
	session := b.session(token)
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", session["@odata.id"].(string))
	writeJSON(w, http.StatusCreated, session)
}

func (b *BMC) serveLogout(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	delete(b.sessions, r.PathValue("token"))
	b.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (b *BMC) session(token string) object {
	return object{
		"@odata.id":   sessionsPath + "/" + token,
		"@odata.type": "#Session.v1_1_0.Session",
		"Id":          token,
		"Name":        "Session",
		"UserName":    b.config.User,
	}
}

// isAuthorized checks the token of a session, or a password.
func (b *BMC) isAuthorized(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.sessions[token]
	}

	user, password, _ := r.BasicAuth()
	return b.isPassword(user, password)
}

func (b *BMC) isPassword(user, password string) bool {
	return user == b.config.User && subtle.ConstantTimeCompare([]byte(password), []byte(b.config.Password)) == 1
}
