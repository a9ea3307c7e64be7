package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// complete is what a shell offers behind these words.
func complete(t *testing.T, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, words...))
	root.SetOut(&out)
	root.SetErr(new(bytes.Buffer))
	require.NoError(t, root.ExecuteContext(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // without the directive
}

func TestCompletion(t *testing.T) {
	socket := daemonSays(t, status.Document{
		Version:  "0.1.0",
		Nodes:    []status.Node{{Name: "node-1"}, {Name: "node-2"}},
		Clusters: []status.Cluster{{Name: "edge"}},
	})
	assert.Equal(t, []string{"node-1", "node-2", "edge"}, complete(t, "why", "--socket", socket, ""))
	assert.Equal(t, []string{"node-1", "node-2"}, complete(t, "adopt", "--socket", socket, "no"))
	assert.Equal(t, []string{"node-1", "node-2"}, complete(t, "bmc", "trust", "--socket", socket, ""))
	assert.Empty(t, complete(t, "why", "--socket", socket+"-not", ""), "nobody answers")
	assert.Equal(t, []string{"text", "json"}, complete(t, "why", "-o", ""))
	assert.Equal(t, []string{"launch", "appliance"}, complete(t, "status", "--wait="))

	dir := t.TempDir()
	for _, cluster := range []string{"edge", "far"} {
		file := filepath.Join(dir, cluster, "artifacts", "admin.conf")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	assert.Equal(t, []string{"edge", "far"}, complete(t, "kubeconfig", "--dir", dir, ""))
}
