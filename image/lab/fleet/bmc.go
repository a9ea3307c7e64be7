package fleet

import (
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
	sessionsPath = rootPath + "/SessionService/Sessions"
)

type object = map[string]any

// override is what the next boot is told (ComputerSystem.Boot).
type override struct{ Target, Enabled, Mode string }

// next tells whether the next boot begins with the network, and uses up what was meant for one boot.
func (o *override) next() (network bool) {
	network = o.Target == "Pxe" && (o.Enabled == "Once" || o.Enabled == "Continuous")
	if o.Enabled == "Once" {
		o.Target, o.Enabled = "None", "Disabled"
	}
	return network
}

// serveBMC answers one request, at once or with the host's fault.
func (h *Host) serveBMC(w http.ResponseWriter, r *http.Request) {
	switch faults := h.broken(); {
	case faults.Hang:
		h.note("bmc: hangs on %s %s", r.Method, r.URL.Path)
		select {
		case <-r.Context().Done():
		case <-h.fleet.ctx.Done():
		}
		panic(http.ErrAbortHandler) // no answer at all, not an empty one
	case faults.Status != 0:
		refuse(w, faults.Status, "The service is not well.")
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path == rootPath && r.Method == http.MethodGet { // the one resource that needs no password
		answer(w, http.StatusOK, root())
		return
	}
	if r.Method == http.MethodPost && path == sessionsPath {
		h.login(w, r)
		return
	}
	if !h.admits(r) {
		h.note("bmc: refuses %s %s", r.Method, path)
		refuse(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}
	switch r.Method + " " + path {
	case "GET " + systemPath:
		h.count(func(c *Counters) { c.BMCReads++ })
		answer(w, http.StatusOK, h.system())
	case "PATCH " + systemPath:
		h.patch(w, r)
	case "POST " + resetPath:
		h.reset(w, r)
	case "POST " + managerPath + "/Actions/Manager.Reset":
		h.write("bmc: reset of itself")
		w.WriteHeader(http.StatusNoContent)
	default:
		h.rest(w, r, path)
	}
}

// rest answers what only describes the BMC, and says no to everything else.
func (h *Host) rest(w http.ResponseWriter, r *http.Request, path string) {
	token, session := strings.CutPrefix(path, sessionsPath+"/")
	if r.Method == http.MethodDelete && session {
		h.mu.Lock()
		delete(h.sessions, token)
		h.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		return
	}
	static := map[string]object{
		rootPath + "/Systems":        collection("#ComputerSystemCollection.ComputerSystemCollection", rootPath+"/Systems", systemPath),
		rootPath + "/Managers":       collection("#ManagerCollection.ManagerCollection", rootPath+"/Managers", managerPath),
		rootPath + "/Chassis":        collection("#ChassisCollection.ChassisCollection", rootPath+"/Chassis", chassisPath),
		rootPath + "/SessionService": sessionService(),
		sessionsPath:                 collection("#SessionCollection.SessionCollection", sessionsPath),
		managerPath:                  manager(),
		chassisPath:                  chassis(),
	}
	if body, there := static[path]; there && r.Method == http.MethodGet {
		h.count(func(c *Counters) { c.BMCReads++ })
		answer(w, http.StatusOK, body)
		return
	}
	h.count(func(c *Counters) { c.BMCUnknown++ })
	h.note("bmc: has no %s %s", r.Method, path)
	refuse(w, http.StatusNotFound, "There is no such resource.")
}

// login opens a session (DSP0266, 13.3.4): the token goes into a header.
func (h *Host) login(w http.ResponseWriter, r *http.Request) {
	var ask struct{ UserName, Password string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !h.knows(ask.UserName, ask.Password) {
		h.note("bmc: refuses a session to %q", ask.UserName)
		refuse(w, http.StatusUnauthorized, "The credentials are not valid.")
		return
	}
	token := random()
	h.mu.Lock()
	h.sessions[token] = true
	h.mu.Unlock()
	where := sessionsPath + "/" + token
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", where)
	answer(w, http.StatusCreated, object{
		"@odata.id": where, "@odata.type": "#Session.v1_1_0.Session", "Id": token, "Name": "Session", "UserName": ask.UserName,
	})
}

// admits checks the token of a session, or a password.
func (h *Host) admits(r *http.Request) bool {
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		// A BMC whose password was changed has ended the sessions of the old one.
		ok := h.sessions[token] && h.faults.Password == ""
		h.tally(ok)
		return ok
	}
	user, password, _ := r.BasicAuth()
	return h.knows(user, password)
}

func (h *Host) knows(user, password string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := h.fleet.config.Password
	if h.faults.Password != "" {
		want = h.faults.Password
	}
	ok := user == h.fleet.config.Username && password == want
	h.tally(ok)
	return ok
}

func (h *Host) tally(ok bool) {
	if ok {
		h.seen.BMCLogins++
	} else {
		h.seen.BMCRefused++
	}
}

// write counts something that changes the host.
func (h *Host) write(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.BMCWrites++
	h.noted(format, args...)
}

// patch sets the boot override.
func (h *Host) patch(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Boot struct {
			Target  *string `json:"BootSourceOverrideTarget"`
			Enabled *string `json:"BootSourceOverrideEnabled"`
			Mode    *string `json:"BootSourceOverrideMode"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if t := ask.Boot.Target; t != nil && !slices.Contains(bootTargets(), *t) {
		refuse(w, http.StatusBadRequest, "This target is not among the allowable values.")
		return
	}
	h.mu.Lock()
	for field, value := range map[*string]*string{&h.override.Target: ask.Boot.Target, &h.override.Enabled: ask.Boot.Enabled, &h.override.Mode: ask.Boot.Mode} {
		if value != nil {
			*field = *value
		}
	}
	now := h.override
	h.mu.Unlock()
	h.write("bmc: boot override %s %s %s", now.Target, now.Enabled, now.Mode)
	answer(w, http.StatusOK, h.system())
}

// reset presses a button.
func (h *Host) reset(w http.ResponseWriter, r *http.Request) {
	var ask struct{ ResetType string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || !slices.Contains(resetTypes(), ask.ResetType) {
		refuse(w, http.StatusBadRequest, "This reset type is not among the allowable values.")
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

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// refuse answers with an error as DSP0266, 8.6, wants it.
func refuse(w http.ResponseWriter, code int, sentence string) {
	answer(w, code, object{"error": object{"code": "Base.1.0.GeneralError", "message": sentence}})
}

// random is a token that nobody guesses.
func random() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // never fails: crypto/rand
	return hex.EncodeToString(b)
}

func uuid(i int) string { return fmt.Sprintf("46494e45-0000-4000-8000-%012d", i) }

// now is a BMC's clock.
func now() string { return time.Now().UTC().Format(time.RFC3339) }
