// Package api serves the appliance's status on a unix socket, and asks for it. Whoever
// may open the socket is root on the appliance; it is no network service.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/limit"
)

// Server answers GET /v1/status, GET /v1/why, GET /v1/records, GET /v1/unknown, POST /v1/reload, POST /v1/adopt,
// POST /v1/approve, GET /v1/bmc/certificate, POST /v1/bmc/trust, POST /v1/rotate, POST /v1/erase,
// POST /v1/erase/cancel, POST /v1/replace, POST /v1/login, GET /v1/console and POST /v1/console.
type Server struct {
	Socket   string                 // path; status.SocketPath on the appliance
	Document func() status.Document // must not block
	Reload   func() error           // read the site again and look at every stage anew; what is wrong with it
	Ready    func()                 // called when the socket answers; may be nil

	// Adopt takes nodes into service as they are, all that wait for it if none is named. It returns those that it
	// took, also with an error, which says of each other why not.
	Adopt func(nodes []string) (adopted []string, err error)
	// Approve makes nodes of machines that await it, of all that do if none is named. It returns those that became nodes,
	// also with an error, which says of each other why not.
	Approve func(names []string) (approved []string, err error)
	// Unknown are the machines that neither the site nor a host names.
	Unknown func() []status.UnknownMachine
	// TrustBMC accepts the certificate that the BMC of a node shows in place of the pinned one, if it has this SHA-256. It
	// returns the one before and the one that is trusted now. BMCCertificate is what it would accept.
	TrustBMC       func(node, fingerprint string) (before, now string, err error)
	BMCCertificate func(node string) (status.BMCCertificate, error)
	// Rotate begins to replace a secret, and says what happens from then on; the error is for people. nodes are those
	// whose BMCs are meant, all if there are none.
	Rotate func(secret string, nodes []string) (string, error)
	// Erase has disks of a node erased, its root device if none is named, if word is that of what would be erased; if it is
	// empty, the answer says what would be, with the word. The error is for people.
	Erase func(ctx context.Context, node string, disks []string, word string) (status.Erase, error)
	// CancelErase takes that back, if nothing was written yet. The error is for people.
	CancelErase func(node string) (status.Erase, error)
	// Replace has the server of a node replaced by the one that the site names, if word is that of what would be replaced;
	// if it is empty, the answer says what would be, with the word. The error is for people.
	Replace func(node, word string) (status.Replace, error)
	// Kubeconfig is the log-in of a cluster's administrator, by the cluster's name, or by namespace/name; the error is for
	// people.
	Kubeconfig func(ctx context.Context, cluster string) ([]byte, error)
	// AttachConsole watches the serial console of a node, and opens it if it is not. TypeAtConsole types there, once it is
	// open. Their errors are for people.
	AttachConsole func(ctx context.Context, node string) (Console, error)
	TypeAtConsole func(node string, text []byte) error
	// Audit writes down who asked for what loses data or shows secrets; nil: nothing is written.
	Audit func(Change)
	// Login mints a code by which one browser is somebody, USER@HOST, with a role on the page; the error is for people.
	Login func(role, user string) (status.Login, error)
	Log   *slog.Logger

	Why     func() []status.Node     // every node, and machines that nobody named; must not block
	Records func() []boottrace.Trace // what was heard on the wire
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(s.Socket), 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", s.Socket, err)
	}
	// A socket that a killed daemon left answers nobody and keeps the name taken.
	if err := os.Remove(s.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}

	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.Socket, err)
	}
	if err := os.Chmod(s.Socket, 0o600); err != nil {
		l.Close()
		return fmt.Errorf("close %s to others: %w", s.Socket, err)
	}

	if s.Ready != nil {
		s.Ready()
	}

	server := &limit.Server{Handler: s.handler(), Log: s.Log}
	if err := server.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve %s: %w", s.Socket, err)
	}

	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Document()) })
	mux.HandleFunc("GET /v1/why", func(w http.ResponseWriter, _ *http.Request) {
		nodes := []status.Node{}
		if s.Why != nil {
			nodes = append(nodes, s.Why()...)
		}
		writeJSON(w, nodes)
	})
	mux.HandleFunc("GET /v1/records", func(w http.ResponseWriter, _ *http.Request) {
		records := []boottrace.Trace{}
		if s.Records != nil {
			records = append(records, s.Records()...)
		}
		writeJSON(w, records)
	})
	mux.HandleFunc("GET /v1/unknown", func(w http.ResponseWriter, _ *http.Request) {
		machines := []status.UnknownMachine{}
		if s.Unknown != nil {
			machines = append(machines, s.Unknown()...)
		}
		writeJSON(w, machines)
	})
	mux.HandleFunc("POST /v1/reload", func(w http.ResponseWriter, _ *http.Request) {
		s.Log.Info("reload asked")
		if err := s.Reload(); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("POST /v1/adopt", s.answerNames("adoption", "is adopted", s.Adopt))
	mux.HandleFunc("POST /v1/approve", s.answerNames("approval", "is approved", s.Approve))
	mux.HandleFunc("GET /v1/bmc/certificate", func(w http.ResponseWriter, r *http.Request) {
		shown, err := s.BMCCertificate(r.URL.Query().Get("node"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, shown)
	})
	mux.HandleFunc("POST /v1/bmc/trust", func(w http.ResponseWriter, r *http.Request) {
		node, fingerprint := r.URL.Query().Get("node"), r.URL.Query().Get("fingerprint")
		s.Log.Info("trust in the certificate of a BMC asked", "node", node, "sha256", fingerprint)
		before, now, err := s.TrustBMC(node, fingerprint)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, Trust{before, now})
	})
	mux.HandleFunc("POST /v1/rotate", func(w http.ResponseWriter, r *http.Request) {
		secret, nodes := r.URL.Query().Get("secret"), r.URL.Query()["node"]
		s.Log.Info("rotation asked", "secret", secret, "nodes", nodes)
		text, err := s.Rotate(secret, nodes)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, text)
	})
	mux.HandleFunc("GET /v1/kubeconfig", s.serveKubeconfig)
	mux.HandleFunc("POST /v1/erase", s.serveErase)
	mux.HandleFunc("POST /v1/erase/cancel", s.serveCancelErase)
	mux.HandleFunc("POST /v1/replace", s.serveReplace)
	mux.HandleFunc("GET /v1/console", s.serveConsole)
	mux.HandleFunc("POST /v1/console", s.serveTyping)
	mux.HandleFunc("POST /v1/login", func(w http.ResponseWriter, r *http.Request) {
		role, user := r.URL.Query().Get("role"), r.URL.Query().Get("user")
		login, err := s.Login(role, user)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		s.Log.Info("code for the page asked", "role", role, "user", user, "expires", login.Expires)
		writeJSON(w, login)
	})
	return mux
}

// answerNames does something to nodes by their names and answers for which of them it was done; deed is what was asked,
// done what became of one.
func (s *Server) answerNames(deed, done string, do func(names []string) ([]string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.Log.Info(deed+" asked", "nodes", r.URL.Query()["node"])
		names, err := do(r.URL.Query()["node"])
		if err != nil {
			for _, name := range names {
				err = fmt.Errorf("%s %s\n%w", name, done, err)
			}
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, names)
	}
}

func writeJSON(w http.ResponseWriter, what any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	if err := e.Encode(what); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes())
}
