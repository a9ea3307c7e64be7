package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// readVerb is the verb of RBAC for what pages show besides the status document.
const readVerb = "get"

// reading is what a page shows that is asked for only then, and only for people who have the right to.
type reading struct {
	pattern  string // of the page
	resource string // as RBAC names it, in the group of actions
	needs    Role
	isWhole  bool // without it the page has nothing

	// ask has it in the next picture, or soon after. shows is the key of what the page of a request shows in
	// picture.watched; nil: nothing that a lookup answers.
	ask   func(s *Server, r *http.Request)
	shows func(p *picture, r *http.Request) string
}

// What begins the keys of picture.watched: the lookup.
const (
	watchedWorkload = "workload "
	watchedPod      = "pod "
	watchedLog      = "log "
	watchedChain    = "chain "
	watchedSecrets  = "secrets "
	watchedVersions = "versions "
	watchedPackets  = "packets "
	watchedNodeLogs = "node logs "
)

// readings are all of them. A role has the rights of those that it covers.
func readings() []reading {
	return []reading{
		{
			pattern:  nodePattern,
			resource: "boots",
			needs:    Viewer,
			ask:      (*Server).askPackets,
			shows:    func(p *picture, r *http.Request) string { return watchedPackets + p.packetsKey(r.PathValue("name")) },
		},
		{
			pattern:  "/clusters/{name}",
			resource: "workloads",
			needs:    Viewer,
			ask:      (*Server).askWorkload,
			shows:    func(p *picture, r *http.Request) string { return watchedWorkload + p.clusterOf(r) },
		},
		{
			pattern:  chainPattern,
			resource: "workloads",
			needs:    Viewer,
			isWhole:  true,
			ask:      (*Server).askChain,
			shows:    func(p *picture, r *http.Request) string { return watchedChain + p.clusterOf(r) },
		},
		{
			pattern:  tenantPattern,
			resource: "workloads",
			needs:    Viewer,
			isWhole:  true,
			ask:      (*Server).askTenant,
			shows: func(_ *picture, r *http.Request) string {
				ref, _ := splitTenant(r.PathValue("name"))
				return watchedWorkload + ref
			},
		},
		{
			pattern:  podPattern,
			resource: "workloads",
			needs:    Viewer,
			isWhole:  true,
			ask:      (*Server).askPod,
			shows:    func(p *picture, r *http.Request) string { return watchedPod + podKey(p.clusterOf(r), podOf(r)) },
		},
		{
			pattern:  logPattern,
			resource: "logs", // which may hold secrets
			needs:    Operator,
			isWhole:  true,
			ask:      (*Server).askLog,
			shows:    func(p *picture, r *http.Request) string { return watchedLog + logKey(p.clusterOf(r), logOf(r)) },
		},
		{
			pattern:  logPattern + previousLog,
			resource: "logs",
			needs:    Operator,
			isWhole:  true,
			ask:      (*Server).askLog,
			shows:    func(p *picture, r *http.Request) string { return watchedLog + logKey(p.clusterOf(r), logOf(r)) },
		},
		{
			pattern:  nodeLogsPattern,
			resource: "logs",
			needs:    Operator,
			isWhole:  true,
			ask:      (*Server).askNodeLogs,
			shows:    func(_ *picture, r *http.Request) string { return watchedNodeLogs + r.PathValue("name") },
		},
		{
			pattern:  nodeLogPattern,
			resource: "logs",
			needs:    Operator,
			isWhole:  true,
			ask:      (*Server).askNodeLogs,
			shows:    func(_ *picture, r *http.Request) string { return watchedNodeLogs + r.PathValue("name") },
		},
		{
			pattern:  consolePattern,
			resource: onConsole.resource, // which may show secrets
			needs:    Operator,
			isWhole:  true,
		},
		{
			pattern:  "/addons",
			resource: "components",
			needs:    Viewer,
			isWhole:  true,
		},
		{
			pattern:  "/updates",
			resource: onUpdates.resource,
			needs:    Viewer,
			ask:      (*Server).askVersions,
			shows:    func(_ *picture, _ *http.Request) string { return watchedVersions },
		},
		{
			pattern:  "/secrets",
			resource: "secrets",
			needs:    Operator,
			isWhole:  true,
			ask:      (*Server).askSecrets,
			shows:    func(_ *picture, _ *http.Request) string { return watchedSecrets },
		},
	}
}

// findReading is what a page needs a right for, if it needs one.
func findReading(pattern string) (reading, bool) {
	for _, r := range readings() {
		if r.pattern == pattern {
			return r, true
		}
	}
	return reading{}, false
}

// findReadingAt is the reading of the page at an escaped path, and a request of that page as its handler gets it; the
// zero value if it has none.
func findReadingAt(path string) (reading, *http.Request) {
	have := strings.Split(path, "/")
	for i := range have {
		if s, err := url.PathUnescape(have[i]); err == nil {
			have[i] = s
		}
	}

	for _, of := range readings() {
		r := &http.Request{Pattern: of.pattern}
		isIt := func(want, is string) bool {
			if name, ok := strings.CutPrefix(want, "{"); ok {
				r.SetPathValue(strings.TrimSuffix(name, "}"), is)
				return is != ""
			}
			return want == is
		}
		if slices.EqualFunc(strings.Split(of.pattern, "/"), have, isIt) {
			return of, r
		}
	}
	return reading{}, nil
}

// needs is the least role that a page is shown to.
func (v view) needs() Role {
	if r, ok := findReading(v.pattern); ok {
		return r.needs
	}
	return Viewer
}

// denialKey is where a request has why a page's reading is not shown.
type denialKey struct{}

// denialOf is why what a page reads is not shown to whoever asks; nil if it is.
func denialOf(r *http.Request) error {
	err, _ := r.Context().Value(denialKey{}).(error)
	return err
}

// prepare asks what a page shows besides the picture, if the person may see it. The request that it returns knows.
func (s *Server) prepare(r *http.Request, by Person, v view) (*http.Request, reading) {
	of, ok := findReading(v.pattern)
	if !ok {
		return r, of
	}

	if err := s.checkReading(r.Context(), by, of); err != nil {
		return r.WithContext(context.WithValue(r.Context(), denialKey{}, err)), of
	}
	if of.ask != nil {
		of.ask(s, r)
	}
	return r, of
}

// Paces of asking the API server who may read.
const (
	rightLasts   = 10 * time.Second
	rightTimeout = 3 * time.Second
)

// newReviews asks the API server, as a person, whether it may do something. A right that somebody took away is missed
// within rightLasts.
func (s *Server) newReviews() *lookup[error] {
	return &lookup[error]{
		ask: func(ctx context.Context, key string) error {
			f := strings.Split(key, "\n")
			api, err := s.deeds.API()
			if err != nil {
				return errors.Join(errNoAPI, err)
			}
			return checkRight(ctx, api, Person{f[0], Role(f[1])}, right{f[2], f[3]}, "")
		},
		parallel: 16,
		timeout:  rightTimeout,
		fresh:    rightLasts,
		stale:    rightLasts,
		wait:     rightTimeout + time.Second,
	}
}

// checkReading is nil if a person may read something.
func (s *Server) checkReading(ctx context.Context, by Person, of reading) error {
	return s.checkCached(ctx, by, right{readVerb, of.resource})
}

// checkCached is checkRight with an answer that may be rightLasts old.
func (s *Server) checkCached(ctx context.Context, by Person, to right) error {
	a, ok := s.reviews.get(ctx, strings.Join([]string{by.Name, string(by.Role), to.verb, to.resource}, "\n"))
	if !ok {
		return errNoAPI
	}
	return a.Value
}

// deniedText says in a sentence why something is not shown.
func deniedText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errForbidden):
		return "Not shown: " + errForbidden.Error() + "."
	}
	return "Not shown: " + errNoAPI.Error() + "."
}
