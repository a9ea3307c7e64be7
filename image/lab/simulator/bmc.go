package simulator

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Paths of every BMC. DSP0266 fixes the first, the others are its own to choose.
const (
	rootPath     = "/redfish/v1"
	systemPath   = rootPath + "/Systems/1"
	resetPath    = systemPath + "/Actions/ComputerSystem.Reset"
	managerPath  = rootPath + "/Managers/1"
	chassisPath  = rootPath + "/Chassis/1"
	nicsPath     = systemPath + "/EthernetInterfaces"
	sessionsPath = rootPath + "/SessionService/Sessions"
	accountsPath = rootPath + "/AccountService"
)

type object = map[string]any

// override is what the next boot is told (ComputerSystem.Boot).
type override struct{ Target, Enabled, Mode string }

// consume tells whether the next boot begins with the network, and uses up what was meant for one boot.
func (o *override) consume() (network bool) {
	network = o.Target == "Pxe" && (o.Enabled == "Once" || o.Enabled == "Continuous")
	if o.Enabled == "Once" {
		o.Target, o.Enabled = "None", "Disabled"
	}
	return network
}

// serveBMC answers one request, at once or with the host's fault.
func (h *Server) serveBMC(w http.ResponseWriter, r *http.Request) {
	switch faults := h.currentFaults(); {
	case faults.Hang:
		h.logEvent("bmc: hangs on %s %s", r.Method, r.URL.Path)
		select {
		case <-r.Context().Done():
		case <-h.simulator.ctx.Done():
		}
		panic(http.ErrAbortHandler) // no answer at all, not an empty one
	case faults.Status != 0:
		writeError(w, faults.Status, "The service is not well.")
		return
	}

	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == rootPath && r.Method == http.MethodGet { // the one resource that needs no password
		writeJSON(w, http.StatusOK, serviceRoot())
		return
	}
	if r.Method == http.MethodPost && path == sessionsPath {
		h.serveLogin(w, r)
		return
	}
	if !h.isAuthorized(r) {
		h.logEvent("bmc: refuses %s %s", r.Method, path)
		writeError(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}

	switch r.Method + " " + path {
	case "GET " + systemPath:
		h.count(func(c *Counters) { c.BMCReads++ })
		writeJSON(w, http.StatusOK, h.system())
	case "PATCH " + systemPath:
		h.servePatch(w, r)
	case "POST " + resetPath:
		h.serveReset(w, r)
	case "GET " + accountPath(userSlot):
		h.serveAccount(w)
	case "PATCH " + accountPath(userSlot):
		h.serveNewPassword(w, r)
	case "POST " + managerPath + "/Actions/Manager.Reset":
		h.write("bmc: reset of itself")
		w.WriteHeader(http.StatusNoContent)
	default:
		h.serveOther(w, r, path)
	}
}

// serveOther answers what only describes the BMC, and says no to everything else.
func (h *Server) serveOther(w http.ResponseWriter, r *http.Request, path string) {
	token, session := strings.CutPrefix(path, sessionsPath+"/")
	if r.Method == http.MethodDelete && session {
		h.mu.Lock()
		delete(h.sessions, token)
		h.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}

	static := map[string]object{
		rootPath + "/Systems": collection(
			"#ComputerSystemCollection.ComputerSystemCollection", rootPath+"/Systems", systemPath,
		),
		rootPath + "/Managers": collection(
			"#ManagerCollection.ManagerCollection", rootPath+"/Managers", managerPath,
		),
		rootPath + "/Chassis": collection(
			"#ChassisCollection.ChassisCollection", rootPath+"/Chassis", chassisPath,
		),
		rootPath + "/SessionService": sessionService(),
		sessionsPath:                 collection("#SessionCollection.SessionCollection", sessionsPath),
		nicsPath: collection(
			"#EthernetInterfaceCollection.EthernetInterfaceCollection", nicsPath, nicsPath+"/1",
		),
		nicsPath + "/1": h.nic(),
		accountsPath:    accountService(),
		accountsPath + "/Accounts": collection(
			"#ManagerAccountCollection.ManagerAccountCollection", accountsPath+"/Accounts", accountPath(1), accountPath(userSlot),
		),
		accountPath(1): account(1, ""),
		managerPath:    manager(),
		chassisPath:    chassis(),
	}
	if body, there := static[path]; there && r.Method == http.MethodGet {
		h.count(func(c *Counters) { c.BMCReads++ })
		writeJSON(w, http.StatusOK, body)
		return
	}

	h.count(func(c *Counters) { c.BMCUnknown++ })
	h.logEvent("bmc: has no %s %s", r.Method, path)
	writeError(w, http.StatusNotFound, "There is no such resource.")
}

// serveLogin opens a session (DSP0266, 13.3.4): the token goes into a header.
func (h *Server) serveLogin(w http.ResponseWriter, r *http.Request) {
	var ask struct{ UserName, Password string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !h.checkPassword(ask.UserName, ask.Password) {
		h.logEvent("bmc: refuses a session to %q", ask.UserName)
		writeError(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}

	token := random()
	h.mu.Lock()
	h.sessions[token] = true
	h.mu.Unlock()
	where := sessionsPath + "/" + token
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", where)
	writeJSON(w, http.StatusCreated, object{
		"@odata.id":   where,
		"@odata.type": "#Session.v1_1_0.Session",
		"Id":          token,
		"Name":        "Session",
		"UserName":    ask.UserName,
	})
}

// isAuthorized checks the token of a session, or a password.
func (h *Server) isAuthorized(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		// A BMC whose password was changed has ended the sessions of the old one.
		ok := h.sessions[token] && h.faults.Password == ""
		h.countLogin(ok)
		return ok
	}
	user, password, _ := r.BasicAuth()
	return h.checkPassword(user, password)
}

func (h *Server) checkPassword(user, password string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := cmp.Or(h.password, h.simulator.config.Password)
	if h.faults.Password != "" {
		want = h.faults.Password
	}

	ok := user == h.simulator.config.Username && password == want
	h.countLogin(ok)
	return ok
}

func (h *Server) countLogin(ok bool) {
	if ok {
		h.seen.BMCLogins++
	} else {
		h.seen.BMCRefused++
	}
}

// write counts something that changes the host.
func (h *Server) write(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.BMCWrites++
	h.logEventLocked(format, args...)
}

// servePatch sets the boot override.
func (h *Server) servePatch(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Boot struct {
			Target  *string `json:"BootSourceOverrideTarget"`
			Enabled *string `json:"BootSourceOverrideEnabled"`
			Mode    *string `json:"BootSourceOverrideMode"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if t := ask.Boot.Target; t != nil && !slices.Contains(bootTargets(), *t) {
		writeError(w, http.StatusBadRequest, "This target is not among the allowable values.")
		return
	}

	h.mu.Lock()
	for field, value := range map[*string]*string{
		&h.override.Target:  ask.Boot.Target,
		&h.override.Enabled: ask.Boot.Enabled,
		&h.override.Mode:    ask.Boot.Mode,
	} {
		if value != nil {
			*field = *value
		}
	}

	now := h.override
	h.mu.Unlock()
	h.write("bmc: boot override %s %s %s", now.Target, now.Enabled, now.Mode)
	writeJSON(w, http.StatusOK, h.system())
}

// serveReset presses a button.
func (h *Server) serveReset(w http.ResponseWriter, r *http.Request) {
	var ask struct{ ResetType string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !slices.Contains(resetTypes(), ask.ResetType) {
		writeError(w, http.StatusBadRequest, "This reset type is not among the allowable values.")
		return
	}

	h.write("bmc: reset %s", ask.ResetType)
	w.WriteHeader(http.StatusNoContent)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.faults.StuckPower {
		return
	}

	switch ask.ResetType {
	case "On":
		h.power(true)
	case "ForceOff", "GracefulShutdown":
		h.power(false)
	case "PushPowerButton":
		h.power(h.running == nil)
	default:
		h.power(false)
		h.power(true)
	}
}

func bootTargets() []string { return []string{"None", "Pxe", "Hdd", "Cd", "BiosSetup"} }

func resetTypes() []string {
	return []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PushPowerButton"}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// writeError answers with an error as DSP0266, 8.6, wants it.
func writeError(w http.ResponseWriter, code int, sentence string) {
	writeJSON(w, code, object{"error": object{"code": "Base.1.0.GeneralError", "message": sentence}})
}

// random is a token that nobody guesses.
func random() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails: crypto/rand
	return hex.EncodeToString(b)
}

func uuid(i int) string { return fmt.Sprintf("46494e45-0000-4000-8000-%012d", i) }

// timestamp is a BMC's clock.
func timestamp() string { return time.Now().UTC().Format(time.RFC3339) }
