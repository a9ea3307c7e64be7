package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/clusters/bpa/sizing"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// TestOneDeadServerKeepsNoClusterAway: a proposal is made of the verified nodes once the rest waits for people.
func TestOneDeadServerKeepsNoClusterAway(t *testing.T) {
	now := time.Unix(1e9, 0)
	p := sizing.Proposal{Provisionings: make([]v1alpha1.Provisioning, 1), Waiting: []string{"metal3/node-10 is inspecting"}}
	whole := sizing.Proposal{Provisionings: p.Provisionings}
	dead := []string{"node-10"}
	for name, c := range map[string]struct {
		p     sizing.Proposal
		l     launchState
		since time.Duration // ago
		due   bool
		says  string
	}{
		"all verified":                         {whole, launchState{Nodes: 10, Verified: 10}, 0, true, ""},
		"no Launch":                            {whole, launchState{}, 0, true, ""},
		"one is installed":                     {p, launchState{Nodes: 10, Verified: 9}, 0, false, "waits until all nodes are verified, 9 of 10"},
		"one has no host yet":                  {whole, launchState{Nodes: 10, Verified: 9}, 0, false, "9 of 10"},
		"one is dead, one is installed":        {p, launchState{Nodes: 10, Verified: 8, Held: dead}, time.Hour, false, "8 of 10"},
		"one is dead":                          {p, launchState{Nodes: 10, Verified: 9, Held: dead}, time.Minute, false, "is applied at 2001-09-09T02:15:40Z without"},
		"one is dead and has no host":          {whole, launchState{Nodes: 10, Verified: 9, Held: dead}, settledFor, true, "without 1 of 10 nodes"},
		"one has been dead for a while":        {p, launchState{Nodes: 10, Verified: 9, Held: dead}, settledFor, true, "without 1 of 10 nodes"},
		"the time is up":                       {p, launchState{Nodes: 10, Verified: 8, Held: dead, Over: true}, time.Second, true, "without 2 of 10 nodes"},
		"half of them dead":                    {p, launchState{Nodes: 2, Verified: 1, Held: dead}, 2 * settledFor, false, "more than half would do; held: node-10"},
		"no node is large enough, none waited": {sizing.Proposal{}, launchState{Nodes: 1, Verified: 1}, 0, false, "nothing to apply"},
	} {
		since := now.Add(-c.since)
		due, says := proposalDue(c.p, c.l, since, now)
		assert.Equal(t, c.due, due, name)
		assert.Contains(t, says, c.says, name)
	}
	settled := launchState{Nodes: 1, Held: dead}
	assert.Zero(t, settledSince(launchState{Nodes: 1}, now.Format(time.RFC3339), now))
	assert.Equal(t, now, settledSince(settled, "", now))
	assert.Equal(t, now, settledSince(settled, now.Add(time.Hour).Format(time.RFC3339), now), "the clock went back")
	assert.True(t, now.Add(-time.Hour).Equal(settledSince(settled, now.Add(-time.Hour).Format(time.RFC3339), now)))
}

func TestTheLaunchIsRead(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(launchKind, &unstructured.UnstructuredList{})
	one := launchKind
	one.Kind = "Launch"
	scheme.AddKnownTypeWithName(one, &unstructured.Unstructured{})
	launch := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"nodes": []any{"a", "b", "c"}, "timeout": "1h0m0s"},
		"status": map[string]any{"elapsedSeconds": int64(3601), "nodes": []any{
			map[string]any{"name": "a", "proven": true}, map[string]any{"name": "b", "needsPerson": true}, map[string]any{"name": "c"},
		}},
	}}
	launch.SetGroupVersionKind(one)
	launch.SetName("rack-7")
	l, err := readLaunch(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(launch).Build())
	require.NoError(t, err)
	assert.Equal(t, launchState{Nodes: 3, Verified: 1, Held: []string{"b"}, Over: true}, l)
	l, err = readLaunch(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build())
	require.NoError(t, err)
	assert.Zero(t, l)
}
