package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Console is the serial console of a node.
type Console interface {
	// Next waits for what was printed since the last call. Its error is for people: why the console ended.
	Next(ctx context.Context) ([]byte, error)
	Close()
}

// consoleEnd is the trailer in which an answer says why a console ended.
const consoleEnd = "Console-End"

// maxTyped is how much one request may type, in bytes.
const maxTyped = 2 << 10

// serveConsole sends what a console prints, until it ends or whoever asks is gone.
func (s *Server) serveConsole(w http.ResponseWriter, r *http.Request) {
	received, node := time.Now(), r.URL.Query().Get("node")
	c, err := s.AttachConsole(r.Context(), node)
	s.auditConsole(Change{HTTP: r, Received: received, Verb: "console", Node: node}, err)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	defer c.Close()

	w.Header().Set("Trailer", consoleEnd)
	w.Header().Set("Content-Type", "application/octet-stream")
	to := http.NewResponseController(w)
	if to.Flush() != nil {
		return
	}
	for {
		text, err := c.Next(r.Context())
		if err != nil {
			w.Header().Set(consoleEnd, url.PathEscape(err.Error()))
			return
		}
		if _, err := w.Write(text); err != nil || to.Flush() != nil {
			return
		}
	}
}

// auditConsole writes down who opened a console; what is printed and typed there is written nowhere.
func (s *Server) auditConsole(c Change, err error) {
	s.Log.Info("console asked", "node", c.Node)
	c.Code = http.StatusOK
	if err != nil {
		c.Code, c.Reason = http.StatusUnprocessableEntity, err.Error()
	}
	if s.Audit != nil {
		s.Audit(c)
	}
}

// serveTyping types what a request has.
func (s *Server) serveTyping(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTyped))
	if err == nil {
		err = s.TypeAtConsole(r.URL.Query().Get("node"), text)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Console writes what the console of a node prints to output, and types what input has, until either ends, with nil, or
// the console does; the error is for people. opened is called when it is open.
func (c Client) Console(ctx context.Context, node string, input io.Reader, output io.Writer, opened func()) error {
	path := "/v1/console?" + url.Values{"node": {node}}.Encode()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	opened()

	typed := make(chan error, 1)
	go func() {
		typed <- c.typeAll(ctx, path, input)
		cancel() // ends what is read below
	}()
	_, err = io.Copy(output, resp.Body)
	select {
	case no := <-typed: // what is printed ends with what is typed
		return no
	default:
	}
	if err != nil {
		return fmt.Errorf("read the console of %s: %w", node, err)
	}
	why, _ := url.PathUnescape(resp.Trailer.Get(consoleEnd))
	if why == "" {
		why = "the daemon ended it"
	}
	return errors.New(why)
}

// typeAll types what there is to read, in order, until it ends.
func (c Client) typeAll(ctx context.Context, path string, input io.Reader) error {
	for b := make([]byte, maxTyped); ; {
		n, err := input.Read(b)
		if n > 0 {
			resp, err := c.send(ctx, http.MethodPost, path, bytes.NewReader(b[:n]))
			if err != nil {
				return err
			}
			resp.Body.Close()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what is typed: %w", err)
		}
	}
}
