package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
)

// uploadsPath is before the paths of the upload API, which the page passes on as the person who asks.
const uploadsPath = "/uploads/api"

// csrfHeader has the token of a session in what a script sends without a form.
const csrfHeader = "X-CSRF-Token"

// Bounds of uploads by the page: requests at once, of all sessions and of one, and bytes of one piece, which the script
// sends 8 MiB at a time.
const (
	maxUploads        = 8
	maxSessionUploads = 4
	maxPiece          = 16 << 20
)

// onUploads is what the audit log names; the rights are those of the upload API's own resources.
var onUploads = subject{"uploads", "", "/uploads"}

// uploadRoutes are the requests of the upload API that the page's script sends: announce, look, send a piece.
func uploadRoutes() []route {
	const collection = uploadsPath + artifact.Base + "/{owner}/{clustername}/{collection}"
	return []route{
		{"POST", collection, Operator, nil, (*Server).serveUpload},
		{"GET", collection + "/{imgname}", Operator, nil, (*Server).serveUpload},
		{"PATCH", collection + "/{imgname}", Operator, nil, (*Server).serveUpload},
	}
}

// isUpload reports whether a request is one of uploadRoutes.
func isUpload(path string) bool { return strings.HasPrefix(path, uploadsPath+"/") }

// csrfOf is the token that a request has: in a form's field, or in a header of the upload API's, whose body is no form
// of ours.
func csrfOf(r *http.Request) string {
	if isUpload(r.URL.Path) {
		return r.Header.Get(csrfHeader)
	}
	return r.PostFormValue(csrfField)
}

// uploadRules are what a role may do to artifacts. What takes one away, or puts another in its place, is an owner's.
func uploadRules(r Role) []rbacv1.PolicyRule {
	if !r.covers(Operator) {
		return nil
	}

	rule := rbacv1.PolicyRule{
		APIGroups: []string{artifact.Group},
		Verbs:     []string{"create", "get", "list", "patch"},
	}
	for _, c := range artifact.Collections() {
		rule.Resources = append(rule.Resources, string(c))
	}
	if r.covers(Owner) {
		rule.Verbs = append(rule.Verbs, "update", "delete")
	}
	return []rbacv1.PolicyRule{rule}
}

// serveUpload passes a request on to the upload API, as the person who asks: it decides, refuses in its own words and
// writes down who it was.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, of *session) {
	by := of.person
	fail := func(code int, detail string) {
		s.addUploadToAudit(r, by, code)
		writeProblem(w, code, detail)
	}
	defer of.uploads.Add(-1)
	if of.uploads.Add(1) > maxSessionUploads {
		fail(http.StatusServiceUnavailable, "too many uploads by your session are under way; try again")
		return
	}
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		fail(http.StatusServiceUnavailable, "too many uploads by the page are under way; try again")
		return
	}

	base, transport, err := s.deeds.Uploads()
	if err != nil {
		s.log.Warn("uploads out of reach", "error", err)
		fail(http.StatusServiceUnavailable, "the upload API cannot be reached; firstlightd status says why")
		return
	}

	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(p *httputil.ProxyRequest) { rewriteUpload(p, base, by) },
		ModifyResponse: func(answer *http.Response) error {
			answer.Header.Del("Location") // of a path that is not served here
			s.addUploadToAudit(r, by, answer.StatusCode)
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			s.log.Warn("upload not passed on", "error", err)
			if long := new(http.MaxBytesError); errors.As(err, &long) {
				fail(http.StatusRequestEntityTooLarge, fmt.Sprintf("one request has %d MiB at most", maxPiece>>20))
				return
			}
			fail(http.StatusServiceUnavailable, "the upload API does not answer; firstlightd status says why")
		},
		ErrorLog: nil,
	}
	http.StripPrefix(uploadsPath, proxy).ServeHTTP(w, r)
}

// rewriteUpload leaves of a browser's request what the upload API reads, and says who asks.
func rewriteUpload(p *httputil.ProxyRequest, base *url.URL, by Person) {
	p.SetURL(base)
	header := http.Header{}
	for _, name := range []string{"Content-Type", artifact.HeaderOffset} {
		if value := p.In.Header.Get(name); value != "" {
			header.Set(name, value)
		}
	}
	header.Set(access.HeaderUser, by.user())
	header.Set(access.HeaderGroup, by.Role.group())
	p.Out.Header = header
}

// addUploadToAudit writes an announcement down, from where the browser is; the upload API has each piece in its own log.
func (s *Server) addUploadToAudit(r *http.Request, by Person, code int) {
	if r.Method != http.MethodPost {
		return
	}
	reason := ""
	if code >= http.StatusBadRequest {
		reason = http.StatusText(code)
	}
	r.SetPathValue("name", r.PathValue("owner")+"/"+r.PathValue("clustername")+"/"+r.PathValue("collection"))
	s.addToAudit(r, by, action{name: "upload", on: onUploads}, code, reason)
}

// writeProblem refuses as the upload API does.
func writeProblem(w http.ResponseWriter, code int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	text, _ := json.Marshal(artifact.Problem{Title: http.StatusText(code), Status: code, Detail: detail}) // strings
	_, _ = io.WriteString(w, string(text))
}

// uploadsView is the page of what was uploaded.
type uploadsView struct {
	Artifacts *status.Artifacts // nil until there is a place for them
	Failed    []status.Check
	MayUpload bool
}

func newUploadsView(p *picture, by Role) uploadsView {
	v := uploadsView{Artifacts: p.doc.Artifacts, MayUpload: by.covers(Operator)}
	if v.Artifacts != nil {
		for _, c := range v.Artifacts.Conditions {
			if c.State != status.CheckOK {
				v.Failed = append(v.Failed, c)
			}
		}
	}

	return v
}
