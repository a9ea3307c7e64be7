package launcher

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/term"
)

// hub passes what a guest's serial port prints to the pod's log and to everybody who is attached, and what they type to
// the guest.
type hub struct {
	serial net.Conn
	log    io.Writer

	mu       sync.Mutex
	attached map[net.Conn]bool
	last     []byte // the end of what was printed: whoever attaches sees it
}

// Bounds of the hub. Whoever does not read is let go; the guest is not kept waiting.
const (
	scrollback   = 4 << 10
	readTimeout  = time.Second
	maxListeners = 8
)

func newHub(serial net.Conn, log io.Writer) *hub {
	return &hub{serial: serial, log: log, attached: map[net.Conn]bool{}}
}

// copyOutput ends with QEMU's connection.
func (h *hub) copyOutput() {
	for b := make([]byte, 4096); ; {
		n, err := h.serial.Read(b)
		h.print(b[:n])
		if err != nil {
			return
		}
	}
}

func (h *hub) print(text []byte) {
	_, _ = h.log.Write(text) // a log that is full is no reason to stop the guest
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = append(h.last, text...)
	h.last = h.last[max(0, len(h.last)-scrollback):]
	for conn := range h.attached {
		h.send(conn, text)
	}
}

// send wants the lock.
func (h *hub) send(conn net.Conn, text []byte) {
	_ = conn.SetWriteDeadline(time.Now().Add(readTimeout)) // the write says the same
	if _, err := conn.Write(text); err != nil {
		delete(h.attached, conn)
		_ = conn.Close() // it is let go
	}
}

// serve attaches whoever connects, until the listener is closed.
func (h *hub) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !h.attach(conn) {
			_ = conn.Close() // too many
			continue
		}
		go func() {
			_, _ = io.Copy(h.serial, conn) // ends with either
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.attached, conn)
			_ = conn.Close()
		}()
	}
}

func (h *hub) attach(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.attached) >= maxListeners {
		return false
	}
	h.attached[conn] = true
	h.send(conn, h.last)
	return true
}

// detach is the key that leaves the console: Ctrl-], as with virtctl.
const detach = 0x1d

// Attach connects a terminal to the machine of this pod, until one of them ends. file is the terminal's descriptor.
func Attach(ctx context.Context, root string, file int, in io.Reader, out io.Writer) error {
	conn, err := dial(ctx, root)
	if err != nil {
		return fmt.Errorf("the machine does not run: %w", err)
	}
	defer conn.Close()
	if term.IsTerminal(file) {
		before, err := term.MakeRaw(file)
		if err != nil {
			return fmt.Errorf("prepare terminal: %w", err)
		}
		defer func() { _ = term.Restore(file, before) }()
		fmt.Fprint(out, "This is the serial console; Enter wakes it up, Ctrl-] leaves it.\r\n")
	}

	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(out, conn)
		ended <- err
	}()
	go func() {
		if copyInput(conn, in) {
			ended <- nil
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// copyInput reports whether the user left. Without more input the output is still shown.
func copyInput(to io.Writer, in io.Reader) bool {
	for b := make([]byte, 1024); ; {
		n, err := in.Read(b)
		text, _, left := bytes.Cut(b[:n], []byte{detach})
		if _, err := to.Write(text); err != nil || left {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// CheckRunning reports an error if the machine of this pod does not run.
func CheckRunning(ctx context.Context, root string) error {
	conn, err := dial(ctx, root)
	if err != nil {
		return err
	}
	return conn.Close()
}

func dial(ctx context.Context, root string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(root, RunDir, consoleSocket))
}
