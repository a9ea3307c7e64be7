// Package api serves the appliance's status on a unix socket, and asks for it. Whoever
// may open the socket is root on the appliance; it is no network service.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/limit"
)

// Server answers GET /v1/status, GET /v1/why, GET /v1/records, GET /v1/unknown, POST /v1/reload, POST /v1/adopt,
// POST /v1/approve, POST /v1/bmc/trust, POST /v1/rotate, POST /v1/erase,
// POST /v1/replace and POST /v1/login.
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
	// TrustBMC accepts the certificate that the BMC of a node shows in place of the pinned one, if it has this
	// fingerprint or if none is given. It returns the one before and the one that is trusted now.
	TrustBMC func(node, fingerprint string) (before, now string, err error)
	// Rotate begins to replace a secret, and says what happens from then on; the error is for people. nodes are those
	// whose BMCs are meant, all if there are none.
	Rotate func(secret string, nodes []string) (string, error)
	// Erase has disks of a node erased, its root device if none is named, if confirm is the node's name again; if it is
	// empty, it says what would be erased. The error is for people.
	Erase func(ctx context.Context, node string, disks []string, confirm string) (status.Erase, error)
	// Replace has the server of a node replaced by the one that the site names, if confirm is the node's name again. It
	// returns what is different; the error is for people.
	Replace func(node, confirm string) (string, error)
	// Audit writes down who asked for what loses data; nil: nothing is written.
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
	mux.HandleFunc("POST /v1/erase", s.serveErase)
	mux.HandleFunc("POST /v1/replace", s.serveReplace)
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

// Client asks the daemon behind Socket.
type Client struct {
	Socket string
}

// Status asks for the document.
func (c Client) Status(ctx context.Context) (status.Document, error) {
	var d status.Document
	body, err := c.do(ctx, http.MethodGet, "/v1/status")
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, fmt.Errorf("read status: %w", err)
	}

	return d, nil
}

// Why asks how every node stands.
func (c Client) Why(ctx context.Context) ([]status.Node, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/why")
	if err != nil {
		return nil, err
	}

	var nodes []status.Node
	if err := json.Unmarshal(body, &nodes); err != nil {
		return nil, fmt.Errorf("read what the daemon says of nodes: %w", err)
	}

	return nodes, nil
}

// Get asks for one of the paths that Server answers and returns what it says.
func (c Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path)
}

// Reload makes the daemon read the site again, and returns what is wrong with it. It returns before what
// it says is done.
func (c Client) Reload(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/v1/reload")
	return err
}

// Unknown asks for the machines that neither the site nor a host names.
func (c Client) Unknown(ctx context.Context) ([]status.UnknownMachine, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/unknown")
	if err != nil {
		return nil, err
	}

	var all []status.UnknownMachine
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("read unknown machines: %w", err)
	}

	return all, nil
}

// Trust is what became of TrustBMC: SHA-256 digests of certificates.
type Trust struct {
	Before string `json:"before"` // "": what was pinned could not be read
	Now    string `json:"now"`
}

// TrustBMC has the daemon accept the certificate that the BMC of a node shows; "" is whichever it has seen last.
func (c Client) TrustBMC(ctx context.Context, node, fingerprint string) (Trust, error) {
	asked := url.Values{"node": {node}, "fingerprint": {fingerprint}}
	body, err := c.do(ctx, http.MethodPost, "/v1/bmc/trust?"+asked.Encode())
	if err != nil {
		return Trust{}, err
	}

	var t Trust
	if err := json.Unmarshal(body, &t); err != nil {
		return Trust{}, fmt.Errorf("read what the daemon trusts: %w", err)
	}

	return t, nil
}

// Rotate has the daemon replace a secret, and returns what happens from then on. nodes are those whose BMCs are meant.
func (c Client) Rotate(ctx context.Context, secret string, nodes ...string) (text string, err error) {
	asked := url.Values{"secret": {secret}, "node": nodes}
	body, err := c.do(ctx, http.MethodPost, "/v1/rotate?"+asked.Encode())
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &text); err != nil {
		return "", fmt.Errorf("read what the daemon replaces: %w", err)
	}

	return text, nil
}

// Login has the daemon mint a code for the page, for somebody with a role.
func (c Client) Login(ctx context.Context, role, user string) (status.Login, error) {
	asked := url.Values{"role": {role}, "user": {user}}
	body, err := c.do(ctx, http.MethodPost, "/v1/login?"+asked.Encode())
	if err != nil {
		return status.Login{}, err
	}

	var l status.Login
	if err := json.Unmarshal(body, &l); err != nil {
		return status.Login{}, fmt.Errorf("read the code for the page: %w", err)
	}

	return l, nil
}

// Adopt has the daemon take nodes into service as they are; all that wait for it if none is named.
func (c Client) Adopt(ctx context.Context, nodes ...string) ([]string, error) {
	return c.doNames(ctx, "/v1/adopt", nodes)
}

// Approve has the daemon make nodes of machines; of all that await it if none is named.
func (c Client) Approve(ctx context.Context, nodes ...string) ([]string, error) {
	return c.doNames(ctx, "/v1/approve", nodes)
}

func (c Client) doNames(ctx context.Context, path string, nodes []string) ([]string, error) {
	body, err := c.do(ctx, http.MethodPost, path+"?"+url.Values{"node": nodes}.Encode())
	if err != nil {
		return nil, err
	}

	var names []string
	if err := json.Unmarshal(body, &names); err != nil {
		return nil, fmt.Errorf("read what the daemon did: %w", err)
	}

	return names, nil
}

// ApplianceReady is what Wait waits for when only the appliance itself matters.
func ApplianceReady(d status.Document) (done bool, err error) {
	switch d.State {
	case status.StateReady:
		return true, nil
	case status.StateFailed:
		return true, fmt.Errorf("the appliance stopped: %s", d.Summary)
	}
	return false, fmt.Errorf("not ready in time: %s", d.Summary)
}

// LaunchFinished is what Wait waits for when the site's nodes matter too: all of them proven, or
// none named. A launch that failed ends the wait at once.
func LaunchFinished(d status.Document) (done bool, err error) {
	if done, err := ApplianceReady(d); !done || err != nil {
		return done, err
	}
	switch d.Launch.State {
	case status.LaunchSucceeded, status.LaunchNothing:
		return true, nil
	case status.LaunchFailed:
		return true, errors.New(d.Launch.Text)
	}
	return false, fmt.Errorf("not launched in time: %s", d.Launch.Text)
}

// Wait asks until what is done, and returns the last document. It ends with an error when
// ctx does, or when what will not come by itself.
func (c Client) Wait(ctx context.Context, what func(status.Document) (done bool, err error)) (status.Document, error) {
	var last status.Document
	for {
		d, err := c.Status(ctx)
		missing := err
		if err == nil {
			var done bool
			if done, missing = what(d); done {
				return d, missing
			}
			last = d
		}

		select {
		case <-ctx.Done():
			if last.Version != "" {
				_, missing = what(last)
			}
			return last, missing
		case <-time.After(time.Second):
		}
	}
}

func (c Client) do(ctx context.Context, method, path string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://firstlight"+path, nil)
	if err != nil {
		return nil, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon at %s: %w", c.Socket, errors.Unwrap(err))
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", c.Socket, err)
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return nil, errors.New(string(bytes.TrimSpace(body))) // sentences for people
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("ask the daemon at %s: %s: %s", c.Socket, resp.Status, bytes.TrimSpace(body))
	}

	return body, nil
}
