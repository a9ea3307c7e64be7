// Package engine installs one bundle of objects on one API: server-side apply in stages, with an inventory on the
// target itself, so that whatever is interrupted is found again; it removes what the bundle no longer has, repairs
// what was changed by others, and says of each object whether it is ready. It waits for nothing: each call looks
// once, acts, and returns a verdict.
package engine

import (
	"context"
	"errors"
	"fmt"

	helm "helm.sh/helm/v4/pkg/release/v1"
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

// Options are a Component's choices.
type Options struct {
	Prune     bool
	Force     bool // what the API refuses to change is created again
	NoHooks   bool
	RetryHook bool // one that failed runs again
}

// Apply makes the target's objects those of a Component: it runs the hooks that come before, writes the objects, and
// removes those that an earlier revision had. A nil error means that all is written; what is removed may still be going.
// Finish follows when they are healthy.
func (t *Target) Apply(ctx context.Context, id ID, namespace string, c Content, o Options) error {
	if err := t.ensureNamespace(ctx, namespace); err != nil {
		return err
	}
	objects, hooks, err := t.prepare(id, namespace, c, o)
	if err != nil {
		return err
	}
	if err := t.checkOwners(ctx, id, objects); err != nil {
		return err
	}

	before, err := t.readRecord(ctx, id)
	if err != nil {
		return err
	}
	now, known := newInventory(objects), before
	known.release = before.release.Begin(c.Revision)
	known.objects = before.objects.union(now)
	run := newInventory(objectsOf(hooks))
	known.hooks = before.hooks.union(run)
	last := listAt(hooks, helm.HookPreDelete, helm.HookPostDelete)
	known.last = before.last || len(last) > 0
	if err := t.writeRecord(ctx, id, known); err != nil {
		return err
	}

	first, rest := splitStages(objects)
	if err := t.writeStage(ctx, first, o.Force); err != nil {
		return err
	}
	if err := t.awaitServed(ctx, first); err != nil {
		return err
	}
	if known.release.Operation != nil {
		event, _ := known.release.Operation.Events()
		if err := t.runHooks(ctx, id, &known, hooks, event, o); err != nil {
			return err
		}
		if known.last {
			if err := t.writeLastHooks(ctx, id, last); err != nil {
				return err
			}
		}
	}
	if err := t.writeStage(ctx, rest, o.Force); err != nil {
		return err
	}

	if known.release.Operation != nil && len(hooks) == 0 {
		known.release = known.release.Complete()
	}
	if o.Prune {
		left, err := t.remove(ctx, id, before.objects.without(now).without(run))
		if err != nil {
			return err
		}
		known.objects = now.union(left)
		if len(left) > 0 {
			err = newFault(v1alpha1.PhaseApplying, plan.ReasonPruning, "waits until %s is gone", left.describe())
		}
		return errors.Join(t.writeRecord(ctx, id, known), err)
	}

	return t.writeRecord(ctx, id, known)
}

// Finish runs the hooks that come when a Component is healthy. A nil error means that this revision is installed.
func (t *Target) Finish(ctx context.Context, id ID, namespace string, c Content, o Options) error {
	known, err := t.readRecord(ctx, id)
	if err != nil || known.release.Operation == nil {
		return err
	}
	_, hooks, err := t.prepare(id, namespace, c, o)
	if err != nil {
		return err
	}

	_, event := known.release.Operation.Events()
	if err := t.runHooks(ctx, id, &known, hooks, event, o); err != nil {
		var f *Fault
		if errors.As(err, &f) && f.Reason == plan.ReasonHookRuns {
			f.Phase = v1alpha1.PhaseHealth // all is applied
		}
		return err
	}
	known.release = known.release.Complete()
	return t.writeRecord(ctx, id, known)
}

// prepare copies the objects and hooks of a source, and gives them namespaces and the Component's labels.
func (t *Target) prepare(
	id ID, namespace string, c Content, o Options,
) (objects []*unstructured.Unstructured, hooks []hook, err error) {
	objects, hooks = c.copy()
	if o.NoHooks {
		hooks = nil
	}

	all := append(objectsOf(hooks), objects...)
	if err := t.setNamespaces(all, namespace); err != nil {
		return nil, nil, err
	}
	for _, o := range all {
		setOwner(o, id)
	}
	return objects, hooks, nil
}

// Remove removes what a Component has on the target, custom resources before what serves them, and runs the hooks of
// its last revision for that. It is true when nothing is left; otherwise the verdict says what is waited for.
func (t *Target) Remove(ctx context.Context, id ID, o Options) (bool, plan.Verdict, error) {
	known, err := t.readRecord(ctx, id)
	if err != nil {
		return false, plan.Verdict{}, err
	}
	var hooks []hook
	if !o.NoHooks {
		if hooks, err = t.readLastHooks(ctx, id, known); err != nil {
			return false, plan.Verdict{}, err
		}
	}

	err = t.removeAll(ctx, id, known, hooks, o)
	var f *Fault
	if errors.As(err, &f) && (f.Reason == plan.ReasonDeleting || f.Reason == plan.ReasonHookRuns) {
		f.Phase = v1alpha1.PhaseDeleting
		return false, f.Verdict, nil
	}
	return err == nil, plan.Verdict{}, err
}

func (t *Target) removeAll(ctx context.Context, id ID, known record, hooks []hook, o Options) error {
	known.release = known.release.BeginUninstall()
	if len(hooks) > 0 {
		known.hooks = known.hooks.union(newInventory(objectsOf(hooks)))
		if err := t.writeRecord(ctx, id, known); err != nil {
			return err
		}
	}

	before, after := known.release.Operation.Events()
	if err := t.runHooks(ctx, id, &known, hooks, before, o); err != nil {
		return err
	}
	for _, stage := range known.objects.stages() {
		if err := t.removeStage(ctx, id, stage); err != nil {
			return err
		}
	}
	if err := t.runHooks(ctx, id, &known, hooks, after, o); err != nil {
		return err
	}
	for _, stage := range known.hooks.stages() {
		if err := t.removeStage(ctx, id, stage); err != nil {
			return err
		}
	}

	return t.deleteRecord(ctx, id, known)
}

func (t *Target) removeStage(ctx context.Context, id ID, stage inventory) error {
	left, err := t.remove(ctx, id, stage)
	if err == nil && len(left) > 0 {
		err = newFault(v1alpha1.PhaseDeleting, plan.ReasonDeleting, "waits until %s is gone", left.describe())
	}
	return err
}
