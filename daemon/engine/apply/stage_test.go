package apply

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

func TestStageAppliesItsObjectsAndAsksWhatTheyAskFor(t *testing.T) {
	ctx, c := t.Context(), fake.NewClientBuilder().Build()
	value, ready, prepared := "1", errors.New("not yet"), 0
	var reported []string
	s := Stage{
		Name: "b-ready", Owner: "test", Doing: "applying b",
		Objects: func() ([]client.Object, error) {
			return []client.Object{configMap("a", "1"), configMap("b", value)}, nil
		},
		API:     func() (client.Client, error) { return c, nil },
		Prepare: func() error { prepared++; return nil },
		Ready:   func(context.Context, client.Client) error { return ready },
	}.Bringup()
	do := func() error { return s.Do(ctx, func(doing string) { reported = append(reported, doing) }) }

	assert.EqualError(t, s.Done(ctx), "ConfigMap metal3/a does not exist")
	require.NoError(t, do())
	assert.EqualError(t, s.Done(ctx), "not yet")
	ready = nil
	require.NoError(t, s.Done(ctx))

	value = "2"
	assert.EqualError(t, s.Done(ctx), "ConfigMap metal3/b is not as wanted")
	require.NoError(t, do())
	require.NoError(t, s.Done(ctx))
	assert.Equal(t, 2, prepared)
	assert.Equal(t, []string{"applying b", "applying b"}, reported)
}

func TestStageOfStaleObjectsLeavesTheOthersAlone(t *testing.T) {
	ctx, c := t.Context(), fake.NewClientBuilder().Build()
	value := "1"
	s := Stage{
		Owner: "test", StaleOnly: true,
		Objects: func() ([]client.Object, error) {
			return []client.Object{configMap("a", "1"), configMap("b", value)}, nil
		},
		API: func() (client.Client, error) { return c, nil },
	}.Bringup()
	require.NoError(t, s.Do(ctx, func(string) {}))
	var a corev1.ConfigMap
	key := client.ObjectKey{Namespace: "metal3", Name: "a"}
	require.NoError(t, c.Get(ctx, key, &a))
	a.Data["key"] = "by hand"
	require.NoError(t, c.Update(ctx, &a))

	value = "2"
	require.NoError(t, s.Do(ctx, func(string) {}))
	require.NoError(t, s.Done(ctx))
	require.NoError(t, c.Get(ctx, key, &a))
	assert.Equal(t, "by hand", a.Data["key"])
	require.NoError(t, s.Do(ctx, func(string) { t.Error("there is nothing to do") }))
}

func TestCheckRolledOut(t *testing.T) {
	key := client.ObjectKey{Namespace: "metal3", Name: "operator"}
	for name, s := range map[string]struct {
		status appsv1.DeploymentStatus
		done   bool
	}{
		"not seen":         {appsv1.DeploymentStatus{ObservedGeneration: 1, UpdatedReplicas: 1, AvailableReplicas: 1}, false},
		"the old pod runs": {appsv1.DeploymentStatus{ObservedGeneration: 2, AvailableReplicas: 1}, false},
		"it starts":        {appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1}, false},
		"it is ready":      {appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 1, AvailableReplicas: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 2}, Status: s.status}
			err := CheckRolledOut(t.Context(), fake.NewClientBuilder().WithObjects(d).Build(), key, "the operator's pod")
			if s.done {
				require.NoError(t, err)
				return
			}
			assert.EqualError(t, err, "the operator's pod to be ready")
			assert.True(t, bringup.IsWait(err))
		})
	}
	assert.ErrorContains(t, CheckRolledOut(t.Context(), fake.NewClientBuilder().Build(), key, "it"), "read deployment operator")
}
