package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// Document is a rack for programs.
type Document struct {
	virtualrack.Status
	Phases []virtualrack.Span `json:"phases"`
}

// Spans are the phases of every machine and cluster so far, with the processor time of the machines.
func Spans(c virtualrack.Client, s virtualrack.Status) ([]virtualrack.Span, error) {
	events, err := virtualrack.ReadEvents(c.Dir)
	if err != nil {
		return nil, err
	}

	cpu := map[string]float64{}
	for _, m := range s.Machines {
		cpu[m.Name] = m.CPU
	}

	return virtualrack.Spans(events, time.Now(), cpu), nil
}

// ShowPhases prints how long each phase has taken.
func ShowPhases(w io.Writer, c virtualrack.Client, s virtualrack.Status) error {
	spans, err := Spans(c, s)
	if err != nil {
		return err
	}

	_, err = io.WriteString(w, virtualrack.PhaseTable(spans))
	return err
}

// Terminal is the file behind w if it is a terminal, else nil.
func Terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Width is how wide a table may be: as the terminal is, else as it likes.
func Width(w io.Writer) int {
	if f := Terminal(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 1 << 16
}

// Renderer is how somebody looks at a rack all the time: it is shown beside how it was before.
type Renderer func(before, after virtualrack.Status) error

// lineRenderer is a line per change.
func lineRenderer(w io.Writer) Renderer {
	return func(before, after virtualrack.Status) error {
		_, err := io.WriteString(w, virtualrack.RenderChanges(before, after, time.Now()))
		return err
	}
}

// JSONLines is a document per change, each on a line of its own, for programs.
func JSONLines(w io.Writer, spans func(virtualrack.Status) ([]virtualrack.Span, error)) Renderer {
	encoder, begun := json.NewEncoder(w), false
	return func(before, after virtualrack.Status) error {
		if begun && virtualrack.RenderChanges(before, after, time.Now()) == "" {
			return nil
		}

		begun = true
		phases, err := spans(after)
		if err != nil {
			return err
		}

		return encoder.Encode(Document{after, phases})
	}
}

// screenRenderer is a screen that is drawn over.
func screenRenderer(screen *os.File) Renderer {
	return func(_, after virtualrack.Status) error {
		width, height, err := term.GetSize(int(screen.Fd()))
		if err != nil {
			width, height = 80, 25
		}

		_, err = io.WriteString(
			screen, "\x1b[H"+clearBehind(virtualrack.RenderScreen(after, width, height-1, time.Now())),
		)
		return err
	}
}

// Show shows the rack to people until enough or ctx says so: on a screen on a terminal, as lines elsewhere.
func Show(
	ctx context.Context,
	w io.Writer,
	c virtualrack.Client,
	enough func(virtualrack.Status) bool,
) (virtualrack.Status, error) {
	screen := Terminal(w)
	if screen == nil {
		return Watch(ctx, c, lineRenderer(w), enough)
	}

	fmt.Fprint(w, "\x1b[2J\x1b[?25l")      // clean, without a cursor
	defer fmt.Fprint(w, "\x1b[?25h\x1b[J") // with it again
	return Watch(ctx, c, screenRenderer(screen), enough)
}

// Watch shows the rack until enough or ctx says so. It returns the last status.
func Watch(
	ctx context.Context,
	c virtualrack.Client,
	see Renderer,
	enough func(virtualrack.Status) bool,
) (virtualrack.Status, error) {
	var last virtualrack.Status
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := c.Status(ctx)
		if err != nil {
			return last, err
		}
		if err := see(last, s); err != nil {
			return last, err
		}

		last = s
		if enough(s) {
			return s, nil
		}

		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-tick.C:
		}
	}
}

// clearBehind clears the rest of each line, and of the screen, behind a text.
func clearBehind(text string) string {
	out := make([]byte, 0, len(text)+256)
	for _, b := range []byte(text) {
		if b == '\n' {
			out = append(out, "\x1b[K"...)
		}
		out = append(out, b)
	}
	return string(out) + "\x1b[J"
}
