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
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "erase", Node: node}, confirm != "", e, err)
}

func (s *Server) serveCancelErase(w http.ResponseWriter, r *http.Request) {
	node, received := r.URL.Query().Get("node"), time.Now()
	s.Log.Info("cancelling of an erasure asked", "node", node)
	e, err := s.CancelErase(node)
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "cancel-erase", Node: node}, true, e, err)
}

func (s *Server) serveReplace(w http.ResponseWriter, r *http.Request) {
	q, received := r.URL.Query(), time.Now()
	node := q.Get("node")
	s.Log.Info("replacement asked", "node", node, "confirmed", q.Get("confirm"))
	text, err := s.Replace(node, q.Get("confirm"))
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "replace", Node: node}, true, text, err)
}

// answerChange answers with a result or an error, after that was written down if it is to be.
func (s *Server) answerChange(w http.ResponseWriter, c Change, audited bool, result any, err error) {
	c.Code = http.StatusOK
	if err != nil {
		c.Code, c.Reason = http.StatusUnprocessableEntity, err.Error()
	}
	if audited && s.Audit != nil {
		s.Audit(c)
	}
	if err != nil {
		http.Error(w, c.Reason, c.Code)
		return
	}
	writeJSON(w, result)
}

// Replace has the daemon replace the server of a node; see Server.
func (c Client) Replace(ctx context.Context, node, confirm string) (string, error) {
	var text string
	query := url.Values{"node": {node}, "confirm": {confirm}}
	body, err := c.do(ctx, http.MethodPost, "/v1/replace?"+query.Encode())
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &text); err != nil {
		return "", fmt.Errorf("read what is replaced: %w", err)
	}
	return text, nil
}

// Erase has the daemon erase disks of a node, or without confirm say what would be erased; see Server.
func (c Client) Erase(ctx context.Context, node string, disks []string, confirm string) (status.Erase, error) {
	return c.erase(ctx, "/v1/erase", url.Values{"node": {node}, "disk": disks, "confirm": {confirm}})
}

// CancelErase has the daemon take the erasure of a node back; see Server.
func (c Client) CancelErase(ctx context.Context, node string) (status.Erase, error) {
	return c.erase(ctx, "/v1/erase/cancel", url.Values{"node": {node}})
}

func (c Client) erase(ctx context.Context, path string, query url.Values) (status.Erase, error) {
	var e status.Erase
	body, err := c.do(ctx, http.MethodPost, path+"?"+query.Encode())
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("read what is erased: %w", err)
	}
	return e, nil
}
