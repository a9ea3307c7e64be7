package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/commandline"
)

// Console is a machine's serial port: everything it printed since the machine was made,
// as lines, across restarts.
type Console struct {
	log io.Writer // each line with the time of day; may be nil

	mu      sync.Mutex
	lines   []string
	partial []byte
	read    int // lines already passed by Wait
	ended   bool
	changed chan struct{} // closed and replaced at every change
	input   io.Writer
}

func newConsole(log io.Writer) *Console {
	return &Console{log: log, changed: make(chan struct{})}
}

// Write takes what the guest printed; it is the reader's end of the serial port.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, p...)
	for {
		i := bytes.IndexAny(c.partial, "\r\n")
		if i < 0 {
			break
		}

		c.addLine(c.partial[:i])
		c.partial = c.partial[i+1:]
	}

	c.notify()
	return len(p), nil
}

func (c *Console) addLine(raw []byte) {
	line := strings.TrimRight(commandline.StripEscapes(string(raw)), " \x00")
	if line == "" {
		return
	}

	c.lines = append(c.lines, line)
	if c.log != nil {
		fmt.Fprintf(c.log, "%s %s\n", time.Now().Format("15:04:05.00"), line)
	}
}

func (c *Console) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// attach is called when a machine starts, end when it has ended.
func (c *Console) attach(input io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.input = false, input
}

func (c *Console) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLine(c.partial)
	c.partial, c.ended, c.input = nil, true, nil
	c.notify()
}

// Lines returns all lines so far, without terminal escapes and empty ones.
func (c *Console) Lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines...)
}

// LinesFrom returns the lines after the first n.
func (c *Console) LinesFrom(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.lines[min(n, len(c.lines)):]...)
}

// LastLine returns the newest line, "" if there is none.
func (c *Console) LastLine() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) == 0 {
		return ""
	}

	return c.lines[len(c.lines)-1]
}

// Wait returns the next line that contains text, after those earlier Waits have passed.
// It ends with an error when the machine ends first or ctx does; the error quotes the
// last lines, since they tell why.
func (c *Console) Wait(ctx context.Context, text string) (string, error) {
	return c.WaitFor(ctx, text, func(line string) bool { return strings.Contains(line, text) })
}

// WaitFor is Wait with a test of one's own; what describes it in errors.
func (c *Console) WaitFor(ctx context.Context, what string, match func(line string) bool) (string, error) {
	for {
		c.mu.Lock()
		for c.read < len(c.lines) {
			line := c.lines[c.read]
			c.read++
			if match(line) {
				c.mu.Unlock()
				return line, nil
			}
		}

		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if ended {
			return "", fmt.Errorf("wait for console line %q: the machine ended; last lines:\n%s", what, c.Tail(20))
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for console line %q: %w; last lines:\n%s", what, ctx.Err(), c.Tail(20))
		}
	}
}

// Tail returns the last n lines, indented, the unfinished one included.
func (c *Console) Tail(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := append(append([]string(nil), c.lines...), string(c.partial))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}

	return "    " + strings.Join(lines, "\n    ")
}

// Type sends keys to the serial port.
func (c *Console) Type(keys string) error {
	c.mu.Lock()
	input := c.input
	c.mu.Unlock()
	if input == nil {
		return fmt.Errorf("type on console: the machine is off")
	}

	_, err := io.WriteString(input, keys)
	return err
}
