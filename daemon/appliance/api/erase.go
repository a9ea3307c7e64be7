package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// Change is a request that loses data, or was refused.
type Change struct {
	HTTP     *http.Request
	Received time.Time
	Verb     string
	Node     string
	Code     int    // of HTTP
	Reason   string // why it was refused; "": it was not
}

func (s *Server) serveErase(w http.ResponseWriter, r *http.Request) {
	q, received := r.URL.Query(), time.Now()
	node, disks, confirm := q.Get("node"), q["disk"], q.Get("confirm")
	s.Log.Info("erasure asked", "node", node, "disks", disks, "confirmed", confirm)
	e, err := s.Erase(r.Context(), node, disks, confirm)
	code, reason := http.StatusOK, ""
	if err != nil {
		code, reason = http.StatusUnprocessableEntity, err.Error()
	}
	if confirm != "" && s.Audit != nil {
		s.Audit(Change{HTTP: r, Received: received, Verb: "erase", Node: node, Code: code, Reason: reason})
	}
	if err != nil {
		http.Error(w, reason, code)
		return
	}
	writeJSON(w, e)
}

// Erase has the daemon erase disks of a node, or without confirm say what would be erased; see Server.
func (c Client) Erase(ctx context.Context, node string, disks []string, confirm string) (status.Erase, error) {
	var e status.Erase
	query := url.Values{"node": {node}, "disk": disks, "confirm": {confirm}}
	body, err := c.do(ctx, http.MethodPost, "/v1/erase?"+query.Encode())
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read what is erased: %w", err)
	}
	return e, nil
}
