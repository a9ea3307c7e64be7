package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/image"
)

// Between two drawings of a line on a terminal, and between two lines elsewhere.
const (
	drawInterval = 50 * time.Millisecond
	noteInterval = 15 * time.Second
)

// progress shows how a build goes on: one line that is drawn over on a terminal, whole
// lines elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	columns  func() int // of the terminal
	now      func() time.Time

	mu             sync.Mutex
	started, shown time.Time // the part, and the last line about how far it is
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	columns := func() int {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
		return 80
	}
	return &progress{w: w, terminal: ok && term.IsTerminal(int(f.Fd())), columns: columns, now: time.Now}
}

// Log says something about the whole build.
func (p *progress) Log(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}

	fmt.Fprintln(p.w, line)
}

// Begin announces a part and why it is made.
func (p *progress) Begin(part string, why []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started, p.shown = p.now(), time.Time{}
	if p.terminal {
		p.draw(fmt.Sprintf("  …  %s (%s)", part, summarize(why)))
		return
	}

	fmt.Fprintf(p.w, "build %s: %s\n", part, summarize(why))
}

// Advance says how far a part is: drawn with a bar on a terminal, elsewhere now and then.
func (p *progress) Advance(part string, at image.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	text := describePosition(at, now.Sub(p.started))
	if !p.terminal {
		if now.Sub(p.started) < noteInterval || now.Sub(p.shown) < noteInterval {
			return
		}

		p.shown = now
		fmt.Fprintf(p.w, "build %s: %s\n", part, text)
		return
	}

	if now.Sub(p.shown) < drawInterval && at.Done < at.All {
		return
	}

	p.shown = now
	text = part + ": " + text
	width := min(30, p.columns()-utf8.RuneCountInString(text)-6) // what is left for a bar
	if at.All == 0 || width < 5 {
		p.draw("  …  " + text)
		return
	}

	p.draw(fmt.Sprintf("  %s %s", commandline.RenderBar(width, int64(at.Done), int64(at.All)), text))
}

// draw draws over the last line; what is longer than a line could not be drawn over.
func (p *progress) draw(line string) {
	if runes := []rune(line); len(runes) >= p.columns() {
		line = string(runes[:p.columns()-2]) + "…"
	}
	fmt.Fprint(p.w, "\r\x1b[K"+line)
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

// describePosition says how far a part is, for how long it has been made, and what follows.
func describePosition(at image.Position, took time.Duration) string {
	var parts []string
	if at.Doing != "" {
		parts = append(parts, at.Doing)
	}

	if at.All > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d packages", at.Done, at.All))
	}

	seconds := int(took.Seconds())
	parts = append(parts, fmt.Sprintf("%d:%02d min", seconds/60, seconds%60))

	text := strings.Join(parts, ", ")
	if len(at.Next) > 0 {
		text += "; next: " + strings.Join(at.Next, ", ")
	}

	return text
}
