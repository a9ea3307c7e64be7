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
	node, disks, word := q.Get("node"), q["disk"], q.Get("word")
	s.Log.Info("erasure asked", "node", node, "disks", disks, "confirmed", word)
	e, err := s.Erase(r.Context(), node, disks, word)
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "erase", Node: node}, word != "", e, err)
}

func (s *Server) serveCancelErase(w http.ResponseWriter, r *http.Request) {
	node, received := r.URL.Query().Get("node"), time.Now()
	s.Log.Info("cancelling of an erasure asked", "node", node)
	e, err := s.CancelErase(node)
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "cancel-erase", Node: node}, true, e, err)
}

func (s *Server) serveReplace(w http.ResponseWriter, r *http.Request) {
	q, received := r.URL.Query(), time.Now()
	node, word := q.Get("node"), q.Get("word")
	s.Log.Info("replacement asked", "node", node, "confirmed", word)
	what, err := s.Replace(node, word)
	s.answerChange(w, Change{HTTP: r, Received: received, Verb: "replace", Node: node}, word != "", what, err)
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

// Replace has the daemon replace the server of a node, or without a word say what would be replaced; see Server.
func (c Client) Replace(ctx context.Context, node, word string) (r status.Replace, err error) {
	err = c.ask(ctx, "/v1/replace", url.Values{"node": {node}, "word": {word}}, &r)
	return r, err
}

// Erase has the daemon erase disks of a node, or without a word say what would be erased; see Server.
func (c Client) Erase(ctx context.Context, node string, disks []string, word string) (e status.Erase, err error) {
	err = c.ask(ctx, "/v1/erase", url.Values{"node": {node}, "disk": disks, "word": {word}}, &e)
	return e, err
}

// CancelErase has the daemon take the erasure of a node back; see Server.
func (c Client) CancelErase(ctx context.Context, node string) (e status.Erase, err error) {
	err = c.ask(ctx, "/v1/erase/cancel", url.Values{"node": {node}}, &e)
	return e, err
}

// ask sends a request that may lose data, and reads its answer.
func (c Client) ask(ctx context.Context, path string, query url.Values, answer any) error {
	body, err := c.do(ctx, http.MethodPost, path+"?"+query.Encode())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}
