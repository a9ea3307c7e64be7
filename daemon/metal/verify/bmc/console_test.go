package bmc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	lab "firstlight.dev/firstlight/image/lab/bmc"
)

// serialPort is a server that answers what it reads, on TCP.
type serialPort struct {
	listener net.Listener
	conns    chan net.Conn
}

func newSerialPort(t *testing.T) *serialPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	p := &serialPort{l, make(chan net.Conn, 16)}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.conns <- conn
			go func() {
				defer conn.Close()
				for b := make([]byte, 512); ; {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					_, _ = conn.Write(bytes.ToUpper(b[:n]))
				}
			}()
		}
	}()
	return p
}

// startConsole is a BMC of OpenIPMI whose server has a serial port, and answers.
func startConsole(t *testing.T, serial string) site.BMC {
	for _, program := range []string{lab.Program, "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}
	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	b, err := lab.Start(lab.Config{
		Name: "node1", Dir: t.TempDir(), User: "admin", Password: "a-password", Front: front, Console: serial,
	}, lamp{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })

	of := asked("ipmi://"+front.LocalAddr().String(), "a-password")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for { // it starts
		if a := (Client{Pins: pins(t)}).Login(ctx, of); a.Verdict == OK {
			return of
		}
		require.NoError(t, ctx.Err(), "ipmi_sim does not start")
	}
}

// open opens a console. On a busy machine an answer may be late, and a login is not repeated.
func open(t *testing.T, of site.BMC) (*Console, Answer) {
	for {
		console, a := Client{Pins: pins(t)}.OpenConsole(t.Context(), of)
		if a.Verdict != Silent {
			return console, a
		}
		t.Log(a.Text)
	}
}

// printed is what a console prints, for a test that waits for it.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	select {
	case p.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *printed) await(t *testing.T, text string) {
	t.Helper()
	for {
		p.mu.Lock()
		got := p.text.String()
		p.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		select {
		case <-p.more:
		case <-time.After(5 * time.Minute):
			require.Fail(t, "not printed", "%q, but %q", text, got)
		}
	}
}

// TestAConsoleIsOpenedByIPMI against somebody else's IPMI.
func TestAConsoleIsOpenedByIPMI(t *testing.T) {
	port := newSerialPort(t)
	of := startConsole(t, port.listener.Addr().String())
	for range 2 { // it is free again after it was closed
		console, a := open(t, of)
		require.Equal(t, OK, a.Verdict, a.Text)

		_, a = open(t, of)
		assert.Equal(t, Busy, a.Verdict, "one session at a time")
		assert.Contains(t, a.Text, "another session has the console")

		ctx, cancel := context.WithCancel(t.Context())
		in, keys := io.Pipe()
		out := &printed{more: make(chan struct{}, 1)}
		ended := make(chan error, 1)
		go func() { ended <- console.Run(ctx, in, out) }()
		_, err := io.WriteString(keys, "hello\r")
		require.NoError(t, err)
		out.await(t, "HELLO\r")
		cancel()
		assert.NoError(t, <-ended)
		console.Close()
		keys.Close()
	}
}

func TestAConsoleThatIsOffIsExplained(t *testing.T) {
	of := startConsole(t, "")
	_, a := open(t, of)
	assert.Equal(t, Unfit, a.Verdict, a.Text)
	assert.Contains(t, a.Text, "opens no console")
	assert.Contains(t, a.Fix, "enable serial over LAN")

	wrong := of
	wrong.Password = site.NewSecret("another")
	_, a = open(t, wrong)
	assert.Equal(t, Refused, a.Verdict, a.Text)
}

func TestRefusalsOfAConsole(t *testing.T) {
	of := asked("ipmi://127.0.0.1:623", "x")
	_, a := Client{}.OpenConsole(t.Context(), asked("redfish://127.0.0.1/redfish/v1/Systems/1", "x"))
	assert.Equal(t, Unfit, a.Verdict)
	assert.Contains(t, a.Text, "spoken to by Redfish")
	for _, c := range []struct {
		err     error
		verdict Verdict
		text    string
		fix     string
	}{
		{errConsoleOff, Unfit, "serial over LAN is switched off", "sol set enabled true"},
		{types.NewResponseError(0x80, ""), Busy, "another session has the console", "sol deactivate"},
		{types.NewResponseError(0x82, ""), Busy, "another session has the console", "sol deactivate"},
		{types.NewResponseError(0x81, ""), Unfit, "switched off, or that it has none", "enable serial over LAN"},
		{types.NewResponseError(0x83, ""), Unfit, "without encryption", "enable encryption"},
		{types.NewResponseError(0xc0, ""), Busy, "is busy", "try again"},
		{types.NewResponseError(0xc1, ""), Unfit, "switched off, or that it has none", "enable serial over LAN"},
		{types.NewResponseError(0xd4, ""), Unfit, `may not use serial over LAN`, "for its user"},
		{types.NewResponseError(0xff, "odd"), Unfit, "opens no console", "enable serial over LAN"},
		{context.DeadlineExceeded, Silent, "does not answer", "check the BMC's cable"},
		{errors.New("odd"), Silent, "cannot be asked", "check the BMC's cable"},
	} {
		a := judgeConsoleError(of, c.err)
		assert.Equal(t, c.verdict, a.Verdict, c.err)
		assert.Contains(t, a.Text, c.text)
		assert.Contains(t, a.Fix, c.fix)
	}
}

// slowDown is the address of a BMC whose packets take a while each way, for one client.
func slowDown(t *testing.T, of site.BMCAddress, delay time.Duration) site.BMCAddress {
	bmc, err := net.Dial("udp4", strings.TrimPrefix(string(of), "ipmi://"))
	require.NoError(t, err)
	near, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { bmc.Close(); near.Close() })
	var client atomic.Value
	go func() {
		for b := make([]byte, 2048); ; {
			n, from, err := near.ReadFrom(b)
			if err != nil {
				return
			}
			client.Store(from)
			packet := bytes.Clone(b[:n])
			time.AfterFunc(delay, func() { _, _ = bmc.Write(packet) })
		}
	}()
	go func() {
		for b := make([]byte, 2048); ; {
			n, err := bmc.Read(b)
			if err != nil {
				return
			}
			packet := bytes.Clone(b[:n])
			time.AfterFunc(delay, func() { _, _ = near.WriteTo(packet, client.Load().(net.Addr)) })
		}
	}()
	return site.BMCAddress("ipmi://" + near.LocalAddr().String())
}

// TestOneCanTypeWhileAServerPrints without end, on a BMC that is not near.
func TestOneCanTypeWhileAServerPrints(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	typed := make(chan string, 64)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		go func() {
			for b := make([]byte, 512); ; {
				n, err := conn.Read(b)
				if err != nil {
					return
				}
				typed <- string(b[:n])
			}
		}()
		for { // as fast as a port of 115,200 bit/s
			if _, err := conn.Write(bytes.Repeat([]byte("flood "), 19)); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()

	of := startConsole(t, l.Addr().String())
	of.Address = slowDown(t, of.Address, 15*time.Millisecond)
	console, a := open(t, of)
	require.Equal(t, OK, a.Verdict, a.Text)
	defer console.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in, keys := io.Pipe()
	defer keys.Close()
	out := &printed{more: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() { ended <- console.Run(ctx, in, out) }()
	out.await(t, "flood flood")
	go func() { _, _ = io.WriteString(keys, "hello\r") }()
	var all string
	for !strings.Contains(all, "hello\r") {
		select {
		case text := <-typed:
			all += text
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			out.mu.Lock()
			printed := out.text.Len()
			out.mu.Unlock()
			require.Fail(t, "not typed", "%q after %d bytes of output", all, printed)
		}
	}
	cancel()
	<-ended
}
