package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// testRotation follows the rotation of a cluster's authorities: two runs, a day apart, of which the first fails once.
func testRotation(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	p := r.installed("edge", edge)
	before := p.DeepCopy()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationRotation, "november")
	require.NoError(t, r.api.Patch(t.Context(), p, client.MergeFrom(before)))
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseChanging, p.Status.Phase, p.Status.Message)
	assert.Contains(t, p.Status.Message, "Job kud-edge: replacing its authorities, attempt 1")
	assert.Equal(t, contract.Rotate, r.run("edge").Action)
	assert.Contains(t, r.job("edge").Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: contract.EnvRotation, Value: "november"})

	stand := func(text string) {
		require.NoError(t, r.clusterDir("edge").write(contract.FileRotation, []byte(text), 0o644))
	}
	stand(`{"token":"november","stage":"sign"}`)
	r.end("edge", 1, "node-2 does not answer")
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseFailed, p.Status.Phase)
	assert.Contains(t, p.Status.Message, "replacing its authorities, attempt 1 failed: exit code 1: node-2 does not answer")

	r.now = r.now.Add(time.Minute)
	r.settle("edge")
	assert.EqualValues(t, 2, r.run("edge").Attempt)
	signed := r.now.UTC()
	stand(`{"token":"november","stage":"signed","signed":"` + signed.Format(time.RFC3339) + `"}`)
	r.left = "the next kubeconfig of edge"
	r.end("edge", 0, "")
	p = r.settle("edge")
	require.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Contains(t, p.Status.Message, "the former ones are trusted until "+signed.Add(contract.RotationSettle).Format(time.DateTime))
	var secret corev1.Secret
	require.NoError(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: p.Status.Kubeconfig}, &secret))
	assert.Equal(t, "the next kubeconfig of edge", string(secret.Data["value"]))

	r.now = signed.Add(contract.RotationSettle - time.Minute)
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase, "a pod may have a token of before")
	r.now = signed.Add(contract.RotationSettle)
	assert.Equal(t, v1alpha1.PhaseChanging, r.settle("edge").Status.Phase)
	stand(`{"token":"november","stage":"done"}`)
	r.end("edge", 0, "")
	p = r.settle("edge")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase)
	assert.NotContains(t, p.Status.Message, "trusted")
	r.now = r.now.Add(48 * time.Hour)
	assert.Equal(t, v1alpha1.PhaseReady, r.settle("edge").Status.Phase, "it was begun again")
}
