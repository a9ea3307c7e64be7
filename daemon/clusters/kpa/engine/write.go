package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// writeStage applies objects. All are tried without effect before any is written, so that one that is refused leaves
// nothing half done.
func (t *Target) writeStage(ctx context.Context, objects []*unstructured.Unstructured, force bool) error {
	recreate := map[*unstructured.Unstructured]bool{}
	for _, o := range objects {
		err := t.applyOne(ctx, o, client.DryRunAll)
		if err == nil {
			continue
		}
		if isKept := t.keepsFields(ctx, o, err); !isKept || !force {
			return explainRefusal(o, err, isKept)
		}
		recreate[o] = true
	}

	for _, o := range objects {
		if recreate[o] {
			if err := t.deleteForGood(ctx, o); err != nil {
				return err
			}
		}
		if err := t.applyOne(ctx, o); err != nil {
			return explainRefusal(o, err, false)
		}
	}

	return nil
}

func (t *Target) applyOne(ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(FieldManager), client.ForceOwnership)
	return t.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), options...)
}

// keepsFields reports whether an object was refused only because the API keeps a field as it was created. The API's
// words differ from kind to kind, so the question is another one: would it take the same object as a new one?
func (t *Target) keepsFields(ctx context.Context, o *unstructured.Unstructured, refusal error) bool {
	if !apierrors.IsInvalid(refusal) {
		return false
	}

	h := fnv.New64a()
	h.Write([]byte(describe(o)))
	fresh := o.DeepCopy()
	fresh.SetName("kpa-" + hex.EncodeToString(h.Sum(nil)))
	return t.applyOne(ctx, fresh, client.DryRunAll) == nil
}

// deleteForGood deletes an object and waits until it is gone.
func (t *Target) deleteForGood(ctx context.Context, o *unstructured.Unstructured) error {
	err := t.client.Delete(ctx, o.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", describe(o), err)
	}

	gone := func() (bool, error) {
		err := t.client.Get(ctx, client.ObjectKeyFromObject(o), metadataOf(o.GroupVersionKind()))
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if ok, err := poll(ctx, gone); err != nil || ok {
		return err
	}
	return newFault(
		v1alpha1.PhaseApplying, plan.ReasonPruning, "waits until the %s of before is gone", describe(o),
	)
}

// awaitServed waits until the API serves kinds and namespaces that were just written.
func (t *Target) awaitServed(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		why := ""
		served := func() (bool, error) {
			have := entryOf(o).object()
			if err := t.client.Get(ctx, client.ObjectKeyFromObject(have), have); err != nil {
				return false, err
			}
			s, err := status.Compute(have)
			if err != nil {
				return false, fmt.Errorf("read status of %s: %w", describe(o), err)
			}
			why = s.Message
			return s.Status == status.CurrentStatus, nil
		}
		ok, err := poll(ctx, served)
		if err != nil {
			return err
		}
		if !ok {
			return newFault(v1alpha1.PhaseApplying, plan.ReasonNotHealthy, "waits for %s: %s", describe(o), why)
		}
	}

	return nil
}

// poll asks until the answer is yes, for stageTimeout at most.
func poll(ctx context.Context, ask func() (bool, error)) (bool, error) {
	for end := time.Now().Add(stageTimeout); ; {
		ok, err := ask()
		if ok || err != nil || time.Now().After(end) {
			return ok, err
		}

		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// explainRefusal says what to do about the refusals that people meet.
func explainRefusal(o *unstructured.Unstructured, err error, isKept bool) error {
	switch {
	case isKept:
		return newFault(
			v1alpha1.PhaseFailed, plan.ReasonImmutable,
			"%s: a field is changed that the API keeps as it was created; set force: true to have it deleted and created "+
				"again, or give the object another name: %v", describe(o), err,
		)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w", describe(o), err)
	case errors.As(err, new(apierrors.APIStatus)), meta.IsNoMatchError(err):
		return newFault(v1alpha1.PhaseFailed, plan.ReasonApplyFailed, "%s: %v", describe(o), err)
	}

	return fmt.Errorf("%s: %w", describe(o), err)
}
