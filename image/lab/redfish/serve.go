package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// handler answers every request. Two need no password (DSP0266, 13.3.1): for the service root, and for a session.
func (b *BMC) handler() http.Handler {
	private := http.NewServeMux()
	for path, resource := range map[string]func() object{
		systemsPath:        func() object { return collection("ComputerSystemCollection", systemsPath, systemPath) },
		systemPath:         b.system,
		nicsPath:           b.nics,
		managersPath:       func() object { return collection("ManagerCollection", managersPath, managerPath) },
		managerPath:        manager,
		drivesPath:         func() object { return collection("VirtualMediaCollection", drivesPath, drivePath) },
		drivePath:          func() object { return b.media.drive() },
		sessionServicePath: sessionService,
		sessionsPath:       func() object { return collection("SessionCollection", sessionsPath) },
	} {
		private.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { b.show(w, resource) })
	}

	for i := range b.config.MACs {
		private.HandleFunc("GET "+nicPath(i), func(w http.ResponseWriter, _ *http.Request) {
			b.show(w, func() object { return b.nic(i) })
		})
	}

	private.HandleFunc("PATCH "+systemPath, b.serveBoot)
	private.HandleFunc("POST "+resetPath, b.serveReset)
	private.HandleFunc("POST "+insertPath, b.serveInsert)
	private.HandleFunc("POST "+ejectPath, b.serveEject)
	private.HandleFunc("DELETE "+sessionsPath+"/{token}", b.serveLogout)
	private.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusNotFound, "There is no such resource.")
	})

	public := http.NewServeMux()
	public.HandleFunc("GET "+rootPath, func(w http.ResponseWriter, _ *http.Request) { b.show(w, serviceRoot) })
	public.HandleFunc("POST "+sessionsPath, b.serveLogin)
	public.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !b.isAuthorized(r) {
			writeError(w, http.StatusUnauthorized, "The credentials are not valid.")
			return
		}
		private.ServeHTTP(w, r)
	})

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.TrimSuffix(r.URL.Path, "/")
		public.ServeHTTP(w, r)
	})
}

func (b *BMC) show(w http.ResponseWriter, resource func() object) {
	b.mu.Lock()
	shown := resource()
	b.mu.Unlock()
	writeJSON(w, http.StatusOK, shown)
}

// serveBoot overrides what the machine boots from.
func (b *BMC) serveBoot(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Boot bootChange }
	if !readJSON(w, r, &ask) {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	changed, err := b.boot.change(ask.Boot, b.mode())
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}

	if err := b.saveBoot(changed); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}

	b.writes = append(b.writes, fmt.Sprintf("boot %s %s", changed.Target, changed.Enabled))
	writeJSON(w, http.StatusOK, b.system())
}

// serveReset presses a button.
func (b *BMC) serveReset(w http.ResponseWriter, r *http.Request) {
	var ask struct{ ResetType string }
	if !readJSON(w, r, &ask) {
		return
	}
	if !slices.Contains(resetTypes(), ask.ResetType) {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("the reset type %q is not among %s",
			ask.ResetType, strings.Join(resetTypes(), ", ")))
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish(w, "power "+ask.ResetType, b.reset(ask.ResetType))
}

// serveInsert fetches an image and puts it into the drive. A BMC answers others meanwhile.
func (b *BMC) serveInsert(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Image    string
		Inserted *bool
	}
	if !readJSON(w, r, &ask) {
		return
	}
	if !strings.HasPrefix(ask.Image, "http://") && !strings.HasPrefix(ask.Image, "https://") {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("the value %q of the property Image is no URL of HTTP", ask.Image))
		return
	}
	if ask.Inserted != nil && !*ask.Inserted {
		writeError(w, http.StatusBadRequest, "the drive takes a disc only to insert it")
		return
	}

	file, err := b.fetch(r.Context(), ask.Image)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish(w, "insert "+ask.Image, b.insert(media{Image: ask.Image, file: file}))
}

func (b *BMC) serveEject(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish(w, "eject", b.insert(media{}))
}

// finish answers an order that the machine followed, or did not. b.mu is held.
func (b *BMC) finish(w http.ResponseWriter, order string, err error) {
	if err != nil {
		writeError(w, http.StatusInternalServerError, fmt.Sprintf("%s: %v", order, err))
		return
	}

	b.writes = append(b.writes, order)
	w.WriteHeader(http.StatusNoContent)
}

// readJSON reads a request's body, or answers that it cannot be read.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(into); err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// writeError answers with an error (DSP0266, 8.6).
func writeError(w http.ResponseWriter, code int, sentence string) {
	writeJSON(w, code, object{"error": object{"code": "Base.1.0.GeneralError", "message": sentence}})
}
