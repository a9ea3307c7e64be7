// Package s3api serves uploads by the protocol of S3, if the site says so: the same artifacts as the REST API, to the
// same people. A bucket is a collection, an object OWNER/CLUSTER/NAME; what is stored by S3 is published, counted and
// checked as what came by REST. Keys are minted per owner, and have the rights of a service account.
// docs/artifacts.md, "By S3", says what is served; docs/decisions/0037 why it is no library.
package s3api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/pxe/limit"
)

// Bounds on what clients can hold, as those of the REST API.
const (
	maxConnections = 256
	maxTransfers   = 32
	stopTime       = 20 * time.Second
)

// Config is what a server is made of.
type Config struct {
	Listen     string // HOST:PORT
	TLS        *tls.Config
	Store      func() *blobs.Store // nil until the store was read
	Keys       Keys
	Authorizer access.Authorizer
	Parts      *Parts
	Now        func() time.Time // nil is time.Now
	Log        *slog.Logger
	Audit      *audit.Log // who changed what; nil: nobody wants to know
}

// Server serves S3.
type Server struct {
	Config
	transfers chan struct{}

	mu        sync.Mutex
	completed map[string]*completion // by ID of an upload
}

// New returns a server; nothing is opened.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Server{Config: c, transfers: make(chan struct{}, maxTransfers), completed: map[string]*completion{}}
}

// Run serves until ctx ends. ready, which may be nil, is told the address.
func (s *Server) Run(ctx context.Context, ready func(net.Addr)) error {
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen for S3 on %s: %w", s.Listen, err)
	}
	if ready != nil {
		ready(listener.Addr())
	}

	server := &limit.Server{Handler: s, Log: s.Log, TLS: s.TLS, Connections: maxConnections, Grace: stopTime}
	return server.Serve(ctx, listener)
}

// ServeHTTP answers one request: who asks, then what.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Amz-Request-Id", requestID())
	err := s.serve(w, r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.Log.Info("s3", "method", r.Method, "path", r.URL.Path, "access-key", accessKeyOf(r), "result", resultOf(err))
	}
	if err != nil {
		writeError(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	sig, err := parseSignature(r)
	if err != nil {
		return err
	}

	key, known, err := s.Keys.Find(r.Context(), sig.access)
	switch {
	case err != nil:
		s.Log.Error("keys cannot be read", "error", err)
		return newFailure(http.StatusServiceUnavailable, "ServiceUnavailable",
			"the API server of the bootstrap cluster does not say whose key this is; try again")
	case !known:
		return newFailure(http.StatusForbidden, "InvalidAccessKeyId", "no key has this ID, or it was revoked")
	}

	if err := sig.verify(r, key.Secret, s.Now()); err != nil {
		return err
	}

	body, err := sig.body(r, key.Secret)
	if err != nil {
		return err
	}

	received := s.Now()
	c, err := parseCall(r)
	c.key, c.body = key, body
	if c.store = s.Store(); err == nil && c.store == nil {
		err = newFailure(http.StatusServiceUnavailable, "ServiceUnavailable", "the store is still being read; try again")
	}
	if err == nil {
		err = c.operation.handle(s, w, r, c)
	}

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.recordChange(r, c, cmp.Or(c.operation.name, r.Method), received, err)
	}
	return err
}

// recordChange writes down who changed what, or was not let to.
func (s *Server) recordChange(r *http.Request, c call, operation string, received time.Time, err error) {
	change := audit.Request{
		HTTP: r, Received: received, User: c.key.User.Name, Verb: operation, Object: audit.NewArtifact(c.Key),
		Code: http.StatusOK,
	}
	if err != nil {
		f := failureOf(err)
		change.Code, change.Reason = f.status, f.Message
	}
	s.Audit.Add(change)
}

// authorize asks whether a key's account may do something with an owner's artifacts.
func (s *Server) authorize(ctx context.Context, c call, verbs ...string) error {
	for _, verb := range verbs {
		wants := access.Request{
			Verb:      verb,
			Group:     group,
			Resource:  string(c.Collection),
			Namespace: c.Owner,
			Name:      c.Name,
		}
		may, err := s.Authorizer.Authorize(ctx, c.key.User, wants)
		if err != nil {
			s.Log.Error("whether it is allowed cannot be found out", "request", wants.String(), "error", err)
			return newFailure(http.StatusServiceUnavailable, "ServiceUnavailable",
				"the API server of the bootstrap cluster does not say whether this is allowed; try again")
		}
		if !may {
			return newFailure(http.StatusForbidden, "AccessDenied",
				"%s may not %s (API group %s)", c.key.User.Name, wants, group)
		}
	}
	return nil
}

// acquireTransfer takes one of the places for bodies of any length.
func (s *Server) acquireTransfer() (release func(), err error) {
	select {
	case s.transfers <- struct{}{}:
		return func() { <-s.transfers }, nil
	default:
		return nil, newFailure(http.StatusServiceUnavailable, "SlowDown",
			"%d transfers are under way, which is the most; try again", maxTransfers)
	}
}

func resultOf(err error) string {
	var f *failure
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &f):
		return f.Message
	}
	return failureOf(err).Message
}
