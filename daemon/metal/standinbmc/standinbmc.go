// Package standinbmc stands in for the BMC of servers that have none. Ironic speaks Redfish to it, on the loopback, as
// to any BMC; it remembers what power state and boot device are wanted, and does nothing. The server itself is switched
// on by a person, or boots by itself: from the network it gets what Ironic prepared, and goes on from there.
package standinbmc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/pxe/limit"
)

// Address is where it listens: on the loopback, which Ironic's pod shares.
const Address = "127.0.0.1:6187"

// Paths (DMTF, DSP0266).
const (
	root     = "/redfish/v1"
	systems  = root + "/Systems"
	managers = root + "/Managers"
	resetTo  = "/Actions/ComputerSystem.Reset"
	username = "firstlight"
)

const passwordName = "password" // in Dir

// State is what is wanted of a server.
type State struct {
	Power   string `json:"power"` // On or Off
	Target  string `json:"target,omitempty"`
	Enabled string `json:"enabled,omitempty"`
	Mode    string `json:"mode,omitempty"`
}

// Server stands in for all servers without a BMC.
type Server struct {
	Dir string // on DATA: the password that is minted, and what is wanted
	Log *slog.Logger
	// Waiting are the nodes for which Ironic has another password than the one given, each with the reason.
	Waiting func(ctx context.Context, password string) ([]string, error)

	mu      sync.Mutex
	states  map[string]State // by node; nil until read
	waiting []string         // that a rotation waits for
}

// BMC is how Ironic speaks to the stand-in of a node.
func (s *Server) BMC(node site.Name) (*site.BMC, error) {
	password, err := s.password()
	if err != nil {
		return nil, err
	}
	return &site.BMC{
		Address:  site.BMCAddress("redfish+http://" + Address + systems + "/" + url.PathEscape(string(node))),
		Username: username,
		Password: site.NewSecret(password),
	}, nil
}

// password is minted once and kept.
func (s *Server) password() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadPassword()
}

// loadPassword is password for who has the lock.
func (s *Server) loadPassword() (string, error) {
	if text, err := os.ReadFile(filepath.Join(s.Dir, passwordName)); err == nil && len(text) == 32 {
		return string(text), nil
	}
	return s.mintPassword()
}

func (s *Server) mintPassword() (string, error) {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails: crypto/rand
	text := hex.EncodeToString(random)
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", err
	}
	if err := atomicfile.Write(filepath.Join(s.Dir, passwordName), []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("keep password of stand-in BMC: %w", err)
	}

	return text, nil
}

// accepts reports whether a password is the present one, or the one of before while that is taken.
func (s *Server) accepts(given string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present, err := s.loadPassword()
	if err != nil {
		return false, err
	}
	former, err := s.loadFormer()
	if err != nil {
		return false, err
	}
	isPresent := subtle.ConstantTimeCompare([]byte(given), []byte(present)) == 1
	return isPresent || former != "" && subtle.ConstantTimeCompare([]byte(given), []byte(former)) == 1, nil
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", Address)
	if err != nil {
		return fmt.Errorf("listen as stand-in BMC: %w", err)
	}

	if err := (&limit.Server{Handler: s, Log: s.Log}).Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("serve as stand-in BMC: %w", err)
	}

	return nil
}

// ServeHTTP answers one request of Ironic's.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == root && r.Method == http.MethodGet { // needs no password (DSP0266, 9.4.1)
		writeJSON(w, http.StatusOK, serviceRoot())
		return
	}

	user, given, _ := r.BasicAuth()
	accepted, err := s.accepts(given)
	if err != nil {
		s.Log.Error("stand-in BMC does not answer", "error", err)
		writeError(w, http.StatusInternalServerError, "The password cannot be read.")
		return
	}
	if user != username || !accepted {
		writeError(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}

	switch rest, isSystem := strings.CutPrefix(path, systems+"/"); {
	case isSystem:
		s.serveSystem(w, r, rest)
	case path == managers+"/1" && r.Method == http.MethodGet:
		writeJSON(w, http.StatusOK, manager())
	default:
		writeError(w, http.StatusNotFound, "There is no such resource.")
	}
}

// serveSystem answers for the system of a node: what is wanted, and what is to be wanted.
func (s *Server) serveSystem(w http.ResponseWriter, r *http.Request, rest string) {
	name, action, _ := strings.Cut(rest, "/")
	var ask struct {
		ResetType string
		Boot      struct {
			Target  *string `json:"BootSourceOverrideTarget"`
			Enabled *string `json:"BootSourceOverrideEnabled"`
			Mode    *string `json:"BootSourceOverrideMode"`
		}
	}
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&ask); err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
	}

	var change func(*State)
	switch {
	case r.Method == http.MethodGet && action == "":
	case r.Method == http.MethodPatch && action == "":
		change = func(state *State) {
			for field, value := range map[*string]*string{
				&state.Target: ask.Boot.Target, &state.Enabled: ask.Boot.Enabled, &state.Mode: ask.Boot.Mode,
			} {
				if value != nil {
					*field = *value
				}
			}
		}
	case r.Method == http.MethodPost && "/"+action == resetTo && slices.Contains(resetTypes(), ask.ResetType):
		change = func(state *State) {
			state.Power = "On"
			if ask.ResetType == "ForceOff" || ask.ResetType == "GracefulShutdown" {
				state.Power = "Off"
			}
		}
	default:
		writeError(w, http.StatusNotFound, "There is no such resource or action.")
		return
	}

	state, err := s.update(name, change)
	if err != nil {
		s.Log.Error("stand-in BMC does not keep what it is told", "node", name, "error", err)
		writeError(w, http.StatusInternalServerError, "It cannot be kept.")
		return
	}
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusNoContent)
		return
	}

	writeJSON(w, http.StatusOK, system(name, state))
}

// update changes what is wanted of a node, on DATA first; nil changes nothing. A node of which nothing is known is on:
// it may be in service.
func (s *Server) update(node string, change func(*State)) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.Dir, "states.json")
	if s.states == nil {
		s.states = map[string]State{}
		if text, err := os.ReadFile(path); err == nil {
			_ = json.Unmarshal(text, &s.states) // one that is torn says nothing
		}
	}

	state, known := s.states[node]
	if !known {
		state.Power = "On"
	}
	if change == nil {
		return state, nil
	}

	before := state
	change(&state)
	if known && before == state {
		return state, nil
	}

	all := maps.Clone(s.states)
	all[node] = state
	text, err := json.Marshal(all)
	if err != nil {
		return before, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return before, err
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return before, err
	}

	s.states = all
	return state, nil
}
