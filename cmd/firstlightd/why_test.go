package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

func TestWhyKnowsClusters(t *testing.T) {
	nodes := []status.Node{{Name: "node-1"}}
	clusters := []status.Cluster{{Name: "edge", State: "installing", Text: "Job kud-edge: installing, attempt 1", Members: []status.ClusterNode{
		{Name: "master-1", Host: "metal3/node-1", Address: "172.22.0.101", State: "claimed"},
		{Name: "worker-1", State: "waiting", Reason: "no host is left with 16 CPUs"},
	}}, {Name: "far", State: "ready"}}

	n, c := filterByName(nodes, clusters, "EDGE")
	assert.Empty(t, n)
	var out strings.Builder
	writeClusters(&out, c)
	assert.Equal(t, `cluster edge is installing: Job kud-edge: installing, attempt 1
  master-1             claimed, host node-1, 172.22.0.101
  worker-1             waiting: no host is left with 16 CPUs
`, out.String())

	out.Reset()
	clusters[1].Warnings = []string{"spec.hostfile does nothing"}
	clusters[1].Leftovers = []status.Leftover{{Host: "metal3/node-1", Text: "it still holds what cluster far left on it"}}
	writeClusters(&out, clusters[1:])
	assert.Contains(t, out.String(), "  spec.hostfile does nothing\n")
	out.Reset()
	writeLeftovers(&out, clusters, "Node-1")
	writeLeftovers(&out, clusters, "node")
	assert.Equal(t, "  it still holds what cluster far left on it\n", out.String())

	n, c = filterByName(nodes, clusters, "node-1")
	assert.Len(t, n, 1)
	assert.Empty(t, c)
	n, c = filterByName(nodes, clusters, "nobody")
	assert.Empty(t, len(n)+len(c))
}

func TestWhySaysWhatTheApplianceWaitsFor(t *testing.T) {
	stages := []status.Stage{
		{Name: "bpa-ready", State: status.StateReady},
		{
			Name: "cluster-api-ready", Title: "Cluster API starts", State: status.StateWorking,
			Waiting: "waiting for the pod of capi-controller-manager to be ready",
		},
		{Name: "site-clusters-applied", State: status.StateFailed, Error: "from a version without titles"},
		{Name: "late", State: status.StateWaiting},
	}
	var out strings.Builder
	writeStages(&out, unfinishedStages(stages))
	want := "stage cluster-api-ready (Cluster API starts) is working: " +
		"waiting for the pod of capi-controller-manager to be ready\n" +
		"stage site-clusters-applied is failed: from a version without titles\n"
	assert.Equal(t, want, out.String())
}

// runCommand is what a command line prints.
func runCommand(t *testing.T, words ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	root := newRootCommand()
	root.SetArgs(words)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestWhyProblemsAreWhatNeedsAPerson(t *testing.T) {
	d := status.Document{
		Version:  "0.1.0",
		Nodes:    []status.Node{{Name: "node-1", Why: "is proven"}, {Name: "node-2", Why: "is not on", Next: "press its button"}},
		Clusters: []status.Cluster{{Name: "edge", State: "ready"}, {Name: "far", State: "refused", Error: "no host"}},
	}
	out, err := runCommand(t, "why", "--problems", "--socket", daemonSays(t, d))
	require.NoError(t, err)
	assert.Equal(t, "node-2 is not on\n  -> press its button\ncluster far is refused: no host\n", out)

	d.Nodes, d.Clusters = d.Nodes[:1], d.Clusters[:1]
	out, err = runCommand(t, "why", "--problems", "--socket", daemonSays(t, d))
	require.NoError(t, err)
	assert.Equal(t, "No node and no cluster needs a person.\n", out)
}

func TestWhyNamesUpdatesThatAreNotReady(t *testing.T) {
	d := status.Document{Clusters: []status.Cluster{{Name: "edge", State: "ready", Updates: []status.NodeUpdate{
		{Name: "default/kernel", State: "ready", Text: "all 3 nodes are up to date"},
		{Name: "default/tools", State: "waiting", Text: "paused by spec.paused"},
		{Name: "default/november", State: "failed", Text: "node w: does not answer"},
	}}}}
	socket := daemonSays(t, d)
	const stuck = "node update default/november of edge is failed: node w: does not answer\n"
	out, err := runCommand(t, "why", "edge", "--socket", socket)
	require.NoError(t, err)
	assert.Equal(t, "cluster edge is ready\nnode update default/tools of edge is waiting: paused by spec.paused\n"+stuck, out)
	out, err = runCommand(t, "why", "--problems", "--socket", socket)
	require.NoError(t, err)
	assert.Equal(t, stuck, out)
}

func TestWhyNamesComponentsThatAreNotReady(t *testing.T) {
	var b strings.Builder
	writeComponents(&b, []status.Component{
		{Name: "default/edge-nfd", On: []status.ComponentOn{{Cluster: "edge", State: "ready"}}},
		{Name: "default/both", On: []status.ComponentOn{
			{Cluster: "edge", State: "waiting", Text: "waits for nfd"},
			{Cluster: "north", State: "failed", Text: "elsewhere"},
		}},
	}, []status.Cluster{{Name: "edge"}}, true, false)
	assert.Equal(t, "component default/both on edge is waiting: waits for nfd\n", b.String())
}

// TestAComponentThatFailedIsAProblem, also one on the appliance; one that waits is none.
func TestAComponentThatFailedIsAProblem(t *testing.T) {
	d := status.Document{
		Clusters: []status.Cluster{{Name: "edge", State: "ready"}},
		Components: []status.Component{
			{Name: "default/nfd", State: "waiting", On: []status.ComponentOn{{Cluster: "edge", State: "waiting", Text: "waits"}}},
			{Name: "alpha/shop", State: "degraded", On: []status.ComponentOn{{Cluster: "(appliance)", State: "degraded", Text: "1 of 3 objects"}}},
		},
	}
	out, err := runCommand(t, "why", "--problems", "--socket", daemonSays(t, d))
	require.NoError(t, err)
	assert.Equal(t, "component alpha/shop on (appliance) is degraded: 1 of 3 objects\n", out)
	out, err = runCommand(t, "why", "edge", "--socket", daemonSays(t, d))
	require.NoError(t, err)
	assert.Equal(t, "cluster edge is ready\ncomponent default/nfd on edge is waiting: waits\n", out)
}
