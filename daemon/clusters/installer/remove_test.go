package installer

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/remote"
)

func TestLeftovers(t *testing.T) {
	is := marker{Cluster: "far", Label: "w-1"}
	for _, c := range []struct {
		what   string
		on     *marker
		leftBy string
		want   bool
	}{
		{"nothing on it", nil, "edge", false},
		{"the cluster that let go of it", &marker{Cluster: "edge", Label: "w-2"}, "edge", true},
		{"another cluster than the one that is said", &marker{Cluster: "third", Label: "w-2"}, "edge", false},
		{"this cluster already", &marker{Cluster: "far", Label: "w-1"}, "edge", false},
		{"this cluster, as another node", &marker{Cluster: "far", Label: "w-9"}, "far", true},
		{"this cluster, as this node: it may have joined", &marker{Cluster: "far", Label: "w-1"}, "far", false},
	} {
		assert.Equal(t, c.want, hasLeftovers(facts{Marker: c.on}, c.leftBy, is), c.what)
	}
}

// TestRemainsAreCleared: only for a node that the operator names, and only what that cluster left.
func TestRemainsAreCleared(t *testing.T) {
	on := ""
	s := &fakeShell{}
	s.answer = func(line string) (string, error) {
		if strings.Contains(line, "kubeadm reset") {
			on = ""
		}
		if on == "" {
			return saidByANode, nil
		}
		return saidByANode + "marker=" + base64.StdEncoding.EncodeToString([]byte(on)) + "\n", nil
	}
	n := &node{Node: made("w-1", "172.22.0.14", false, true), cluster: &cluster{Settings: edge, dir: t.TempDir()}, shell: s}
	assert.Empty(t, n.leftoverStages(), "nobody said that anything may be cleared")
	n.leftBy = "old"
	require.Len(t, n.leftoverStages(), 1)
	on = `{"cluster":"third","id":"X","label":"w-2"}`
	require.NoError(t, n.leftoverDone(t.Context()))
	require.NoError(t, n.leftoverDo(t.Context(), func(string) {}))
	assert.Empty(t, s.running("kubeadm reset"), "another cluster's node was cleared")
	on = `{"cluster":"old","id":"X","label":"w-2"}`
	assert.EqualError(t, n.leftoverDone(t.Context()), "it still is w-2 of cluster old, which has let go of it")
	require.NoError(t, n.leftoverDo(t.Context(), func(string) {}))
	assert.Len(t, s.running("kubeadm reset"), 1)
	require.NoError(t, n.leftoverDone(t.Context()))
}

func TestWhatWasNotClearedIsKept(t *testing.T) {
	s := &fakeShell{answer: func(string) (string, error) {
		return "", &remote.ReachError{Node: "w-1", Err: errors.New("no route to host")}
	}}
	n := &node{Node: made("w-1", "172.22.0.14", false, true), cluster: &cluster{Settings: edge, dir: t.TempDir()}, shell: s, log: slog.New(slog.DiscardHandler)}
	require.NoError(t, n.clearedDone(t.Context()), "a dead node is taken out all the same")
	kept := func() string {
		require.NoError(t, n.saveRemoved())
		text, err := os.ReadFile(filepath.Join(n.dir, "artifacts", "removed.json"))
		require.NoError(t, err)
		return string(text)
	}
	assert.JSONEq(t, `{"uncleared":{"w-1":"it did not answer: no route to host"}}`, kept())
	s.answer = nil
	require.NoError(t, n.clearedDone(t.Context()), "it woke up, and has nothing left")
	assert.JSONEq(t, `{"uncleared":{}}`, kept())
}
