package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress shows how a build goes on: one line that is drawn over on a terminal, whole
// lines elsewhere.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	shown time.Time
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Begin announces a part and why it is made.
func (p *progress) Begin(part string, why []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K  …  %s (%s)", part, brief(why))
		return
	}
	fmt.Fprintf(p.w, "build %s: %s\n", part, brief(why))
}

// Advance draws a bar; it is silent where lines cannot be drawn over.
func (p *progress) Advance(part string, done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal || all == 0 || time.Since(p.shown) < 50*time.Millisecond && done < all {
		return
	}
	p.shown = time.Now()
	const width = 30
	full := width * done / all
	fmt.Fprintf(p.w, "\r\x1b[K  [%s%s] %d/%d %s", strings.Repeat("█", full), strings.Repeat("·", width-full), done, all, part)
}

// End says how long a part took.
func (p *progress) End(part string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprintf(p.w, "\r\x1b[K  ✓  %s (%.1f s)\n", part, took.Seconds())
		return
	}
	fmt.Fprintf(p.w, "built %s in %.1f s\n", part, took.Seconds())
}
