package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/api"
)

// consoles are those of one node: it prints in capitals what is typed, and its BMC ends it at "bye".
type consoles struct {
	mu      sync.Mutex
	printed chan []byte
	audited []api.Change
}

func (c *consoles) attach(_ context.Context, node string) (api.Console, error) {
	if node != "node-1" {
		return nil, errors.New("node node-2 has no BMC, and so no console")
	}
	return c, nil
}

func (c *consoles) typeIn(_ string, text []byte) error {
	c.printed <- bytes.ToUpper(text)
	return nil
}

func (c *consoles) Next(ctx context.Context) ([]byte, error) {
	select {
	case text := <-c.printed:
		if strings.Contains(string(text), "BYE") {
			return nil, errors.New("the BMC ended the console; 100 % of it\nand more")
		}
		return text, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (*consoles) Close() {}

func serveConsoles(t *testing.T) (c *consoles, socket string) {
	c, socket = &consoles{printed: make(chan []byte, 64)}, filepath.Join(t.TempDir(), "s")
	ready, ended := make(chan struct{}), make(chan error, 1)
	s := &api.Server{
		Socket: socket, Ready: func() { close(ready) }, Log: slog.New(slog.DiscardHandler),
		AttachConsole: c.attach, TypeAtConsole: c.typeIn,
		Audit: func(a api.Change) { c.mu.Lock(); defer c.mu.Unlock(); c.audited = append(c.audited, a) },
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	<-ready
	return c, socket
}

// watch runs the command with what is typed, and returns what it prints. What is typed ends with end, which is read
// when the first line was printed.
func watch(t *testing.T, socket, node, typed, end string) (out string, err error) {
	cmd := newConsoleCommand()
	in, keys := io.Pipe()
	defer in.Close()
	var printed, said bytes.Buffer
	first := make(chan struct{})
	cmd.SetIn(in)
	cmd.SetOut(writerFunc(func(b []byte) (int, error) {
		n, err := printed.Write(b)
		if strings.Contains(printed.String(), strings.ToUpper(typed)) {
			select {
			case <-first:
			default:
				close(first)
			}
		}
		return n, err
	}))
	cmd.SetErr(&said)
	cmd.SetArgs([]string{"--socket", socket, node})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	go func() {
		_, _ = io.WriteString(keys, typed)
		<-first
		_, _ = io.WriteString(keys, end)
	}()
	err = cmd.ExecuteContext(t.Context())
	return printed.String(), err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestConsoleIsWatchedUntilItsKey(t *testing.T) {
	c, socket := serveConsoles(t)
	out, err := watch(t, socket, "node-1", "hello\r", "more\x1dnever")
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "HELLO\r"), out)
	assert.NotContains(t, out, "NEVER")

	_, err = watch(t, socket, "node-1", "again\r", "bye\r")
	assert.EqualError(t, err, "the BMC ended the console; 100 % of it\nand more")
	_, err = watch(t, socket, "node-2", "x", "")
	assert.EqualError(t, err, "node node-2 has no BMC, and so no console")

	c.mu.Lock()
	defer c.mu.Unlock()
	require.Len(t, c.audited, 3)
	assert.Equal(t, "console node-1", c.audited[0].Verb+" "+c.audited[0].Node)
	assert.Equal(t, 200, c.audited[0].Code)
	assert.Equal(t, 422, c.audited[2].Code)
}
