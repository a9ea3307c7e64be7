package page

import (
	"net/http"
	"slices"
	"strings"
)

// cookie names the session's. Browsers take one with this prefix only by TLS, for this host alone and for all paths
// (RFC 6265bis, section 4.1.3).
const cookie = "__Host-firstlight"

// route is one request that is answered.
type route struct {
	method  string
	pattern string
	needs   role // nobody: no session is needed
	serve   func(*Server, http.ResponseWriter, *http.Request, *session)
}

// routes are all requests that are answered, and who may send them. What changes anything but the session itself needs
// a role above viewer; there is none yet.
func routes() []route {
	all := []route{
		{"GET", "/assets/{file}", nobody, (*Server).serveAsset},
		{"GET", "/login", nobody, (*Server).serveLoginForm},
		{"POST", "/login", nobody, (*Server).serveLogin},
		{"POST", "/logout", viewer, (*Server).serveLogout},
		{"GET", "/events", viewer, (*Server).serveEvents},
	}
	for _, v := range views() {
		all = append(all, route{"GET", v.pattern, viewer, func(
			s *Server, w http.ResponseWriter, r *http.Request, of *session,
		) {
			s.serveView(w, r, of, v)
		}})
	}

	return all
}

// newHandler answers the routes, and refuses what comes from other sites before it is looked at.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, to := range routes() {
		mux.HandleFunc(to.method+" "+to.pattern, func(w http.ResponseWriter, r *http.Request) {
			of := s.sessionOf(r)
			if to.needs != nobody && (of == nil || of.role != to.needs) {
				refuse(w, r)
				return
			}
			if to.needs != nobody && r.Method != http.MethodGet && !isSame(r.PostFormValue(csrfField), of.csrf) {
				http.Error(w, "The form is not of this session. Load the page again.", http.StatusForbidden)
				return
			}
			to.serve(s, w, r, of)
		})
	}

	return addHeaders(refuseOtherSites(http.NewCrossOriginProtection().Handler(boundForms(mux))))
}

// sessionOf is the session of a request, nil if there is none.
func (s *Server) sessionOf(r *http.Request) *session {
	c, err := r.Cookie(cookie)
	if err != nil {
		return nil
	}
	return s.logins.find(c.Value)
}

// refuse sends a browser without a session to the log-in. A script gets the code alone, and loads its page again.
func refuse(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Query().Has(partParameter) || r.URL.Path == "/events" {
		http.Error(w, "You are not logged in. Load the page again.", http.StatusUnauthorized)
		return
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// maxForm is how long a form can be, in bytes.
const maxForm = 4 << 10

func boundForms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
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
