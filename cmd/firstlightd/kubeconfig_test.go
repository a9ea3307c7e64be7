package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

// TestKubeconfigCommand: the daemon reads it, whatever the cluster is of; what it refuses is one line.
func TestKubeconfigCommand(t *testing.T) {
	ready, ended := make(chan struct{}), make(chan error)
	s := &api.Server{
		Socket: filepath.Join(t.TempDir(), "s"),
		Ready:  func() { close(ready) },
		Log:    slog.New(slog.DiscardHandler),
		Document: func() status.Document {
			return status.Document{Version: "0.1.0", Clusters: []status.Cluster{
				{Namespace: "default", Name: "edge"}, {Namespace: "metal3", Name: "edge"}, {Namespace: "metal3", Name: "far"},
			}}
		},
		Kubeconfig: func(_ context.Context, cluster string) ([]byte, error) {
			if cluster != "metal3/edge" {
				return nil, errors.New("several clusters are called edge")
			}
			return []byte("apiVersion: v1\n"), nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	<-ready

	out, err := runCommand(t, "kubeconfig", "metal3/edge", "--socket", s.Socket)
	require.NoError(t, err)
	assert.Equal(t, "apiVersion: v1\n", out)
	_, err = runCommand(t, "kubeconfig", "edge", "--socket", s.Socket)
	require.EqualError(t, err, "several clusters are called edge")
	assert.Equal(t, []string{"default/edge", "metal3/edge", "far"}, complete(t, "kubeconfig", "--socket", s.Socket, ""))
	_, err = runCommand(t, "kubeconfig", "edge", "--socket", s.Socket+"-not")
	require.ErrorContains(t, err, "ask the daemon at")
}
