// Package bootserver is the HTTP server of the provisioning network: boot programs, one
// iPXE script per machine, kernels, ramdisks and OS images, with ranges and sendfile.
// It serves files read-only through os.Root and redirects nobody: UEFI HTTP boot gives
// up on a 301, so "//file" is answered like "/file".
package bootserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/limit"
	"firstlight.dev/firstlight/pxe/metrics"
)

// Server answers GET and HEAD. Addr, Metrics and Log are required; Base, Files and Booter together: without
// a Booter there are neither programs nor scripts, and only the mounts and discs are served.
type Server struct {
	Addr   netip.AddrPort
	Device string // if set, the socket is bound to this interface (SO_BINDTODEVICE)
	Base   string // how clients reach the server, e.g. http://172.22.0.1:8080, no slash at the end

	Files  *bootfile.Set // boot programs, at pxe.BootPath
	Mounts []Mount       // the longest matching path serves

	Booter   pxe.Booter          // nil: nothing is booted from here
	Machines pxe.Machines        // nil: no client is known by its address; needs a Booter or Disc
	Minter   pxe.Minter          // makes the tokens of boots that ask for one; nil: those are not served
	Record   *boottrace.Recorder // may be nil

	// Disc is the disc that a machine boots from, at pxe.DiscPath: Machines is asked for the machine whose BMC has an
	// address. The error is a sentence why there is none now. nil: none is served.
	Disc func(ctx context.Context, m pxe.Machine) (File, fs.FileInfo, error)

	Metrics *metrics.Metrics
	Log     *slog.Logger

	Stall          time.Duration // a client that takes no megabyte in this time is cut off; 0: 1 minute
	MaxConnections int           // at once, our own apart; 0: 1024
	MaxPerClient   int           // of one address at once, our own apart; 0: 64

	// Known reports whether a machine is to be served whatever others do; half of the connections are kept for
	// such machines. nil: none is.
	Known func(netip.Addr) bool
}

// Mount is a directory at a path. The one at "/" is where scripts named by pxe.Boot are.
type Mount struct {
	Path string // begins and ends with "/"
	Root *os.Root
	// Digest knows the SHA-256 (hex) of a file by its name below Root; "" if not. It
	// becomes the ETag and Repr-Digest (RFC 9530). May be nil.
	Digest func(name string) string
	// Open opens a file by its name below Root, where not every file lies there as it is served. The
	// error is one of package bootfile's. nil: regular files are served.
	Open func(root *os.Root, name string) (File, fs.FileInfo, error)
}

// File is what is served.
type File interface {
	io.ReadSeeker
	io.Closer
}

func (m *Mount) open(name string) (File, fs.FileInfo, error) {
	if m.Open != nil {
		return m.Open(m.Root, name)
	}

	file, info, err := bootfile.OpenRegular(m.Root, name)
	if err != nil {
		return nil, nil, err
	}

	return file, info, nil
}

const (
	defaultStall = time.Minute
	maxHeader    = 16 << 10
)

// Listen opens the socket. Run does it too; a caller that must know the port first
// passes the listener to Serve.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	listener, err := pxe.ListenOn(s.Device).Listen(ctx, "tcp", s.Addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP on %s: %w", s.Addr, err)
	}

	return listener, nil
}

// Run listens and serves until ctx ends; downloads under way are cut then.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.Listen(ctx)
	if err != nil {
		return err
	}
	return s.Serve(ctx, listener)
}

// Serve answers on listener until ctx ends. It closes listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &limit.Server{
		Handler:     s,
		Log:         s.Log.With("part", "http"),
		Connections: s.MaxConnections,
		PerClient:   s.MaxPerClient,
		Known:       s.Known,
		Stall:       s.Stall,
		MaxHeader:   maxHeader,
	}
	return server.Serve(ctx, listener)
}

// ServeHTTP answers one request, counts it and logs it with the machine that asked.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	s.Metrics.HTTPActive.Inc()
	defer s.Metrics.HTTPActive.Dec()
	b := &body{ResponseWriter: w, control: http.NewResponseController(w), stall: s.Stall}
	if b.stall <= 0 {
		b.stall = defaultStall
	}

	machine := s.machineOf(r)
	defer func() {
		if fault := recover(); fault != nil {
			s.Metrics.Panics.WithLabelValues("http").Inc()
			s.Log.Error("http: handler panicked", "path", r.URL.Path, "panic", fault)
			if b.status == 0 {
				http.Error(b, "the server failed; its log says why", http.StatusInternalServerError)
			}
		}

		s.Metrics.HTTPRequests.WithLabelValues(fmt.Sprintf("%dxx", max(b.status, 200)/100)).Inc()
		s.Metrics.HTTPBytes.Add(float64(b.bytes))
		s.Log.Info("http: request", "mac", machine.MAC.String(), "client", r.RemoteAddr, "method", r.Method, "path", truncate(r.URL.Path),
			"range", truncate(r.Header.Get("Range")), "status", b.status, "bytes", b.bytes, "seconds", time.Since(begun).Seconds())
	}()

	s.route(b, r, machine)
}

// route finds what a path means.
func (s *Server) route(w *body, r *http.Request, machine pxe.Machine) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this server is read only: it answers GET and HEAD", http.StatusMethodNotAllowed)
		return
	}

	name, err := bootfile.CleanName(r.URL.Path)
	if err != nil {
		http.Error(w, "refused: "+err.Error(), http.StatusBadRequest)
		return
	}
	if name == pxe.GRUBConfig && s.Files != nil && s.Booter != nil {
		s.bootProgram(w, r, machine, name)
		return
	}
	for _, l := range loaders {
		if id, ok := strings.CutPrefix("/"+name, l.path); ok && s.Booter != nil {
			s.script(w, r, machine, l, id)
			return
		}
	}
	if file, ok := strings.CutPrefix("/"+name, pxe.BootPath); ok && s.Files != nil && s.Booter != nil {
		s.bootProgram(w, r, machine, file)
		return
	}

	if "/"+name == pxe.DiscPath && s.Disc != nil {
		s.disc(w, r, machine)
		return
	}

	var best *Mount
	for i, m := range s.Mounts {
		if strings.HasPrefix("/"+name, m.Path) && (best == nil || len(m.Path) > len(best.Path)) {
			best = &s.Mounts[i]
		}
	}

	if best == nil {
		http.Error(w, bootfile.ErrNotFound.Error(), http.StatusNotFound)
		return
	}

	below := strings.TrimPrefix("/"+name, best.Path)
	file, info, err := best.open(below)
	if err != nil {
		writeRefusal(w, err)
		return
	}
	defer file.Close()

	digest := ""
	if best.Digest != nil {
		digest = best.Digest(below)
	}

	s.send(w, r, machine, s.bootStep(r.Context(), machine, name), name, file, info, digest)
}

// machineOf finds who asks, by the lease of the address.
func (s *Server) machineOf(r *http.Request) pxe.Machine {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return pxe.Machine{}
	}

	addr := from.Addr().Unmap()
	if s.Machines != nil {
		if machine, ok := s.Machines.MachineAt(addr); ok {
			return machine
		}
	}

	return pxe.Machine{Addr: addr}
}

// disc sends the disc of the machine whose BMC asks.
func (s *Server) disc(w *body, r *http.Request, machine pxe.Machine) {
	if len(machine.MAC) == 0 {
		http.Error(w, "no node that boots from a disc has its BMC at this address", http.StatusNotFound)
		return
	}

	file, info, err := s.Disc(r.Context(), machine)
	if err != nil {
		http.Error(w, "there is no disc for this node now: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer file.Close()

	s.send(w, r, machine, boottrace.StepDisc, strings.TrimPrefix(pxe.DiscPath, "/"), file, info, "")
}

// bootProgram sends a file of the fixed set, unless the machine may not boot.
func (s *Server) bootProgram(w *body, r *http.Request, machine pxe.Machine, name string) {
	if len(machine.MAC) > 0 {
		if boot := s.Booter.Boot(r.Context(), machine); boot.Action == pxe.ActionRefuse {
			reason := machine.MAC.String() + " may not boot from here: " + boot.Reason
			s.Record.Add(boottrace.Event{
				MAC:     machine.MAC,
				Addr:    machine.Addr,
				Step:    boottrace.StepBootFile,
				Detail:  name,
				Refused: boot.Reason,
			})
			http.Error(w, reason, http.StatusForbidden)
			return
		}
	}

	file, info, err := s.Files.Open(name)
	if err != nil {
		writeRefusal(w, err)
		return
	}
	defer file.Close()

	s.send(w, r, machine, boottrace.StepBootFile, name, file, info, "")
}

// writeRefusal answers with the sentence of a bootfile error.
func writeRefusal(w http.ResponseWriter, err error) {
	status := http.StatusNotFound
	switch {
	case errors.Is(err, bootfile.ErrName):
		status = http.StatusBadRequest
	case errors.Is(err, bootfile.ErrNotFile):
		status = http.StatusForbidden
	case errors.Is(err, bootfile.ErrRead):
		status = http.StatusInternalServerError
	}
	http.Error(w, err.Error(), status)
}

// truncate cuts what a client sent to what a log line can hold; slog quotes the rest.
func truncate(text string) string { return excerpt.Start(text, 200) }
