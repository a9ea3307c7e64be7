package serialconsole

import (
	"context"
	"sync"
)

// Reader is somebody who watches a console. It is for one goroutine, but for Close.
type Reader struct {
	session *session
	at      int64 // bytes that were read
	past    int   // lines above the screen that were read
	closing sync.Once
}

// View is what a screen shows.
type View struct {
	Past        []string // lines that left the screen since the last view
	Lines       []string // of the screen
	Row, Column int      // of the cursor, from 0
}

// Next waits until something was printed that was not read yet, and returns it. Somebody who reads too slowly misses
// what is older than the history. An error is a *Refusal, or that of ctx.
func (r *Reader) Next(ctx context.Context) ([]byte, error) {
	for {
		s := r.session
		s.mu.Lock()
		begin, changed, end := s.total-int64(len(s.printed)), s.changed, s.end
		text := append([]byte(nil), s.printed[max(r.at-begin, 0):]...)
		r.at = s.total
		s.mu.Unlock()
		switch {
		case len(text) > 0:
			return text, nil
		case end != nil:
			return nil, end
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// View is the screen as it is now.
func (r *Reader) View() (v View) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Past, r.past = s.screen.Past(r.past)
	v.Lines = s.screen.Lines()
	v.Row, v.Column = s.screen.Cursor()
	return v
}

// Close stops watching. The console is closed soon after the last one did.
func (r *Reader) Close() { r.closing.Do(r.session.detach) }
