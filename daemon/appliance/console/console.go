// Package console shows the appliance's status where nobody has logged in: as a screen
// that is redrawn in place on tty1, and as lines on the serial consoles. Nothing is read
// from either; no key is ever needed.
package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/status"
)

// Console draws documents. Its zero value with Document, Changed and Log draws on the
// machine's own screen and serial lines.
type Console struct {
	Document func() status.Document
	Changed  <-chan struct{} // something changed; may be coalesced
	Hidden   func() bool     // the site wants nothing shown; nil: never
	Log      *slog.Logger

	Screens []string // devices drawn as a screen; nil: /dev/tty1
	Lines   []string // devices that get lines; nil: the kernel's consoles that are no screen
}

// redrawEvery keeps the durations on the screen going when nothing else changes.
const redrawEvery = 5 * time.Second

// settle gathers changes that come together into one drawing.
const settle = 50 * time.Millisecond

// Run draws until ctx ends. A device that cannot be opened is left out.
func (c *Console) Run(ctx context.Context) error {
	screens, lines := c.Screens, c.Lines
	if screens == nil {
		screens = []string{"/dev/tty1"}
	}

	if lines == nil {
		lines = kernelConsoles("/sys/class/tty/console/active")
	}

	sFiles, lFiles := c.open(screens), c.open(lines)
	defer closeAll(sFiles)
	defer closeAll(lFiles)
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	var last status.Document
	for {
		if c.Hidden == nil || !c.Hidden() {
			d := c.Document()
			for _, f := range sFiles {
				width, height := size(f)
				c.write(f, frame(composeScreen(d, time.Now(), width, height)))
			}

			if text := RenderChanges(last, d); text != "" {
				for _, f := range lFiles {
					c.write(f, strings.ReplaceAll(text, "\n", "\r\n"))
				}
			}

			last = d
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.Changed:
			select {
			case <-ctx.Done():
			case <-time.After(settle):
			}
		}
	}
}

func (c *Console) open(paths []string) []*os.File {
	var files []*os.File
	for _, p := range paths {
		// Not our controlling terminal, and never waiting for a modem's carrier; non-blocking
		// also means that a serial line held by flow control cannot hold the daemon.
		f, err := os.OpenFile(p, os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			c.Log.Debug("console left out", "device", p, "error", err)
			continue
		}
		files = append(files, f)
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func (c *Console) write(f *os.File, text string) {
	_ = f.SetWriteDeadline(time.Now().Add(2 * time.Second)) // not every device knows deadlines
	if _, err := io.WriteString(f, text); err != nil && !errors.Is(err, unix.EAGAIN) {
		c.Log.Debug("console not written", "device", f.Name(), "error", err)
	}
}

// kernelConsoles lists the devices of the kernel's consoles that are no screen.
func kernelConsoles(active string) []string {
	b, err := os.ReadFile(active)
	if err != nil {
		return nil
	}

	var devices []string
	for name := range strings.FieldsSeq(string(b)) {
		if !isScreen(name) {
			devices = append(devices, "/dev/"+name)
		}
	}

	return devices
}

// isScreen tells tty0 and tty1 from ttyS0, ttyAMA0 and hvc0.
func isScreen(name string) bool {
	rest, ok := strings.CutPrefix(name, "tty")
	return ok && strings.Trim(rest, "0123456789") == ""
}

func size(f *os.File) (width, height int) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col == 0 || ws.Row == 0 {
		return 80, 25
	}
	return int(ws.Col), int(ws.Row)
}
