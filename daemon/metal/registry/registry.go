// Package registry serves container images to nodes: those of the stick, straight from their OCI layout,
// and those that were pushed to the appliance. The protocol is the registry library's (distribution);
// what is ours is where its bytes come from and who may write.
//
//	GET, HEAD    everybody on the networks where it is served, of the stick's images; of uploaded ones the
//	             nodes of their owner's clusters, by their addresses
//	the rest     a client certificate of the appliance's authority with the name Writer; 401 or 403 else
//	             and nobody for a repository of the stick: 403
//
// Names: firstlight.internal/NAME of the stick is the repository NAME. containerd asks its mirrors with
// the registry's name beside the path (?ns=registry.example); here that is the repository registry.example/NAME, so
// that an image of any registry can be pushed and pulled under its own name.
package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/pxe/limit"
)

// Writer is the common name of the client certificate that may push and delete.
const Writer = "registry-writer"

// AddressesPath is where the registry says at which addresses it is served: the text of one netip.Prefix a
// line, in the order of Config.Addrs. Who installs nodes chooses one for each.
const AddressesPath = "/addresses"

// Config is what is served and where.
type Config struct {
	Addrs  []netip.Prefix // our addresses, each with its network's length; first that for nodes on none of the networks
	Port   uint16
	Layout string // OCI layout; may be absent
	Store  string // directory for what is pushed; made when something is

	// Certificate is asked for at every connection, so that a renewed one is used at once.
	Certificate func() (tls.Certificate, error)
	Writers     func() *x509.CertPool // signed the writers' certificates, likewise

	// Owner says whose uploaded images a machine gets, by its address; "": nobody's. nil: nobody gets any.
	Owner func(netip.Addr) string

	// Public are texts that a node needs before it trusts anything, by path: /ca.crt, the certificates of
	// who may have signed Certificate. Whoever asks for them must have another reason to believe the answer.
	Public func() map[string][]byte

	Registry prometheus.Registerer // may be nil
	Log      *slog.Logger

	// Known reports whether a client is a node of the site, for which half of the connections are kept; nil: none is.
	Known func(netip.Addr) bool
}

// Server serves one registry.
type Server struct {
	config  Config
	layout  *imageLayout
	storage *storageDriver
	handler http.Handler
	pushes  pushes
}

var registered = sync.OnceFunc(register)

// New reads the bundle. Nothing is listened on before Run.
func New(c Config) (*Server, error) {
	b, err := openLayout(c.Layout)
	if err != nil {
		return nil, err
	}
	return newServer(c, b)
}

// newServer serves a bundle that was read.
func newServer(c Config, b *imageLayout) (*Server, error) {
	store, err := newStorage(b, c.Store)
	if err != nil {
		return nil, err
	}

	registered()
	conf := &configuration.Configuration{Version: "0.1", Storage: configuration.Storage{
		"firstlight": {driverParameter: store},
		"delete":     {"enabled": true},
		"redirect":   {"disable": true},
	}}
	conf.Catalog.MaxEntries = 1000
	conf.Validation.Disabled = true // an image for one platform out of several is welcome
	s := &Server{config: c, layout: b, storage: store, pushes: pushes{due: true, last: time.Now()}}
	s.handler = s.count(s.guard(handlers.NewApp(context.Background(), conf)))
	return s, nil
}

// Images are the names of the stick's images, without the domain.
func (s *Server) Images() []string { return slices.Sorted(maps.Keys(s.layout.images)) }

// ServeHTTP answers one request; TLS has been done.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Run serves at every address until ctx ends, or at none: an address that is not there ends it with an error.
func (s *Server) Run(ctx context.Context) error {
	var listeners []net.Listener
	for _, a := range s.config.Addrs {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(a.Addr(), s.config.Port).String())
		if err != nil {
			for _, open := range listeners {
				_ = open.Close()
			}
			return fmt.Errorf("listen for container images: %w", err)
		}
		listeners = append(listeners, l)
	}

	server := &limit.Server{
		Handler: s,
		Log:     s.config.Log,
		Known:   s.config.Known,
		TLS:     &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.newTLS},
	}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { s.runCollector(serving); return nil })
	group.Go(func() error { return server.Serve(serving, listeners...) })
	if err := group.Wait(); ctx.Err() == nil {
		return fmt.Errorf("serve container images: %w", err)
	}

	return nil
}

// newTLS is for one connection.
func (s *Server) newTLS(*tls.ClientHelloInfo) (*tls.Config, error) {
	certificate, err := s.config.Certificate()
	if err != nil {
		return nil, err
	}

	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	if s.config.Writers != nil {
		c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, s.config.Writers()
	}
	return c, nil
}

// addresses is the text at AddressesPath.
func (s *Server) addresses() (text []byte) {
	for _, a := range s.config.Addrs {
		text = fmt.Appendln(text, a)
	}
	return text
}

// public is a text for everybody.
func (s *Server) public(path string) (text []byte, ok bool) {
	if path == AddressesPath {
		return s.addresses(), true
	}
	if s.config.Public == nil {
		return nil, false
	}
	text, ok = s.config.Public()[path]
	return text, ok
}

// guard decides who may do what, and under which name.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, public := s.public(r.URL.Path)

		if public && r.Method == http.MethodGet {
			_, _ = w.Write(text)
			return
		}

		mapRepository(r.URL)
		code, why := s.refusal(r)
		if code == 0 && !isWriter(r) {
			code, why = s.mapOwner(r)
		}
		if code != 0 {
			s.config.Log.Info(
				"registry request refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "why", why,
			)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":%q}]}`+"\n", why)
			return
		}

		if isPush(r) {
			defer s.pushes.enter(r.Method)()
		}

		next.ServeHTTP(w, r)
	})
}

// isPush tells whether a request is part of a push or a removal. One who pushes also asks which layers are
// there already, and relies on the answer. Who asks for an image by its name does not: what has a name
// stays, and the agent asks so twice a minute for ever.
func isPush(r *http.Request) bool {
	if !isWriter(r) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return true
	}

	switch path.Base(path.Dir(r.URL.Path)) {
	case "blobs", "uploads":
		return true
	case "manifests":
		return strings.Contains(path.Base(r.URL.Path), ":") // a digest, never a tag
	}

	return false
}

func isWriter(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && r.TLS.VerifiedChains[0][0].Subject.CommonName == Writer
}

// mapOwner gives a repository the name that it has among those of whoever owns the machine that asks. What the stick
// has comes from the stick, whatever somebody uploaded under that name.
func (s *Server) mapOwner(r *http.Request) (code int, why string) {
	if path.Clean(r.URL.Path) == "/v2/_catalog" {
		return http.StatusForbidden, "the names of images are their owners'; firstlight artifact list shows yours"
	}

	repository := repositoryOf(r.URL.Path)
	switch {
	case repository == "" && path.Clean(r.URL.Path) != "/v2":
		return http.StatusNotFound, "there is nothing here but images"
	case repository == "", s.layout.hasRepository(repository):
		return 0, ""
	}

	owner := ""
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && s.config.Owner != nil {
		owner = s.config.Owner(from.Addr().Unmap())
	}
	if owner == "" {
		return http.StatusNotFound, fmt.Sprintf("the stick has no image %s, and uploaded ones are for nodes of their owner's clusters", repository)
	}

	name := repository
	if domain, _, _ := strings.Cut(name, "/"); !strings.Contains(domain, ".") {
		name = assets.ImageDomain + "/" + name
	}

	rest := strings.TrimPrefix(r.URL.Path, "/v2/"+repository)
	r.URL.Path, r.URL.RawPath = "/v2/"+artifact.ServedImage(owner, name)+rest, ""
	return 0, ""
}

// mapRepository gives a repository of another registry its name here.
func mapRepository(u *url.URL) {
	query := u.Query()
	from := query.Get("ns")
	rest, ours := strings.CutPrefix(u.Path, "/v2/")
	if from == "" || from == assets.ImageDomain || !ours || rest == "" {
		return
	}

	u.Path = "/v2/" + from + "/" + rest
	query.Del("ns")
	u.RawPath, u.RawQuery = "", query.Encode()
}

// refusal says why a request is not answered; 0 lets it pass.
func (s *Server) refusal(r *http.Request) (code int, why string) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return 0, ""
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return http.StatusUnauthorized, "only the appliance itself pushes images here; use firstlight artifact push"
	}
	if name := r.TLS.VerifiedChains[0][0].Subject.CommonName; name != Writer {
		return http.StatusForbidden, fmt.Sprintf("certificate of %q may not push images", name)
	}
	if repository := repositoryOf(r.URL.Path); s.layout.hasRepository(stickName(repository)) {
		return http.StatusForbidden, fmt.Sprintf(
			"image %s is the stick's own and stays as it is; use another name", stickName(repository),
		)
	}

	return 0, ""
}

// stickName is the name that an uploaded image would have on the stick.
func stickName(repository string) string {
	rest, uploaded := strings.CutPrefix(repository, artifact.ServedPath)
	if !uploaded {
		return repository
	}
	_, rest, _ = strings.Cut(rest, "/")
	return strings.TrimPrefix(rest, assets.ImageDomain+"/")
}

// repositoryOf is NAME of /v2/NAME/{manifests,blobs,tags}/…; "" if there is none.
func repositoryOf(where string) string {
	rest, _ := strings.CutPrefix(where, "/v2/")
	for _, part := range []string{"/manifests/", "/blobs/", "/tags/"} {
		if i := strings.LastIndex(rest, part); i > 0 {
			return rest[:i]
		}
	}
	return ""
}

// count counts requests and sent bytes, by outcome, and logs what went wrong here.
func (s *Server) count(next http.Handler) http.Handler {
	counters := NewCounters(s.config.Registry)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &countingWriter{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(c, r)
		counters.Requests.WithLabelValues(methodLabel(r.Method), strconv.Itoa(c.code)).Inc()
		counters.SentBytes.Add(float64(c.bytes))
		if c.code >= http.StatusInternalServerError {
			s.config.Log.Error(
				"registry request went wrong", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "status",
				c.code,
			)
		}
	})
}

// methodLabel is one of the few that are, so that nobody can fill the metrics with names.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete:
		return m
	}
	return "other"
}

type countingWriter struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (c *countingWriter) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }
