package page

import (
	"fmt"
	"net/http"
	"time"
)

// Streams of changes at once: of all sessions and of one.
const (
	maxStreams        = 128
	maxSessionStreams = 8
)

// heartbeat is how often a stream says something when nothing changes, so that either end notices when the other is
// gone.
const heartbeat = 15 * time.Second

// pageParameter is the path of the page whose changes a stream says, as its browser has it; without one those of pages
// that show no answer of a lookup.
const pageParameter = "page"

// serveEvents sends the version of a page whenever it is another one, as server-sent events (HTML, section 9.2), until the
// browser goes or the session ends. It sends nothing that is shown.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, of *session) {
	if !s.acquireStream(of) {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many pages are open. This one is not updated; it tries again.", http.StatusServiceUnavailable)
		return
	}
	defer s.releaseStream(of)

	w.Header().Set("Content-Type", "text/event-stream")
	to := http.NewResponseController(w)
	tick := time.NewTicker(pictureAge)
	defer tick.Stop()
	spoke := time.Now()
	read, page := findReadingAt(r.URL.Query().Get(pageParameter))
	for version := ""; ; {
		p, err := s.hub.current()
		now := ""
		if err == nil {
			now, err = p.versionOf(read, page)
		}
		if err != nil {
			s.log.Error("page not made", "error", err)
			return
		}

		text := ""
		switch {
		case now != version:
			version = now
			text = fmt.Sprintf("event: version\ndata: %s\n\n", version)
		case time.Since(spoke) >= heartbeat:
			text = ": still here\n\n"
		}

		if text != "" {
			spoke = time.Now()
			if _, err := w.Write([]byte(text)); err != nil || to.Flush() != nil {
				return
			}
		}

		select {
		case <-r.Context().Done():
			return
		case <-of.ended:
			return
		case <-tick.C:
			s.logins.sweep()
		}
	}
}

// acquireStream takes a place for a stream, if there is one.
func (s *Server) acquireStream(of *session) bool {
	if !s.logins.startStream(of, maxSessionStreams) {
		return false
	}

	select {
	case s.streams <- struct{}{}:
		return true
	default:
		s.logins.endStream(of)
		return false
	}
}

func (s *Server) releaseStream(of *session) {
	<-s.streams
	s.logins.endStream(of)
}
