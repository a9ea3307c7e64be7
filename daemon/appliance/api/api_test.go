package api

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

func serve(t *testing.T, socket string, document func() status.Document, reload func() error) Client {
	ready, ended := make(chan struct{}), make(chan error)
	s := &Server{Socket: socket, Document: document, Reload: reload, Ready: func() { close(ready) }, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	}
	return Client{Socket: socket}
}

func TestStatusAndReload(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "run", "status.sock")
	require.NoError(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	require.NoError(t, os.WriteFile(socket, nil, 0o600)) // left behind by a daemon that was killed
	want := status.Document{Name: "firstlight-ab12", State: status.StateWorking, Since: time.Unix(5, 0).UTC(),
		Stages: []status.Stage{{Name: "links-up", State: status.StateReady, Attempts: 1}}}
	var reloads atomic.Int32
	c := serve(t, socket, func() status.Document { return want }, func() error {
		if reloads.Add(1) == 2 {
			return errors.New("site.yaml:3: unknown key")
		}
		return nil
	})
	got, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	require.NoError(t, c.Reload(t.Context()))
	assert.EqualValues(t, 1, reloads.Load())
	assert.EqualError(t, c.Reload(t.Context()), "site.yaml:3: unknown key")
	info, err := os.Stat(socket)
	require.NoError(t, err)
	assert.Zero(t, info.Mode().Perm()&0o077, "others may open the socket")
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		end  status.State
		want string
	}{
		{status.StateReady, ""},
		{status.StateFailed, "the appliance stopped: site.yaml:3: unknown key"},
	} {
		t.Run(string(c.end), func(t *testing.T) {
			var asked atomic.Int32
			client := serve(t, filepath.Join(t.TempDir(), "s"), func() status.Document {
				if asked.Add(1) == 1 {
					return status.Document{Version: "1", State: status.StateWorking}
				}
				return status.Document{Version: "1", State: c.end, Summary: "site.yaml:3: unknown key"}
			}, nil)
			_, err := client.Wait(t.Context(), ApplianceReady)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
			assert.EqualValues(t, 2, asked.Load())
		})
	}
}

func TestWaitSaysWhatWasMissingWhenTimeIsUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	c := serve(t, filepath.Join(t.TempDir(), "s"), func() status.Document {
		if asked.Add(1) == 2 { // the first answer has arrived
			cancel()
		}
		return status.Document{Version: "1", State: status.StateWorking, Summary: "links-up: a link"}
	}, nil)
	_, err := c.Wait(ctx, ApplianceReady)
	assert.EqualError(t, err, "not ready in time: links-up: a link")
}

func TestWaitForTheLaunch(t *testing.T) {
	ready := status.Document{Version: "1", State: status.StateReady}
	with := func(l status.Launch) status.Document { d := ready; d.Launch = l; return d }
	for _, c := range []struct {
		name string
		d    status.Document
		done bool
		err  string
	}{
		{"appliance comes up", status.Document{Version: "1", State: status.StateWorking, Summary: "links-up: a link"}, false, "not ready in time: links-up: a link"},
		{"appliance stopped", status.Document{Version: "1", State: status.StateFailed, Summary: "wrong site"}, true, "the appliance stopped: wrong site"},
		{"nothing to launch", with(status.Launch{State: status.LaunchNothing}), true, ""},
		{"nodes on their way", with(status.Launch{State: status.LaunchRunning, Text: "1 of 2 nodes proven"}), false, "not launched in time: 1 of 2 nodes proven"},
		{"a node failed", with(status.Launch{State: status.LaunchFailed, Text: "not launched: node-2 …"}), true, "not launched: node-2 …"},
		{"launched", with(status.Launch{State: status.LaunchSucceeded}), true, ""},
	} {
		done, err := LaunchFinished(c.d)
		assert.Equal(t, c.done, done, c.name)
		if c.err == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.EqualError(t, err, c.err, c.name)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	_, err := Client{Socket: filepath.Join(t.TempDir(), "none")}.Status(t.Context())
	assert.ErrorIs(t, err, os.ErrNotExist)
}
