// Package engine installs one bundle of objects on one API: server-side apply in stages, with an inventory on the
// target itself, so that whatever is interrupted is found again; it removes what the bundle no longer has, repairs
// what was changed by others, and says of each object whether it is ready. It waits for nothing: each call looks
// once, acts, and returns a verdict.
package engine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// FieldManager has the fields that are written.
const FieldManager = "kpa"

// ID is a Component, by which its objects are labelled.
type ID struct{ Namespace, Name string }

// Fault is an error that a status tells as it is.
type Fault struct{ plan.Verdict }

func (f *Fault) Error() string { return f.Reason + ": " + f.Message }

func newFault(phase, reason, format string, args ...any) *Fault {
	return &Fault{plan.Verdict{Phase: phase, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// VerdictOf is what an error means for a status: its own verdict, or that the cluster does not answer or that the
// attempt failed.
func VerdictOf(err error) plan.Verdict {
	var f *Fault
	var answer apierrors.APIStatus
	switch {
	case errors.As(err, &f):
		return f.Verdict
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return plan.Verdict{
			Phase: v1alpha1.PhaseWaiting, Reason: plan.ReasonNoRights,
			Message: fmt.Sprintf("the cluster refuses it; give what its kubeconfig logs in as the rights: %v", err),
		}
	case errors.As(err, &answer):
		return plan.Verdict{Phase: v1alpha1.PhaseFailed, Reason: plan.ReasonApplyFailed, Message: err.Error()}
	}

	return plan.Verdict{
		Phase: v1alpha1.PhaseWaiting, Reason: plan.ReasonClusterSilent,
		Message: fmt.Sprintf("its API does not answer: %v", err),
	}
}

// Apply makes the target's objects those of a Component: it writes them, and removes those that an earlier revision
// had. A nil error means that all is written; what is removed may still be going. The objects are changed: they get
// namespaces and the Component's labels.
func (t *Target) Apply(
	ctx context.Context, id ID, namespace string, objects []*unstructured.Unstructured, o Options,
) error {
	if err := t.ensureNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := t.setNamespaces(objects, namespace); err != nil {
		return err
	}

	for _, o := range objects {
		setOwner(o, id)
	}
	if err := t.checkOwners(ctx, id, objects); err != nil {
		return err
	}

	before, err := t.readInventory(ctx, id)
	if err != nil {
		return err
	}
	now := newInventory(objects)
	if err := t.writeInventory(ctx, id, before.union(now)); err != nil {
		return err
	}

	if err := t.write(ctx, objects, o.Force); err != nil {
		return err
	}
	if !o.Prune {
		return nil
	}

	left, err := t.remove(ctx, id, before.without(now))
	if err != nil {
		return err
	}
	if err := t.writeInventory(ctx, id, now.union(left)); err != nil {
		return err
	}
	if len(left) > 0 {
		return newFault(v1alpha1.PhaseApplying, plan.ReasonPruning, "waits until %s is gone", left.describe())
	}

	return nil
}

// Options are a Component's choices.
type Options struct {
	Prune bool
	Force bool // what the API refuses to change is created again
}

// Remove removes what a Component has on the target, custom resources before what serves them. It is true when
// nothing is left; otherwise the verdict says what is waited for.
func (t *Target) Remove(ctx context.Context, id ID) (bool, plan.Verdict, error) {
	have, err := t.readInventory(ctx, id)
	if err != nil {
		return false, plan.Verdict{}, err
	}

	for _, stage := range have.stages() {
		left, err := t.remove(ctx, id, stage)
		if err != nil {
			return false, plan.Verdict{}, err
		}
		if len(left) > 0 {
			return false, plan.Verdict{
				Phase: v1alpha1.PhaseDeleting, Reason: plan.ReasonDeleting,
				Message: fmt.Sprintf("waits until %s is gone", left.describe()),
			}, nil
		}
	}

	return true, plan.Verdict{}, t.deleteInventory(ctx, id)
}
