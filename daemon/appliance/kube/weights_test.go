package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWantedWeights(t *testing.T) {
	assert.Equal(t, podsFirst, wantedWeights(0))
	assert.Equal(t, podsFirst, wantedWeights(patienceWithKubelet-time.Second))
	assert.Equal(t, kubeletFirst, wantedWeights(patienceWithKubelet))
}

// The weights of the units' files are those that are set again when the control plane runs.
func TestUnitsHaveTheWeightsOfPodsFirst(t *testing.T) {
	for file, weight := range map[string]int{
		"system.slice.d/50-firstlight.conf": podsFirst.system,
		"kubelet.service":                   podsFirst.kubelet,
	} {
		text, err := os.ReadFile(filepath.Join("../../../overlays/appliance/usr/lib/systemd/system", file))
		require.NoError(t, err)
		assert.Contains(t, string(text), fmt.Sprintf("\nCPUWeight=%d\n", weight), file)
	}
}

func TestControlPlaneRuns(t *testing.T) {
	for name, c := range map[string]struct {
		processes []string
		runs      bool
	}{
		"both":          {[]string{"systemd", "etcd", "kube-apiserver", "kubelet"}, true},
		"no API server": {[]string{"systemd", "etcd", "kubelet"}, false},
		"no etcd":       {[]string{"kube-apiserver", "etcdctl"}, false},
		"none":          {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := controlPlaneRuns(writeProcesses(t, t.TempDir(), c.processes...))
			require.NoError(t, err)
			assert.Equal(t, c.runs, runs)
		})
	}

	_, err := controlPlaneRuns(filepath.Join(t.TempDir(), "proc"))
	require.ErrorContains(t, err, "proc")
}

func TestWeightsAreSetAtTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	root := t.TempDir()
	writeProcesses(t, filepath.Join(root, "proc"), "etcd", "kube-apiserver")

	var calls []string
	c := Cluster{Root: root, Run: func(_ context.Context, _ io.Reader, name string, args ...string) (string, error) {
		calls = append(calls, name+" "+strings.Join(args, " "))
		if len(calls) == 2 {
			cancel()
		}
		return "", nil
	}}
	require.NoError(t, c.KeepRestartable(ctx))
	assert.Equal(t, []string{
		"systemctl set-property --runtime system.slice CPUWeight=30",
		"systemctl set-property --runtime kubelet.service CPUWeight=50",
	}, calls)
}

// TestAFailureDoesNotPutTheKubeletBehindAgain: the control plane is missing since it was seen, however often systemd fails.
func TestAFailureDoesNotPutTheKubeletBehindAgain(t *testing.T) {
	root := t.TempDir()
	writeProcesses(t, filepath.Join(root, "proc"), "kubelet")
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		failure, ctx := errors.New("systemd does not answer"), t.Context()
		c := Cluster{Root: root, Run: func(_ context.Context, _ io.Reader, _ string, args ...string) (string, error) {
			calls = append(calls, args[len(args)-1])
			if args[len(args)-1] == "CPUWeight=300" {
				return "", failure
			}
			return "", nil
		}}
		require.ErrorIs(t, c.KeepRestartable(ctx), failure, "after a minute")
		require.ErrorIs(t, c.KeepRestartable(ctx), failure)
		assert.Equal(t, []string{"CPUWeight=30", "CPUWeight=50", "CPUWeight=300", "CPUWeight=300"}, calls)
	})
}

// writeProcesses makes a folder as /proc has one for each process, and returns the one they are in.
func writeProcesses(t *testing.T, proc string, names ...string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(proc, 0o755))
	for i, name := range names {
		dir := filepath.Join(proc, fmt.Sprint(i+1))
		require.NoError(t, os.Mkdir(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(name+"\n"), 0o644))
	}
	return proc
}
