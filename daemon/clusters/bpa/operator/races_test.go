package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
)

// testHostTakenMeanwhile: a host that somebody else claims after it was looked at stays theirs.
func testHostTakenMeanwhile(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("edge", "masters:\n- m: {cpu: 1}"))
	read := r.bmh(1)
	taken := read.DeepCopy()
	taken.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "metal3", Name: "quicker"}
	require.NoError(t, r.api.Update(t.Context(), taken))

	w := &clusterState{cr: r.get("edge"), cluster: "edge", bmh: map[string]*host{"metal3/h1": read}}
	err := r.claim(t.Context(), w, kud.Node{Label: "m", Host: "metal3/h1"})
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	assert.Equal(t, "quicker", r.bmh(1).Spec.ConsumerRef.Name)
}

// testPodsOfAJobAreWaitedFor: a Job is gone when its pods are, since a pod that ends slowly still changes nodes.
func testPodsOfAJobAreWaitedFor(t *testing.T, r *fixture) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  "bpa",
			Name:       "slow",
			Labels:     map[string]string{batchv1.JobNameLabel: kud.JobName("edge")},
			Finalizers: []string{"firstlight.dev/not-ended-yet"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "installer", Image: "installer"}}},
	}
	require.NoError(t, r.api.Create(t.Context(), pod))
	w := &clusterState{cluster: "edge"}
	for range 2 {
		gone, err := r.removeJob(t.Context(), w)
		require.NoError(t, err)
		assert.False(t, gone, "its pod is there")
	}

	pods, err := r.jobPods(t.Context(), w)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.NotNil(t, pods[0].DeletionTimestamp)
	pods[0].Finalizers = nil
	require.NoError(t, r.api.Update(t.Context(), &pods[0]))
	gone, err := r.removeJob(t.Context(), w)
	require.NoError(t, err)
	assert.True(t, gone)
}
