package installer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/remote"
)

// TestAnyControlPlaneCanMakeAKubeconfig: one that joined is given the configuration that kubeadm asks for; the
// one that made the cluster keeps its own.
func TestAnyControlPlaneCanMakeAKubeconfig(t *testing.T) {
	there := true
	s := &fakeShell{}
	s.answer = func(line string) (string, error) {
		switch {
		case strings.Contains(line, "test -s \"$1\"") && !there:
			return "", &remote.ExitError{Node: "m-2", Code: 1}
		case strings.Contains(line, factsScript):
			return saidByANode, nil
		}
		return "", nil
	}
	n := &node{Node: made("m-2", "172.22.0.12", true, true), cluster: &cluster{Settings: edge, dir: t.TempDir()}, shell: s}
	n.cluster.nodes = []*node{n}
	require.NoError(t, n.ensureConfig(t.Context()))
	assert.Len(t, s.ran, 1, "what is there was touched")
	there = false
	require.NoError(t, n.ensureConfig(t.Context()))
	assert.Greater(t, len(s.ran), 3)
	assert.NotEmpty(t, s.running(initPath))
}
