package api

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// Paths of the API; the words in braces are ICN's.
const (
	collectionPath = artifact.Base + "/{owner}/{clustername}/{collection}"
	imagePath      = collectionPath + "/{imgname}"
	contentPath    = imagePath + "/content"
)

// route is one operation: what serves it and what the OpenAPI document says of it.
type route struct {
	method, path string
	id           string // operationId
	summary      string
	verb         string // of RBAC; "" is allowed to whoever is known, open to everybody
	handle       func(*Agent, http.ResponseWriter, *http.Request, call) error
	takes        body
	query        []parameter
	header       []parameter
	success      []success
	failures     []int // besides 401, 403, 500 and 503
}

const open = "open"

// call is what a handler is given of the request: the artifact it names, and who asks. The
// store is open.
type call struct {
	artifact.Key
	user  access.User
	blobs *blobs.Store
}

// routeTable is the API. The mux and the OpenAPI document are made of it.
func routeTable() []route {
	return []route{
		{
			method:   "POST",
			path:     collectionPath,
			id:       "announce",
			summary:  "Announce an artifact.",
			verb:     "create",
			handle:   (*Agent).serveAnnounce,
			takes:    formBody,
			success:  []success{{201, recordBody, []string{"Location", artifact.HeaderOffset, artifact.HeaderLength, artifact.HeaderComplete}}},
			failures: []int{400, 404, 408, 409, 413, 422, 507},
		},
		{
			method:   "GET",
			path:     collectionPath,
			id:       "list",
			summary:  "List a collection, by name.",
			verb:     "list",
			handle:   (*Agent).serveList,
			query:    listQuery(),
			success:  []success{{200, listBody, nil}},
			failures: []int{400, 404},
		},
		{
			method:   "GET",
			path:     imagePath,
			id:       "show",
			summary:  "Show an artifact's record.",
			verb:     "get",
			handle:   (*Agent).serveMetadata,
			success:  []success{{200, recordBody, progressHeaders()}},
			failures: []int{400, 404},
		},
		{
			method:   "HEAD",
			path:     imagePath,
			id:       "progress",
			summary:  "Tell an upload's offset and length.",
			verb:     "get",
			handle:   (*Agent).serveMetadata,
			success:  []success{{200, noBody, progressHeaders()}},
			failures: []int{400, 404},
		},
		{
			method:   "PUT",
			path:     imagePath,
			id:       "replace",
			summary:  "Replace an artifact's record; with another length or sha256 its content is given up and the upload begins again.",
			verb:     "update",
			handle:   (*Agent).serveReplace,
			takes:    formBody,
			success:  []success{{201, recordBody, progressHeaders()}},
			failures: []int{400, 404, 408, 409, 413, 422, 507},
		},
		{
			method:   "PATCH",
			path:     imagePath,
			id:       "append",
			summary:  "Send a piece of an artifact, which begins at Upload-Offset: all that remains, or any part of it.",
			verb:     "patch",
			handle:   (*Agent).serveAppend,
			takes:    octetsBody,
			header:   appendHeader(),
			success:  []success{{204, noBody, []string{artifact.HeaderOffset}}},
			failures: []int{400, 404, 408, 409, 422, 507},
		},
		{
			method:   "DELETE",
			path:     imagePath,
			id:       "remove",
			summary:  "Remove an artifact and end its upload.",
			verb:     "delete",
			handle:   (*Agent).serveRemove,
			success:  []success{{204, noBody, nil}},
			failures: []int{400, 404, 409},
		},
		{
			method:   "GET",
			path:     contentPath,
			id:       "content",
			summary:  "Read a complete artifact's bytes, or a range of them.",
			verb:     "get",
			handle:   (*Agent).serveContent,
			header:   rangeHeader(),
			success:  []success{{200, octetsBody, contentHeaders()}, {206, octetsBody, contentHeaders()}, {304, noBody, nil}},
			failures: []int{400, 404, 409, 412, 416},
		},
		{
			method:   "HEAD",
			path:     contentPath,
			id:       "contentHead",
			summary:  "Tell a complete artifact's length and sha256.",
			verb:     "get",
			handle:   (*Agent).serveContent,
			header:   rangeHeader(),
			success:  []success{{200, noBody, contentHeaders()}, {206, noBody, contentHeaders()}, {304, noBody, nil}},
			failures: []int{400, 404, 409, 412, 416},
		},
		{
			method:  "GET",
			path:    "/openapi.json",
			id:      "describe",
			summary: "Read this document.",
			handle:  (*Agent).serveOpenAPI,
			success: []success{{200, anyJSON, nil}},
		},
		{
			method:  "GET",
			path:    "/metrics",
			id:      "metrics",
			summary: "Read metrics, as Prometheus does.",
			verb:    "get",
			handle:  (*Agent).serveMetrics,
			success: []success{{200, textBody, nil}},
		},
		{
			method:  "GET",
			path:    "/healthz",
			id:      "health",
			summary: "Tell whether the agent serves.",
			verb:    open,
			handle:  (*Agent).serveHealth,
			success: []success{{200, textBody, nil}},
		},
		{
			method:  "GET",
			path:    "/readyz",
			id:      "ready",
			summary: "Tell whether the store was read.",
			verb:    open,
			handle:  (*Agent).serveReady,
			success: []success{{200, textBody, nil}},
		},
	}
}

// routes is the handler of everything.
func (a *Agent) routes() http.Handler {
	mux, paths := http.NewServeMux(), map[string][]string{}
	for _, rt := range routeTable() {
		mux.Handle(rt.method+" "+rt.path, a.serve(rt))
		paths[rt.path] = append(paths[rt.path], rt.method)
	}

	for p, methods := range paths {
		mux.Handle(p, a.authenticate(func(w http.ResponseWriter, r *http.Request, _ access.User) error {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			return newProblem(
				http.StatusMethodNotAllowed, "%s is not served here; use %s", r.Method, strings.Join(methods, " or "),
			)
		}))
	}

	nowhere := a.authenticate(func(http.ResponseWriter, *http.Request, access.User) error {
		return newProblem(http.StatusNotFound, "there is nothing here; /openapi.json lists what there is")
	})
	mux.Handle("/", nowhere)
	return a.countRequests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// The mux would redirect a path that is not clean, before anybody asked who it is.
		if clean := path.Clean("/" + r.URL.Path); r.Method == http.MethodConnect || clean != r.URL.Path && clean+"/" != r.URL.Path || r.URL.Host != "" {
			nowhere.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// authenticate lets through whoever has valid credentials, and writes a failure as a problem.
func (a *Agent) authenticate(do func(http.ResponseWriter, *http.Request, access.User) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := a.Authenticator.Authenticate(r.Context(), r)
		switch {
		case errors.Is(err, access.ErrAnonymous):
			err = newProblem(http.StatusUnauthorized, "%v", err)
		case errors.Is(err, access.ErrTooMany):
			err = newProblem(http.StatusTooManyRequests, "%v", err)
		case err != nil:
			a.Log.Error("who asks cannot be found out", "error", err)
			err = newProblem(
				http.StatusServiceUnavailable,
				"the API server of the bootstrap cluster does not say whose credentials these are; try again",
			)
		default:
			err = do(w, r, u)
		}
		if err != nil {
			a.writeProblem(w, r, err)
		}
	})
}

// serve is one route: who, which artifact, whether allowed, whether the store was read.
func (a *Agent) serve(rt route) http.Handler {
	if rt.verb == open {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := rt.handle(a, w, r, call{}); err != nil {
				a.writeProblem(w, r, err)
			}
		})
	}
	return a.authenticate(func(w http.ResponseWriter, r *http.Request, u access.User) error {
		c, received := call{user: u, blobs: a.blobs.Load()}, time.Now()
		if strings.HasPrefix(rt.path, artifact.Base) {
			c.Key = artifact.Key{
				Collection: artifact.Collection(r.PathValue("collection")),
				Owner:      r.PathValue("owner"),
				Cluster:    r.PathValue("clustername"),
				Name:       r.PathValue("imgname"),
			}
		}

		err := a.serveCall(rt, w, r, c)
		if rt.method != "GET" && rt.method != "HEAD" {
			a.recordChange(rt, w, r, c, received, err)
		}

		return err
	})
}

// serveCall answers one request of a user, if it is allowed.
func (a *Agent) serveCall(rt route, w http.ResponseWriter, r *http.Request, c call) error {
	wants := access.Request{Verb: rt.verb, Path: rt.path}
	if strings.HasPrefix(rt.path, artifact.Base) {
		if err := checkPath(c.Key, rt.path == collectionPath); err != nil {
			return err
		}
		wants = access.Request{
			Verb:      rt.verb,
			Group:     artifact.Group,
			Resource:  string(c.Collection),
			Namespace: c.Owner,
			Name:      c.Name,
		}
	}

	if rt.verb != "" {
		if err := a.authorize(r, c.user, wants); err != nil {
			return err
		}
	}

	if c.blobs == nil && strings.HasPrefix(rt.path, artifact.Base) {
		return newProblem(http.StatusServiceUnavailable, "the store is still being read; try again")
	}

	return rt.handle(a, w, r, c)
}

// recordChange writes down who changed what, or was not let to.
func (a *Agent) recordChange(rt route, w http.ResponseWriter, r *http.Request, c call, received time.Time, err error) {
	code, reason, status := rt.success[0].status, "", "done"
	if err != nil {
		p := problemOf(err)
		code, reason, status = p.Status, p.Detail, p.Detail
	}

	a.Log.Info(rt.id, "path", r.URL.Path, "made", w.Header().Get("Location"), "user", c.user.Name, "result", status)
	if made := w.Header().Get("Location"); made != "" {
		c.Name, _ = url.PathUnescape(path.Base(made)) // which the path of the request does not name
	}

	a.Audit.Add(audit.Request{
		HTTP:     r,
		Received: received,
		User:     c.user.Name,
		Verb:     rt.verb,
		Object:   audit.NewArtifact(c.Key),
		Code:     code,
		Reason:   reason,
	})
}

// checkPath refuses names that cannot be.
func checkPath(k artifact.Key, isCollection bool) error {
	if !k.Collection.IsKnown() {
		return newProblem(http.StatusNotFound, "%v", k.Check())
	}

	if isCollection {
		k.Name = "any"
	}

	if err := k.Check(); err != nil {
		return newProblem(http.StatusBadRequest, "%v", err)
	}

	return nil
}

func (a *Agent) authorize(r *http.Request, u access.User, wants access.Request) error {
	may, err := a.Authorizer.Authorize(r.Context(), u, wants)
	if err != nil {
		a.Log.Error(
			"whether it is allowed cannot be found out", "user", u.Name, "request", wants.String(), "error", err,
		)
		return newProblem(
			http.StatusServiceUnavailable,
			"the API server of the bootstrap cluster does not say whether this is allowed; try again",
		)
	}
	if !may {
		return newProblem(http.StatusForbidden, "%s may not %s (API group %s)", u.Name, wants, artifact.Group)
	}

	return nil
}
