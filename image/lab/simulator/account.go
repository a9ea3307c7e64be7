package simulator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
)

// userSlot is the account that the BMC's one user has.
const userSlot = 2

// Bounds of passwords, in bytes: those of IPMI 2.0, which BMCs keep to for Redfish, too.
const (
	minPassword = 8
	maxPassword = 20
)

func accountPath(slot int) string { return fmt.Sprintf("%s/Accounts/%d", accountsPath, slot) }

// accountTag is the ETag of the user's account: another one after each change (DSP0266, 6.5). h.mu is held.
func (h *Server) accountTag() string {
	return fmt.Sprintf("%q", fmt.Sprintf("account-%d", h.seen.BMCPasswords))
}

func (h *Server) serveAccount(w http.ResponseWriter) {
	h.count(func(c *Counters) { c.BMCReads++ })
	h.mu.Lock()
	tag := h.accountTag()
	h.mu.Unlock()
	w.Header().Set("ETag", tag)
	writeJSON(w, http.StatusOK, account(userSlot, h.simulator.config.Username))
}

// serveNewPassword changes the user's password, and ends the sessions of the former one. Without the ETag that the
// account has now it is refused, as by BMCs of several makers; like some of them, it quotes what it refuses.
func (h *Server) serveNewPassword(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Password *string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Password == nil {
		writeError(w, http.StatusBadRequest, "There is no password.")
		return
	}

	h.mu.Lock()
	password, faults, tag := *ask.Password, h.faults, h.accountTag()
	fits := len(password) >= minPassword && len(password) <= maxPassword && !faults.FixedLogin
	isCurrent := r.Header.Get("If-Match") == tag
	if isCurrent && fits {
		h.password, h.sessions = password, map[string]bool{}
		h.seen.BMCPasswords++
		h.seen.BMCWrites++
		h.logEventLocked("bmc: another password")
	}
	h.mu.Unlock()

	switch {
	case !isCurrent:
		writeError(w, http.StatusPreconditionFailed, "The account was changed meanwhile.")
	case !fits:
		writeError(w, http.StatusBadRequest, fmt.Sprintf("The value %s of the property Password is not accepted.", password))
	case faults.LostAnswer:
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// Password is what the BMC takes.
func (h *Server) Password() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.password, h.simulator.config.Password)
}
