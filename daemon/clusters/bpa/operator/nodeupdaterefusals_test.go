package operator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// testNodeUpdateDeleted: a node that is out of service for a NodeUpdate is in service again before that is gone, and it
// stays as long as the cluster's API is silent. A mark of one that was removed by force is another's to continue.
func testNodeUpdateDeleted(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	r.apply(updateText("november", ""))
	f.look("november")
	require.True(t, f.node("m").Spec.Unschedulable)
	o := f.look("november")
	require.NoError(t, r.api.Delete(t.Context(), o))
	f.silent = true
	o = f.look("november")
	assert.Equal(t, v1alpha1.PhaseDeleting, o.Status.Phase)
	assert.Contains(t, o.Status.Message, "the API of cluster edge does not answer: connection refused")
	f.silent = false
	assert.Empty(t, f.look("november").Name, "it is still there")
	assert.False(t, f.node("m").Spec.Unschedulable)
	assert.NotContains(t, f.node("m").Annotations, v1alpha1.AnnotationUpdating)

	r.apply(updateText("first", ""))
	f.look("first")
	r.apply(updateText("second", ""))
	o = f.look("second")
	assert.Equal(t, v1alpha1.PhaseWaiting, o.Status.Phase)
	assert.Equal(t, nodeupdate.ReasonOtherUpdate, o.Status.Conditions[0].Reason)
	o = f.look("first")
	before := o.DeepCopy()
	o.Finalizers = nil
	require.NoError(t, r.api.Patch(t.Context(), o, client.MergeFrom(before)))
	require.NoError(t, r.api.Delete(t.Context(), o))
	f.until("second", v1alpha1.PhaseReady)
	assert.Equal(t, strings.Replace(workDone, "closed true", "closed false", 1), strings.Replace(f.work(), "m: jq 1.7, 0 installed", "m: jq 1.7, 1 installed", 1))
}

// testNodeUpdatePaused: a node that is out of service is completed, no other one is begun with, and the rest follows when
// it is resumed.
func testNodeUpdatePaused(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	r.apply(updateText("november", ""))
	f.look("november")
	require.True(t, f.node("m").Spec.Unschedulable)
	r.apply(updateText("november", "paused: true"))
	o := f.until("november", v1alpha1.PhaseWaiting)
	assert.Equal(t, "paused by spec.paused; 1 of 3 nodes are up to date", o.Status.Message)
	f.startKubelets()
	assert.Equal(t, nodeupdate.ReasonPaused, f.look("november").Status.Conditions[0].Reason)
	for name, want := range map[string]string{"m": "1.7", "w": "1.6", "x": "1.6"} {
		assert.Equal(t, want, strings.TrimSpace(f.machines[name].Get("has/jq")), name)
		assert.False(t, f.node(name).Spec.Unschedulable, name)
	}

	r.apply(updateText("november", "paused: false"))
	f.until("november", v1alpha1.PhaseReady)
	assert.Equal(t, strings.Replace(workDone, "closed true", "closed false", 1), f.work())
}

// testNodeUpdateRefusals: what it waits for, or what is wrong with it.
func testNodeUpdateRefusals(t *testing.T, r *fixture) {
	f := newUpdateFixture(t, r)
	r.now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) // a Saturday
	for spec, want := range map[string]string{
		"packages: ['htop; reboot']":                      `Refused InvalidUpdate packages[0]: "htop; reboot" is not the name of a package`,
		"packages: [{jq: {version: '1.6'}}, htop]":        "Ready UpToDate all 3 nodes are up to date",
		"packages: [{jq: {version: '9'}}]":                "Failed PackagesUnknown node m: version 9 of package jq is unavailable; there are: 1.6, 1.7; correct the NodeUpdate, or the node's repositories; no other node is begun with; 0 of 3 nodes are up to date",
		"paused: true":                                    "Waiting Paused paused by spec.paused; 0 of 3 nodes are up to date",
		"window: {days: [Sun], start: '01:00', hours: 3}": "Waiting OutsideWindow its window opens at Sun 2026-11-29 01:00 UTC; 0 of 3 nodes are up to date",
		"window: {days: [Sat], start: '11:30', hours: 1}": "Updating Updating node m: taking it out of service; 0 of 3 nodes are up to date",
	} {
		f.machines["x"].Put("new-kernel", "")
		name := fmt.Sprintf("u%d", len(spec))
		r.apply(updateText(name, spec))
		o := f.look(name)
		assert.Equal(t, want, strings.Join([]string{o.Status.Phase, o.Status.Conditions[0].Reason, o.Status.Message}, " "), spec)
		require.NoError(t, r.api.Delete(t.Context(), o))
		f.look(name)
	}
	if r.real != nil {
		for _, spec := range []string{"reboot: Sometimes", "maxUnavailable: 0", "window: {start: '25:00', hours: 1}", "window: {start: '22:00', hours: 1, days: [Saturday]}"} {
			assert.Error(t, r.tryApply(updateText("wrong", spec)), spec)
		}
	}

	f.silent = true
	r.apply(updateText("november", ""))
	o := f.look("november")
	assert.Equal(t, "the API of cluster edge does not answer: connection refused; nodes stay as they are until it does", o.Status.Message)
	f.silent = false
	r.apply(strings.Replace(updateText("elsewhere", ""), "cluster: edge", "cluster: nowhere", 1))
	assert.Contains(t, f.look("elsewhere").Status.Message, "cluster nowhere is not installed yet: no Provisioning in namespace default has installed it")
}
