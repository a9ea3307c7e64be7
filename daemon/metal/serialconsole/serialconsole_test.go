package serialconsole

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

// hung ends a test that hangs.
const hung = 5 * time.Minute

// echo is a server that prints what is typed in capitals, and ends at "bye".
type echo struct {
	of *rack
}

func (e *echo) Run(ctx context.Context, input io.Reader, output io.Writer) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(input); ; {
			line, err := r.ReadString('\r')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	for {
		select {
		case <-ctx.Done():
			for range lines { // until its input is closed
			}
			return nil
		case line := <-lines:
			if line == "bye\r" {
				return errors.New("the BMC ended the console")
			}
			_, _ = io.WriteString(output, strings.ToUpper(line)+"\n")
		}
	}
}

func (e *echo) Close() {
	e.of.mu.Lock()
	release := e.of.release
	e.of.mu.Unlock()
	if release != nil {
		<-release
	}
	e.of.note("closed")
}

// rack is what consoles are opened of.
type rack struct {
	mu      sync.Mutex
	targets map[string]Target
	events  []string
	release chan struct{} // closed when consoles may be closed; nil: at once
}

func (r *rack) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, text)
}

func (r *rack) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}

func (r *rack) set(node string, t Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets[node] = t
}

func at(address string) Target { return Target{BMC: site.BMC{Address: site.BMCAddress(address)}} }

func newConsoles(t *testing.T) (*Consoles, *rack) {
	of := &rack{targets: map[string]Target{"node-1": at("ipmi://10.0.0.1"), "node-2": at("ipmi://10.0.0.2")}}
	c := &Consoles{
		Log: slog.New(slog.DiscardHandler),
		Target: func(node string) (Target, error) {
			of.mu.Lock()
			defer of.mu.Unlock()
			target, ok := of.targets[node]
			if !ok {
				return Target{}, fmt.Errorf("no node is called %q", node)
			}
			return target, nil
		},
		Open: func(_ context.Context, node string, b site.BMC) (Line, error) {
			if b.Address == "ipmi://10.0.0.2" {
				return nil, &Refusal{"it is off", "switch it on"}
			}
			of.note("opened " + node)
			return &echo{of}, nil
		},
		pace: pace{linger: time.Nanosecond, idle: time.Hour, recheck: time.Millisecond},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	for { // until it runs
		c.mu.Lock()
		runs := c.ctx != nil
		c.mu.Unlock()
		if runs {
			return c, of
		}
		time.Sleep(time.Millisecond)
	}
}

// awaitEnd reads until the console ends, and returns why.
func awaitEnd(t *testing.T, r *Reader) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	defer cancel()
	for {
		if _, err := r.Next(ctx); err != nil {
			require.NoError(t, ctx.Err())
			return err.Error()
		}
	}
}

func TestOneConsoleIsSharedByAllWhoWatch(t *testing.T) {
	c, of := newConsoles(t)
	first, err := c.Attach(t.Context(), "node-1")
	require.NoError(t, err)
	require.NoError(t, c.Type("node-1", []byte("hello\r")))
	text, err := first.Next(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "HELLO\r\n", string(text))

	second, err := c.Attach(t.Context(), "node-1")
	require.NoError(t, err)
	text, err = second.Next(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "HELLO\r\n", string(text), "what was printed before is shown")
	assert.Equal(t, "HELLO", second.View().Lines[0])
	first.Close()
	first.Close()
	require.NoError(t, c.Type("node-1", []byte("again\r")))
	text, err = second.Next(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "AGAIN\r\n", string(text), "it stays while one watches")
	assert.Equal(t, []string{"opened node-1"}, of.seen())

	second.Close()
	assert.Equal(t, "nobody watches the console any more", awaitEnd(t, second))
	require.Eventually(t, func() bool { return len(of.seen()) == 2 }, hung, time.Millisecond)
	assert.Equal(t, []string{"opened node-1", "closed"}, of.seen())
	assert.ErrorContains(t, c.Type("node-1", []byte("x")), "is not open; open it again")
}

// TestABMCIsFreeBeforeItsConsoleIsOpenedAgain: it gives the console to one session at a time, and a session that is
// closed late would end the next one.
func TestABMCIsFreeBeforeItsConsoleIsOpenedAgain(t *testing.T) {
	c, of := newConsoles(t)
	of.release = make(chan struct{})
	release := sync.OnceFunc(func() { close(of.release) })
	defer release()
	key := site.BMCAddress("ipmi://10.0.0.1").SystemKey()
	first, err := c.Attach(t.Context(), "node-1")
	require.NoError(t, err)
	require.NoError(t, c.Type("node-1", []byte("bye\r")))
	assert.Equal(t, "the BMC ended the console", awaitEnd(t, first))

	attached := make(chan error, 1)
	go func() {
		second, err := c.Attach(t.Context(), "node-1")
		if err == nil {
			second.Close()
		}
		attached <- err
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.sessions[key] != nil && c.sessions[key] != first.session
	}, hung, time.Millisecond)
	assert.Equal(t, []string{"opened node-1"}, of.seen())
	release()
	require.NoError(t, <-attached)
	assert.Equal(t, []string{"opened node-1", "closed", "opened node-1"}, of.seen()[:3])
}

func TestAConsoleEnds(t *testing.T) {
	for name, c := range map[string]struct {
		deed func(c *Consoles, of *rack)
		want string
	}{
		"its BMC ends it":      {func(c *Consoles, _ *rack) { _ = c.Type("node-1", []byte("bye\r")) }, "the BMC ended the console"},
		"it is deprovisioned":  {func(_ *Consoles, of *rack) { tt := at("ipmi://10.0.0.1"); tt.IsLeaving = true; of.set("node-1", tt) }, "is being deprovisioned"},
		"it has another BMC":   {func(_ *Consoles, of *rack) { of.set("node-1", at("ipmi://10.0.0.3")) }, "has another BMC now"},
		"nobody knows it":      {func(_ *Consoles, of *rack) { of.mu.Lock(); delete(of.targets, "node-1"); of.mu.Unlock() }, `no node is called "node-1"`},
		"it prints nothing":    {nil, "nothing was printed or typed for"},
		"the appliance stops":  {nil, "the appliance closed the console"},
		"it was left long ago": {nil, "nobody watches"},
	} {
		consoles, of := newConsoles(t)
		if name == "it prints nothing" {
			consoles.pace.idle = time.Nanosecond
		}
		r, err := consoles.Attach(t.Context(), "node-1")
		if err != nil && name == "it prints nothing" { // it may have ended before it is watched
			assert.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err, name)
		switch name {
		case "it was left long ago":
			r.Close()
		case "the appliance stops":
			ctx, cancel := context.WithCancel(t.Context())
			other := &Consoles{Log: consoles.Log, Target: consoles.Target, Open: consoles.Open}
			ended := make(chan error, 1)
			go func() { ended <- other.Run(ctx) }()
			require.Eventually(t, func() bool { r, err = other.Attach(t.Context(), "node-1"); return err == nil }, hung, time.Millisecond)
			cancel()
			require.NoError(t, <-ended, "it waits until the BMC is free")
		default:
			if c.deed != nil {
				c.deed(consoles, of)
			}
		}
		assert.Contains(t, awaitEnd(t, r), c.want, name)
	}
}

// TestAConsoleOfDeprovisioningEndsWithIt: what comes next is somebody else's.
func TestAConsoleOfDeprovisioningEndsWithIt(t *testing.T) {
	c, of := newConsoles(t)
	leaving := at("ipmi://10.0.0.1")
	leaving.IsLeaving = true
	of.set("node-1", leaving)
	r, err := c.Attach(t.Context(), "node-1")
	require.NoError(t, err)
	of.set("node-1", at("ipmi://10.0.0.1"))
	assert.Contains(t, awaitEnd(t, r), "node-1 was deprovisioned, which closes its console; open it again")
}

func TestWhatIsRefused(t *testing.T) {
	c, of := newConsoles(t)
	_, err := c.Attach(t.Context(), "node-2")
	assert.EqualError(t, err, "it is off; switch it on")
	_, err = c.Attach(t.Context(), "node-3")
	assert.EqualError(t, err, `no node is called "node-3"`)
	r, err := c.Attach(t.Context(), "node-1")
	require.NoError(t, err)
	defer r.Close()
	of.set("node-4", at("ipmi://10.0.0.1"))
	_, err = c.Attach(t.Context(), "node-4")
	assert.ErrorContains(t, err, "is open as that of node-1")
	assert.ErrorContains(t, c.Type("node-1", make([]byte, MaxInput+1)), "more than 2048 bytes")
	_, err = (&Consoles{Target: c.Target, Open: c.Open, Log: c.Log}).Attach(t.Context(), "node-1")
	assert.ErrorContains(t, err, "starting or stopping")
	for i := range maxSessions {
		node := fmt.Sprintf("more-%d", i)
		of.set(node, at(fmt.Sprintf("ipmi://10.0.1.%d", i)))
		reader, attachErr := c.Attach(t.Context(), node)
		if err = attachErr; err != nil {
			break
		}
		defer reader.Close()
	}
	assert.ErrorContains(t, err, "16 consoles are open")
}

func TestTheHistoryIsBounded(t *testing.T) {
	s := newSession(&Consoles{}, "node-1", Target{})
	r := &Reader{session: s}
	for range 3 * history / 100 {
		_, _ = s.Write([]byte(strings.Repeat("x", 99) + "\n"))
	}
	text, err := r.Next(t.Context())
	require.NoError(t, err)
	assert.Len(t, text, history)
	_, _ = s.Write([]byte("more"))
	text, err = r.Next(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "more", string(text))
}
