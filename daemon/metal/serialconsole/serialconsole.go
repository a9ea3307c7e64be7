// Package serialconsole shares the serial consoles of nodes between the people who watch them: a BMC gives its console to
// one session at a time. What servers print may hold secrets: it is in memory alone, and forgotten with the session.
package serialconsole

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
)

// Bounds of a session.
const (
	history     = 64 << 10 // bytes that are kept of what was printed
	maxSessions = 16
	linger      = 15 * time.Second // for which it stays open after its last reader: pages are loaded again
	idle        = 30 * time.Minute // without a byte in either direction
	recheck     = 2 * time.Second  // between two checks whether it may stay
	openTimeout = time.Minute
)

// MaxInput is how many bytes can be typed at once.
const MaxInput = 2 << 10

// Refusal is why there is no console, or why it ended, for people.
type Refusal struct {
	Text string
	Fix  string // what to do; "": nothing
}

func (r *Refusal) Error() string {
	if r.Fix == "" {
		return r.Text
	}
	return r.Text + "; " + r.Fix
}

// Target is whose console a node has.
type Target struct {
	BMC       site.BMC
	IsLeaving bool // it is being deprovisioned or deleted: what comes next is none of those who watched before
}

// Line is a serial console that is open.
type Line interface {
	// Run passes input to the server and what it prints to output, until ctx ends or the BMC ends it. The error is for
	// people.
	Run(ctx context.Context, input io.Reader, output io.Writer) error
	Close()
}

// Consoles are those that are open. Target, Open and Log are required; nothing is opened before Run.
type Consoles struct {
	// Target is the BMC of a node by its name, from memory. Its error is a *Refusal, or for people.
	Target func(node string) (Target, error)
	// Open opens the console of a node. Its error is a *Refusal, or for people.
	Open func(ctx context.Context, node string, b site.BMC) (Line, error)
	Log  *slog.Logger

	pace pace

	mu       sync.Mutex
	ctx      context.Context // of Run; nil: it does not run
	sessions map[string]*session
	running  sync.WaitGroup
}

// pace are the bounds in time; zero ones stand for the constants.
type pace struct{ linger, idle, recheck time.Duration }

func (p pace) orUsual() pace {
	usual := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	usual(&p.linger, linger)
	usual(&p.idle, idle)
	usual(&p.recheck, recheck)
	return p
}

// Run lets consoles be opened until ctx ends, and then closes them, so that their BMCs are free.
func (c *Consoles) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.ctx = nil
	c.mu.Unlock()
	c.running.Wait()
	return nil
}

// Attach watches the console of a node, and opens it if it is not. It waits until it is open, or ctx ends; an error is a
// *Refusal. The Reader is to be closed.
func (c *Consoles) Attach(ctx context.Context, node string) (*Reader, error) {
	s, err := c.find(node)
	if err != nil {
		return nil, err
	}

	select {
	case <-s.opened:
	case <-ctx.Done():
		s.detach()
		return nil, &Refusal{Text: "the console was given up before it was open"}
	}
	if err := s.endReason(); err != nil {
		s.detach()
		return nil, err
	}
	return &Reader{session: s, at: s.begin()}, nil
}

// Type sends bytes to a node whose console is open. An error is a *Refusal.
func (c *Consoles) Type(node string, text []byte) error {
	c.mu.Lock()
	var s *session
	for _, open := range c.sessions {
		if open.node == node && open.endReason() == nil {
			s = open
		}
	}
	c.mu.Unlock()
	if s == nil {
		return &Refusal{Text: fmt.Sprintf("the console of %s is not open", node), Fix: "open it again"}
	}
	return s.typeIn(text)
}

// find is the session of a node's BMC, with one more reader.
func (c *Consoles) find(node string) (*session, error) {
	target, err := c.Target(node)
	if err != nil {
		return nil, newRefusal(err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	key := target.BMC.Address.SystemKey()
	if s := c.sessions[key]; s != nil && s.attach() {
		if s.node != node {
			s.detach()
			return nil, &Refusal{
				Text: fmt.Sprintf("the console of the BMC of %s is open as that of %s, which has the same BMC", node, s.node),
				Fix:  "give each node its own bmc.address",
			}
		}
		return s, nil
	}
	switch {
	case c.ctx == nil:
		return nil, &Refusal{Text: "the appliance is starting or stopping, and opens no console", Fix: "try again in a minute"}
	case len(c.sessions) >= maxSessions:
		return nil, &Refusal{Text: fmt.Sprintf("%d consoles are open, which is all that the appliance opens", maxSessions), Fix: "close one"}
	}

	s, before := newSession(c, node, target), c.sessions[key]
	if c.sessions == nil {
		c.sessions = map[string]*session{}
	}
	c.sessions[key] = s
	ctx := c.ctx
	c.running.Go(func() {
		if before != nil { // its end would refuse this one, or end it, too
			<-before.gone
		}
		s.run(ctx)
		close(s.gone)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sessions[key] == s {
			delete(c.sessions, key)
		}
	})
	return s, nil
}
