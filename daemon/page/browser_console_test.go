package page

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/serialconsole"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	lab "firstlight.dev/firstlight/image/lab/bmc"
)

// lamp is a machine that does nothing.
type lamp struct{}

func (lamp) IsOn() bool            { return true }
func (lamp) SwitchOn(string) error { return nil }
func (lamp) SwitchOff() error      { return nil }
func (lamp) ShutDown() error       { return nil }

// startServer is a server with a BMC of OpenIPMI. Its serial port asks for a name whenever a line was typed.
func startServer(t *testing.T) site.BMC {
	for _, program := range []string{lab.Program, "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}
	serial, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { serial.Close() })
	go func() {
		for {
			conn, err := serial.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for b := make([]byte, 512); ; {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(strings.ReplaceAll(string(b[:n]), "\r", "\r\n\x1b[1;32mnode-004\x1b[0m login: ")))
				}
			}()
		}
	}()

	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	b, err := lab.Start(lab.Config{
		Name: "node-004", Dir: t.TempDir(), User: "admin", Password: "a-password", Front: front,
		Console: serial.Addr().String(),
	}, lamp{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return site.BMC{
		Address:  site.BMCAddress("ipmi://" + front.LocalAddr().String()),
		Username: "admin",
		Password: site.NewSecret("a-password"),
	}
}

// sharedConsole is a console as the daemon has the page read it.
type sharedConsole struct{ *serialconsole.Reader }

func (c sharedConsole) Screen() Screen { return Screen(c.View()) }

func (c sharedConsole) Next(ctx context.Context) (Screen, error) {
	_, err := c.Reader.Next(ctx)
	return c.Screen(), consoleEnd(err)
}

func consoleEnd(err error) error {
	var why *serialconsole.Refusal
	if errors.As(err, &why) {
		return &ConsoleEnd{why.Text, why.Fix}
	}
	return err
}

// TestABrowserTypesAtAConsole: by keyboard, down to the serial port behind somebody else's IPMI; the console is
// shared by two who watch, is explained when it ends, and can be opened again.
func TestABrowserTypesAtAConsole(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), browserHung)
	defer cancel()
	c := startChromium(ctx, t)
	of := startServer(t)
	var isLeaving atomic.Bool
	consoles := &serialconsole.Consoles{
		Log: slog.New(slog.DiscardHandler),
		Target: func(string) (serialconsole.Target, error) {
			return serialconsole.Target{BMC: of, IsLeaving: isLeaving.Load()}, nil
		},
		Open: func(ctx context.Context, _ string, b site.BMC) (serialconsole.Line, error) {
			line, a := bmc.Client{}.OpenConsole(ctx, b)
			if a.Verdict != bmc.OK {
				return nil, &serialconsole.Refusal{Text: a.Text, Fix: a.Fix}
			}
			return line, nil
		},
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- consoles.Run(running) }()
	t.Cleanup(func() { stop(); assert.NoError(t, <-ended) })

	r := newConsoleFixture(t)
	r.deeds.WatchConsole = func(ctx context.Context, node string) (Console, error) {
		reader, err := consoles.Attach(ctx, node)
		if err != nil {
			return nil, consoleEnd(err)
		}
		return sharedConsole{reader}, nil
	}
	r.deeds.TypeAtConsole = func(node string, text []byte) error { return consoleEnd(consoles.Type(node, text)) }
	url, _ := serveAlone(t, r.Server)
	c.size(1200, 900, "light")
	c.logIn(r.Server, url, Operator, nil)
	c.open(url + testConsole)
	openIt := func() { // while the BMC starts, it does not answer
		t.Helper()
		for c.value("document.getElementById('console-state').textContent.startsWith('It is open.')") != true {
			c.value("document.getElementById('console-open').hidden || document.getElementById('console-open').click()")
			time.Sleep(50 * time.Millisecond) // the connection has the deadline
		}
	}
	openIt()
	const text = "document.getElementById('console-text').textContent"
	other, err := consoles.Attach(ctx, "node-004") // somebody else watches it, too
	require.NoError(t, err)
	defer other.Close()
	c.value("document.getElementById('console-text').focus()")
	c.press("Enter", 13)
	c.await(text + ".endsWith('node-004 login:  ')")
	c.value("document.getElementById('console-line').focus()")
	c.call("Input.insertText", map[string]any{"text": "Gerät <b>"})
	c.press("Enter", 13)
	c.await(text + ".includes('login: Gerät <b>')")
	assert.Nil(t, c.value("document.querySelector('#console-text b')"), "what is printed is text")
	c.picture("console")

	c.size(390, 844, "dark")
	c.open(url + testConsole + "?")
	openIt()
	c.await(text + ".includes('login: Gerät <b>')") // the history is shown to whoever comes later
	assert.Equal(t, true, c.value("document.documentElement.scrollWidth <= innerWidth"), "a phone shows its whole width")
	c.value("document.querySelector('[data-key=Escape]').focus()")
	c.press("Tab", 9)
	assert.Equal(t, "Tab", c.value("document.activeElement.dataset.key"), "the Tab key leads on")
	c.picture("console-phone")

	isLeaving.Store(true)
	c.await("document.getElementById('console-state').textContent.startsWith('It is closed: node-004 is being deprovisioned')")
	assert.Equal(t, "error", c.value("document.getElementById('console-state').className"))
	c.value("document.getElementById('console-open').click()")
	openIt()
}
