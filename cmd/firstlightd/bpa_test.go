package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/commandline"
)

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	_, err := readKubeconfig(dir, "edge")
	assert.ErrorContains(t, err, "cluster edge has no kubeconfig yet (see kubectl get bpa -A); installed are: none")
	for _, name := range []string{"edge", "rim"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "artifacts"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "artifacts", "admin.conf"), []byte("of "+name), 0o600))
	}
	text, err := readKubeconfig(dir, "edge")
	require.NoError(t, err)
	assert.Equal(t, "of edge", string(text))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge", "artifacts", "admin.conf"),
		[]byte("{apiVersion: v1, kind: Config, users: [{name: u, user: {tokenFile: /etc/shadow}}]}"), 0o600))
	_, err = readKubeconfig(dir, "edge")
	assert.ErrorContains(t, err, "is not handed out: it names a file")
	_, err = readKubeconfig(dir, "egde")
	assert.ErrorContains(t, err, "installed are: edge, rim")
	for _, name := range []string{"../edge", "/edge", "a/b", ""} {
		_, err = readKubeconfig(dir, name)
		assert.ErrorAs(t, err, new(commandline.UsageError), name)
	}
}

func TestBPACommandLine(t *testing.T) {
	assert.Equal(t, 2, run(t.Context(), []string{"bpa", "--proposal", "perhaps"}))
	assert.Equal(t, 2, run(t.Context(), []string{"kubeconfig"}))
	assert.Equal(t, 1, run(t.Context(), []string{"bpa", "--kubeconfig", filepath.Join(t.TempDir(), "none")}))
}

func TestTheOperatorStartsAnewWhileTheAPIIsAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs := 0
	runForever(ctx, slog.New(slog.DiscardHandler), time.Millisecond, func(context.Context) error {
		if runs++; runs == 3 {
			cancel()
		}
		return errors.New("connection refused")
	})
	assert.Equal(t, 3, runs, "it goes on until it is told to end")
}
