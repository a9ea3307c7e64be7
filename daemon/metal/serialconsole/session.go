package serialconsole

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"firstlight.dev/firstlight/daemon/metal/serialconsole/terminal"
)

// session is one console, for all who watch it.
type session struct {
	of     *Consoles
	node   string
	target Target
	pace   pace
	opened chan struct{} // closed when it is open, or has failed to
	gone   chan struct{} // closed when its BMC is free again
	typed  chan []byte   // on its way to the server

	mu      sync.Mutex
	changed chan struct{} // closed when something was printed, or it ended
	printed []byte        // the last of it, up to history
	total   int64         // bytes that were ever printed
	screen  *terminal.Screen
	readers int
	left    time.Time // the last reader has
	active  time.Time // a byte came or went
	end     *Refusal  // nil: it has not ended
}

func newSession(c *Consoles, node string, target Target) *session {
	now := time.Now()
	return &session{
		of:      c,
		node:    node,
		target:  target,
		pace:    c.pace.orUsual(),
		opened:  make(chan struct{}),
		gone:    make(chan struct{}),
		typed:   make(chan []byte, 64),
		changed: make(chan struct{}),
		screen:  terminal.New(),
		readers: 1,
		active:  now,
	}
}

// run opens the console, and passes on until it ends.
func (s *session) run(ctx context.Context) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	line, err := s.of.Open(opening, s.node, s.target.BMC)
	if err != nil {
		s.finish(newRefusal(err))
		close(s.opened)
		return
	}
	defer line.Close()
	s.of.Log.Info("console opened", "node", s.node)

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	input, keys := io.Pipe()
	defer input.Close()
	var passing sync.WaitGroup
	defer passing.Wait()
	passing.Go(func() { s.passInput(ctx, keys) })
	passing.Go(func() { stop(s.awaitEnd(ctx)) })
	close(s.opened)

	err = line.Run(ctx, input, s)
	switch why := context.Cause(ctx); {
	case err != nil:
	case errors.As(why, new(*Refusal)):
		err = why
	default:
		err = &Refusal{Text: "the appliance closed the console", Fix: "open it again"}
	}
	s.finish(newRefusal(err))
	s.of.Log.Info("console closed", "node", s.node, "reason", err.Error())
	stop(nil)
	_ = input.Close() // releases passInput
}

// passInput writes what is typed, in order, until ctx ends.
func (s *session) passInput(ctx context.Context, keys *io.PipeWriter) {
	defer keys.CloseWithError(io.ErrClosedPipe)
	for {
		select {
		case <-ctx.Done():
			return
		case text := <-s.typed:
			if _, err := keys.Write(text); err != nil {
				return
			}
		}
	}
}

// awaitEnd waits until the console must be closed, and says why.
func (s *session) awaitEnd(ctx context.Context) error {
	tick := time.NewTicker(s.pace.recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if no := s.check(time.Now()); no != nil {
			return no
		}
	}
}

// check is why the console must be closed; nil: it may stay.
func (s *session) check(now time.Time) error {
	s.mu.Lock()
	readers, left, active := s.readers, s.left, s.active
	s.mu.Unlock()
	target, err := s.of.Target(s.node)
	switch {
	case err != nil:
		return newRefusal(err)
	case target.IsLeaving && !s.target.IsLeaving:
		return &Refusal{Text: fmt.Sprintf("%s is being deprovisioned, which closes its console", s.node), Fix: "open it again to watch that"}
	case !target.IsLeaving && s.target.IsLeaving:
		return &Refusal{Text: fmt.Sprintf("%s was deprovisioned, which closes its console", s.node), Fix: "open it again to watch what comes next"}
	case target.BMC.Address != s.target.BMC.Address:
		return &Refusal{Text: fmt.Sprintf("%s has another BMC now", s.node), Fix: "open its console again"}
	case readers == 0 && now.Sub(left) >= s.pace.linger:
		return &Refusal{Text: "nobody watches the console any more"}
	case now.Sub(active) >= s.pace.idle:
		return &Refusal{
			Text: fmt.Sprintf("nothing was printed or typed for %d minutes, which closes the console", int(s.pace.idle.Minutes())),
			Fix:  "open it again",
		}
	}
	return nil
}

// Write takes what the server prints.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(len(p))
	s.printed = append(s.printed, p...)
	if more := len(s.printed) - history; more > 0 {
		s.printed = append(s.printed[:0], s.printed[more:]...)
	}
	_, _ = s.screen.Write(p)
	s.active = time.Now()
	s.announce()
	return len(p), nil
}

func (s *session) typeIn(text []byte) error {
	if len(text) > MaxInput {
		return &Refusal{Text: fmt.Sprintf("more than %d bytes were typed at once", MaxInput), Fix: "send less at once"}
	}
	if err := s.endReason(); err != nil {
		return err
	}
	select {
	case s.typed <- append([]byte(nil), text...):
	default:
		return &Refusal{Text: fmt.Sprintf("the BMC of %s does not take what was typed before", s.node), Fix: "wait, then type it again"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = time.Now()
	return nil
}

// attach adds a reader, unless the session has ended.
func (s *session) attach() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return false
	}
	s.readers++
	return true
}

func (s *session) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
	if s.readers == 0 {
		s.left = time.Now()
	}
}

// finish says why it ended. What was printed is forgotten with the session.
func (s *session) finish(why *Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = why
	s.announce()
}

// announce wakes the readers. s.mu is held.
func (s *session) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// endReason is why the session ended; nil: it has not.
func (s *session) endReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return s.end
	}
	return nil
}

// begin is where the kept part of what was printed begins.
func (s *session) begin() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total - int64(len(s.printed))
}

// newRefusal is an error as a Refusal.
func newRefusal(err error) *Refusal {
	var known *Refusal
	if errors.As(err, &known) {
		return known
	}
	return &Refusal{Text: err.Error()}
}
