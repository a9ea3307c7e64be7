package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// newProblem is a problem of the request itself.
func newProblem(status int, format string, args ...any) error {
	return artifact.Problem{Status: status, Detail: fmt.Sprintf(format, args...)}
}

// statusCodes are what the store's refusals become.
func statusCodes() map[blobs.Kind]int {
	return map[blobs.Kind]int{
		blobs.NotFound:    http.StatusNotFound,
		blobs.Exists:      http.StatusConflict,
		blobs.WrongOffset: http.StatusConflict,
		blobs.Busy:        http.StatusConflict,
		blobs.InUse:       http.StatusConflict,
		blobs.Unfinished:  http.StatusConflict,
		blobs.Interrupted: http.StatusConflict,
		blobs.Damaged:     http.StatusConflict,
		blobs.WrongLength: http.StatusBadRequest,
		blobs.Completed:   http.StatusUnprocessableEntity,
		blobs.Refused:     http.StatusUnprocessableEntity,
		blobs.TooLarge:    http.StatusRequestEntityTooLarge,
		blobs.Full:        http.StatusInsufficientStorage,
		blobs.Down:        http.StatusServiceUnavailable,
		blobs.Cut:         http.StatusRequestTimeout,
	}
}

// withOffset tells for which refusals the offset is what the client needs next.
func withOffset(k blobs.Kind) bool {
	switch k {
	case blobs.WrongOffset, blobs.WrongLength, blobs.Busy, blobs.Refused, blobs.Full, blobs.Down, blobs.Cut, blobs.Completed, blobs.Unfinished:
		return true
	}
	return false
}

// problemOf is what a client is told of an error. What is nobody's to know is not in it.
func problemOf(err error) artifact.Problem {
	var p artifact.Problem
	var refused *blobs.Error
	switch {
	case errors.As(err, &p):
	case errors.As(err, &refused):
		p = artifact.Problem{Status: statusCodes()[refused.Kind], Detail: refused.Text}
		if withOffset(refused.Kind) {
			p.Offset = &refused.Offset
		}
		if refused.Kind == blobs.Interrupted {
			p.Detail = refused.Error()
		}
	case errors.Is(err, context.Canceled):
		p = artifact.Problem{Status: http.StatusRequestTimeout, Detail: "the request was given up"}
	default:
		p = artifact.Problem{Status: http.StatusInternalServerError, Detail: "the agent failed; its log says how"}
	}

	p.Title = http.StatusText(p.Status)
	return p
}

// writeProblem writes a problem.
func (a *Agent) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= 500 {
		a.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}

	h := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="firstlight artifacts"`)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		h.Set("Retry-After", "5")
	case http.StatusRequestTimeout:
		h.Set("Connection", "close")
	}

	if p.Offset != nil {
		h.Set(artifact.HeaderOffset, strconv.FormatInt(*p.Offset, 10))
	}

	h.Set("Content-Type", artifact.ProblemType)
	// net/http reads what is left of a body before it answers, however slowly it comes.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.Silence)) // a connection that is gone
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_ = json.NewEncoder(w).Encode(p) // a client that is gone
	}
}

// writeJSON writes JSON.
func (a *Agent) writeJSON(w http.ResponseWriter, status int, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}

	a.send(w, status, append(text, '\n'))
	return nil
}

// send writes JSON to a client that takes it: one that does not read would hold the page, and a connection,
// for ever.
func (a *Agent) send(w http.ResponseWriter, status int, text []byte) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(a.Silence)) // a connection that is gone
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, err := w.Write(text)
	if err == nil {
		err = control.Flush()
	}

	if err == nil {
		_ = control.SetWriteDeadline(time.Time{}) // the next request has its own
	}
}
