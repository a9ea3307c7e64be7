package page

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// cookie names the session's. Browsers take one with this prefix only by TLS, for this host alone and for all paths
// (RFC 6265bis, section 4.1.3).
const cookie = "__Host-firstlight"

// route is one request that is answered.
type route struct {
	method  string
	pattern string
	needs   Role    // Nobody: no session is needed
	action  *action // that it asks to confirm, or does; nil: none
	serve   func(*Server, http.ResponseWriter, *http.Request, *session)
}

// routes are all requests that are answered, and the least role of who may send them. A viewer's only deed is to log
// out.
func routes() []route {
	all := []route{
		{"GET", "/assets/{file}", Nobody, nil, (*Server).serveAsset},
		{"GET", "/login", Nobody, nil, (*Server).serveLoginForm},
		{"POST", "/login", Nobody, nil, (*Server).serveLogin},
		{"GET", issuerPath, Nobody, nil, (*Server).serveIssuer},
		{"GET", returnPath, Nobody, nil, (*Server).serveReturn},
		{"POST", "/logout", Viewer, nil, (*Server).serveLogout},
		{"GET", "/events", Viewer, nil, (*Server).serveEvents},
		{"GET", editPath, Owner, nil, (*Server).serveSiteEditor},
		{"POST", editPath, Owner, nil, (*Server).serveSiteCheck}, // it changes nothing
		{"GET", tenantEditPath, Owner, nil, (*Server).serveTenantEditor},
		{"POST", tenantEditPath, Owner, nil, (*Server).serveTenantCheck}, // nor does this
	}
	all = append(all, uploadRoutes()...)
	all = append(all, consoleRoutes()...)
	for _, v := range views() {
		all = append(all, route{"GET", v.pattern, v.needs(), nil, func(
			s *Server, w http.ResponseWriter, r *http.Request, of *session,
		) {
			s.serveView(w, r, of, v)
		}})
	}
	for _, a := range actions() {
		pattern := a.on.pattern + "/" + a.name
		all = append(all,
			route{"GET", pattern, a.needs, &a, func(s *Server, w http.ResponseWriter, r *http.Request, of *session) {
				s.serveConfirmation(w, r, of, a)
			}},
			route{"POST", pattern, a.needs, &a, func(s *Server, w http.ResponseWriter, r *http.Request, of *session) {
				s.serveAction(w, r, of, a)
			}},
		)
	}

	return all
}

// newHandler answers the routes, and refuses what comes from other sites before it is looked at.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, to := range routes() {
		mux.HandleFunc(to.method+" "+to.pattern, func(w http.ResponseWriter, r *http.Request) {
			of := s.sessionOf(r)
			if to.needs != Nobody && of == nil {
				refuse(w, r)
				return
			}
			isAct := to.action != nil && r.Method != http.MethodGet ||
				isUpload(to.pattern) && r.Method == http.MethodPost || to.pattern == consoleStream
			if isAct && !s.acts.Allow(r) { // before anything is written down: whoever has a session may not fill the log
				s.log.Warn("too many actions", "from", r.RemoteAddr, "user", of.person.user())
				w.Header().Set("Retry-After", "10")
				http.Error(w, "Too many actions from your address. Wait ten seconds, then try again.", http.StatusTooManyRequests)
				return
			}
			if no := checkRequest(to, of, r); no != nil {
				switch {
				case isAct && to.action != nil:
					s.addToAudit(r, of.person, *to.action, no.code, no.text)
				case isConsole(to.method, to.pattern):
					if isAct || s.acts.Allow(r) {
						s.addConsoleToAudit(r, of.person, consoleVerb(r.Method), no.code, no.text)
					}
				case isAct:
					s.addUploadToAudit(r, of.person, no.code)
				}
				http.Error(w, no.text, no.code)
				return
			}
			to.serve(s, w, r, of)
		})
	}

	return addHeaders(refuseOtherSites(http.NewCrossOriginProtection().Handler(boundForms(mux))))
}

// checkRequest decides whether a session may send a request; of is nil only where none is needed.
func checkRequest(to route, of *session, r *http.Request) *refusal {
	switch {
	case to.needs == Nobody:
		return nil
	case r.Method != http.MethodGet && isTooLong(r):
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"The form is too long, and nothing was changed: a site document has %d MiB at most, a Tenant %d KiB, anything else %d KiB.",
			site.MaxSize>>20, maxTenant>>10, maxForm>>10,
		)}
	case r.Method != http.MethodGet && !isSame(csrfOf(r), of.csrf):
		return &refusal{http.StatusForbidden, "The form is not of this session. Load the page again."}
	case !of.person.Role.covers(to.needs):
		return &refusal{http.StatusForbidden, fmt.Sprintf(
			"You are %s here, and this needs the role %s: log in with firstlightd login --role %[2]s.",
			of.person.Role, to.needs,
		)}
	}
	return nil
}

// isTooLong reports whether a form goes beyond what boundForms lets through: none of its fields is known then.
func isTooLong(r *http.Request) bool {
	long := new(http.MaxBytesError)
	return !isUpload(r.URL.Path) && errors.As(r.ParseForm(), &long)
}

// sessionOf is the session of a request, nil if there is none.
func (s *Server) sessionOf(r *http.Request) *session {
	c, err := r.Cookie(cookie)
	if err != nil {
		return nil
	}
	of := s.logins.find(c.Value, isByScript(r))
	if of == nil || s.isStillIssued(r.Context(), of) {
		return of
	}
	s.logins.close(c.Value)
	return nil
}

// isByScript reports whether the script of a page sends a request, and no person.
func isByScript(r *http.Request) bool {
	return r.URL.Query().Has(partParameter) || r.URL.Path == "/events" || isUpload(r.URL.Path) || isConsoleStream(r)
}

// refuse sends a browser without a session to the log-in. A script gets the code alone, and loads its page again.
func refuse(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || isByScript(r) {
		http.Error(w, "You are not logged in. Load the page again.", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// How long a form can be, in bytes: one with a document, where each of its bytes may take three, and any other, which may
// name each disk of a server or have a pasted text.
const (
	maxForm         = 64 << 10
	maxDocumentForm = 3*site.MaxSize + maxForm
	maxTenantForm   = 3*maxTenant + maxForm
)

func boundForms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most := int64(maxForm)
		switch {
		case r.URL.Path == editPath:
			most = maxDocumentForm
		case r.URL.Path == tenantEditPath:
			most = maxTenantForm
		case isUpload(r.URL.Path):
			most = maxPiece
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		next.ServeHTTP(w, r)
	})
}

// refuseOtherSites lets other sites do no more than lead here by a link (W3C Fetch Metadata Request Headers).
func refuseOtherSites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, mode := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode")
		isOther := site != "" && site != "same-origin" && site != "none"
		isLink := mode == "navigate" && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Dest") == "document"
		if isOther && !isLink {
			http.Error(w, "This page takes no requests of other sites.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// policy allows what the pages are made of: our style sheet and script, forms and requests to this host.
var policy = strings.Join([]string{
	"default-src 'none'",
	"style-src 'self'",
	"script-src 'self'",
	"img-src 'self'",
	"connect-src 'self'",
	"form-action 'self'",
	"base-uri 'none'",
	"frame-ancestors 'none'",
}, "; ")

func addHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// acceptsGzip reports whether a browser takes an answer compressed. All do; what does not say so is a program.
func acceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(word string) bool {
		return strings.TrimSpace(word) == "gzip"
	})
}
