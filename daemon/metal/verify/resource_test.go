package verify

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestLaunchInTheAPI declares a Launch in a real API server and tells it what becomes of it:
// kubectl wait sees it, and a site that is called otherwise leaves nothing behind.
func TestLaunchInTheAPI(t *testing.T) {
	api := sandbox.APIServer(t)
	kubernetes, err := sandbox.BuildProgram(t.Context(), "kubernetes")
	require.NoError(t, err)
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), kubernetes, append([]string{"kubectl", "--kubeconfig", api.Kubeconfig}, args...)...).CombinedOutput()
		return string(out), err
	}
	config, err := clientcmd.BuildConfigFromFlags("", api.Kubeconfig)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)

	load := func(text string) *site.Site {
		s, problems := site.Load("site.yaml", []byte(text))
		require.Empty(t, problems)
		return s.WithDefaults()
	}
	now := load("name: rack-7\nnodes: [{name: node-1, macs: [\"52:54:00:00:00:01\"]}, {name: node-2, macs: [\"52:54:00:00:00:02\"]}]\n")
	stage := Stage(func() *site.Site { return now }, func() (client.Client, error) { return c, nil })
	hold := func() {
		require.Eventually(t, func() bool {
			if err := stage.Done(t.Context()); err == nil {
				return true
			}
			if err := stage.Do(t.Context(), func(string) {}); err != nil {
				t.Log(err)
			}
			return false
		}, 2*time.Minute, 200*time.Millisecond)
	}
	require.Error(t, stage.Done(t.Context()))
	hold()
	store := Store{API: func() (client.Client, error) { return c, nil }}
	spec, out, err := store.Load(t.Context(), "rack-7")
	require.NoError(t, err)
	assert.Equal(t, Spec{Nodes: []string{"node-1", "node-2"}, Timeout: "1h"}, spec)
	assert.Zero(t, out.ElapsedSeconds)

	failed := Outcome{State: status.LaunchFailed, Message: "not launched, 1 of 2 nodes proven: node-2 is not switched on", Verified: "1/2", ElapsedSeconds: 60, Nodes: []NodeOutcome{
		{Name: "node-1", Verified: true, Rule: "proven", Installed: "x@y", Checks: []status.Check{{Name: "login", State: status.CheckOK, Text: "at 172.22.0.150"}}},
		{Name: "node-2", Rule: "bmc-silent", Message: "is not switched on"}}}
	require.NoError(t, store.Save(t.Context(), "rack-7", failed))
	text, err := kubectl("wait", "launch/rack-7", "--for=condition=Failed", "--timeout=5s")
	require.NoError(t, err, text)
	_, err = kubectl("wait", "launch/rack-7", "--for=condition=Ready", "--timeout=1s")
	require.Error(t, err, "it is said to be ready")
	_, out, err = store.Load(t.Context(), "rack-7")
	require.NoError(t, err)
	assert.Equal(t, int64(60), out.ElapsedSeconds)
	assert.Equal(t, failed.Nodes, out.Nodes)

	launched := failed
	launched.State, launched.Verified, launched.Message = status.LaunchSucceeded, "2/2", "launched: 2 of 2 nodes proven"
	require.NoError(t, store.Save(t.Context(), "rack-7", launched))
	text, err = kubectl("wait", "launch/rack-7", "--for=condition=Ready", "--timeout=5s")
	require.NoError(t, err, text)
	text, err = kubectl("get", "launches")
	require.NoError(t, err)
	t.Log("\n" + text)
	assert.Contains(t, text, "2/2")

	now = load("name: rack-7\nnodes: [{name: node-1, macs: [\"52:54:00:00:00:01\"]}]\n")
	hold()
	_, out, err = store.Load(t.Context(), "rack-7")
	require.NoError(t, err)
	assert.Zero(t, out.ElapsedSeconds, "another promise, and the old time")
	assert.True(t, out.Nodes[0].Verified, "what was proven is forgotten")

	now = load("name: rack-8\n")
	hold()
	text, err = kubectl("get", "launches", "-o", "name")
	require.NoError(t, err)
	assert.Equal(t, "launch.firstlight.dev/rack-8\n", text)
}
