package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// SelfTest runs a Component's test for a revision. It is nil when the test has passed; the Job is removed then. A Job
// that failed stays for its logs until the next attempt.
func (t *Target) SelfTest(
	ctx context.Context, id ID, namespace, revision string, test v1alpha1.SelfTest,
) (*plan.Verdict, error) {
	want := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        testName(id),
		Annotations: map[string]string{v1alpha1.GroupVersion.Group + "/revision": revision},
		Labels:      labelsOf(id),
	}}
	if err := json.Unmarshal(test.Job.Raw, &want.Spec); err != nil {
		return nil, newFault(
			v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "spec.selfTest.job is no spec of a Job: %v", err,
		)
	}

	var have batchv1.Job
	err := t.client.Get(ctx, client.ObjectKeyFromObject(want), &have)
	switch {
	case apierrors.IsNotFound(err):
		if err := t.client.Create(ctx, want, client.FieldOwner(FieldManager)); err != nil {
			return nil, explainJob(want, err)
		}
		return testRuns("begins"), nil
	case err != nil:
		return nil, fmt.Errorf("read Job: %w", err)
	case !have.DeletionTimestamp.IsZero():
		return testRuns("waits until the Job of before is gone"), nil
	case have.Annotations[v1alpha1.GroupVersion.Group+"/revision"] != revision:
		return testRuns("removes the Job of before"), t.deleteJob(ctx, &have)
	}

	for _, c := range have.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return nil, t.deleteJob(ctx, &have)
		case c.Type == batchv1.JobFailed:
			return &plan.Verdict{
				Phase: v1alpha1.PhaseFailed, Reason: plan.ReasonTestFailed,
				Message: fmt.Sprintf("its test failed, see the logs of Job %s/%s: %s", have.Namespace, have.Name, c.Message),
			}, nil
		}
	}

	return testRuns(fmt.Sprintf("Job %s/%s runs", have.Namespace, have.Name)), nil
}

// ForgetTest removes the Job of a test, so that the next attempt runs another one.
func (t *Target) ForgetTest(ctx context.Context, id ID, namespace string) error {
	return t.deleteJob(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: testName(id)}})
}

func (t *Target) deleteJob(ctx context.Context, j *batchv1.Job) error {
	return client.IgnoreNotFound(t.client.Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// testName fits the name of a Job's pods, whatever the Component is called.
func testName(id ID) string {
	sum := sha256.Sum256([]byte(id.Namespace + "/" + id.Name))
	name := id.Name
	if len(name) > 40 {
		name = name[:40]
	}
	return name + "-test-" + hex.EncodeToString(sum[:4])
}

func testRuns(text string) *plan.Verdict {
	return &plan.Verdict{Phase: v1alpha1.PhaseTesting, Reason: plan.ReasonTestRuns, Message: "its own test: " + text}
}

func explainJob(j *batchv1.Job, err error) error {
	if apierrors.IsInvalid(err) {
		return newFault(
			v1alpha1.PhaseRefused, plan.ReasonSourceRefused, "spec.selfTest.job: Job %s is refused: %v", j.Name, err,
		)
	}
	return fmt.Errorf("create Job: %w", err)
}
