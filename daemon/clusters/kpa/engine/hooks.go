package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	helm "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// hook is an object that is not installed but runs at a moment of an operation. Annotations, moments, order and
// deletion are Helm's (helm.sh/helm/v4, pkg/action/hooks.go); how it is waited for is not: each look sees how far it is.
type hook struct {
	object   *unstructured.Unstructured
	events   []helm.HookEvent
	weight   int
	policies []helm.HookDeletePolicy
}

var events = []helm.HookEvent{
	helm.HookPreInstall,
	helm.HookPostInstall,
	helm.HookPreUpgrade,
	helm.HookPostUpgrade,
	helm.HookPreRollback,
	helm.HookPostRollback,
	helm.HookPreDelete,
	helm.HookPostDelete,
}

// annotationOperation says of a hook's object in which operation it was created: the serial number.
var annotationOperation = v1alpha1.GroupVersion.Group + "/operation"

// splitHooks takes the hooks out of a source's objects. Those of helm test are left out: nothing runs them.
func splitHooks(all []*unstructured.Unstructured) (objects []*unstructured.Unstructured, hooks []hook, err error) {
	for _, o := range all {
		text, is := o.GetAnnotations()[helm.HookAnnotation]
		if !is {
			objects = append(objects, o)
			continue
		}

		h := hook{object: o}
		for _, word := range splitWords(text) {
			event := helm.HookEvent(word)
			switch {
			case strings.HasPrefix(word, string(helm.HookTest)):
			case slices.Contains(events, event):
				h.events = append(h.events, event)
			default:
				return nil, nil, newFault(
					v1alpha1.PhaseRefused, plan.ReasonSourceRefused,
					"%s: there is no hook %q; take it out of the annotation %s", describe(o), word, helm.HookAnnotation,
				)
			}
		}
		h.weight, _ = strconv.Atoi(o.GetAnnotations()[helm.HookWeightAnnotation]) // 0 of what is no number, as with Helm
		for _, word := range splitWords(o.GetAnnotations()[helm.HookDeleteAnnotation]) {
			h.policies = append(h.policies, helm.HookDeletePolicy(word))
		}
		if len(h.policies) == 0 {
			h.policies = []helm.HookDeletePolicy{helm.HookBeforeHookCreation}
		}
		if len(h.events) > 0 {
			hooks = append(hooks, h)
		}
	}

	slices.SortStableFunc(hooks, func(a, b hook) int {
		return cmp.Or(
			cmp.Compare(a.weight, b.weight), strings.Compare(a.object.GetName(), b.object.GetName()),
			rank(a.object)-rank(b.object),
		)
	})
	return objects, hooks, nil
}

func splitWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ',' || r == ' ' })
}

func objectsOf(hooks []hook) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, h := range hooks {
		all = append(all, h.object)
	}
	return all
}

// listAt are the hooks that run at one of some events, in their order.
func listAt(hooks []hook, at ...helm.HookEvent) []hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h hook) bool {
		return !slices.ContainsFunc(h.events, func(e helm.HookEvent) bool { return slices.Contains(at, e) })
	})
}

func (h hook) has(p helm.HookDeletePolicy) bool {
	return slices.Contains(h.policies, p) && !isKind(h.object) // a kind takes all of its objects along
}

// runHooks runs the hooks of an event, one after the other; each that has succeeded is recorded, and runs once in an
// operation. A nil error means that all have, and that those are gone whose policy says so.
func (t *Target) runHooks(
	ctx context.Context, id ID, known *record, hooks []hook, event helm.HookEvent, o Options,
) error {
	all := listAt(hooks, event)
	for _, h := range all {
		key := string(event) + " " + entryOf(h.object).key()
		if known.release.IsDone(key) {
			continue
		}
		if err := t.runHook(ctx, id, h, event, known.release.Serial, o.RetryHook); err != nil {
			return err
		}
		known.release = known.release.MarkDone(key)
		if err := t.writeRecord(ctx, id, *known); err != nil {
			return err
		}
	}

	// One may need what another one created, so they go together.
	var over inventory
	for _, h := range all {
		if h.has(helm.HookSucceeded) {
			over = append(over, entryOf(h.object))
		}
	}
	left, err := t.remove(ctx, id, over)
	if err == nil && len(left) > 0 {
		err = newFault(v1alpha1.PhaseApplying, plan.ReasonHookRuns, "waits until %s is gone", left.describe())
	}
	return err
}

// runHook creates a hook's object, or looks how far it is. A nil error means that it has succeeded.
func (t *Target) runHook(
	ctx context.Context, id ID, h hook, event helm.HookEvent, serial int, retry bool,
) error {
	have := entryOf(h.object).object()
	err := t.client.Get(ctx, client.ObjectKeyFromObject(have), have)
	isOld := err == nil && have.GetAnnotations()[annotationOperation] != strconv.Itoa(serial)
	switch {
	case apierrors.IsNotFound(err):
		have, err = t.createHook(ctx, h, serial)
	case err != nil:
		err = fmt.Errorf("read %s: %w", describe(h.object), err)
	case !have.GetDeletionTimestamp().IsZero():
		err = newHookRuns(event, h, "waits until that of before is gone")
	case isOld && isKind(h.object):
		return nil
	case isOld && (ownerOf(have) != id || !h.has(helm.HookBeforeHookCreation)):
		err = newFault(
			v1alpha1.PhaseFailed, plan.ReasonHookFailed, "hook %s: %s is there already and is not deleted; delete it",
			event, describe(h.object),
		)
	case isOld, retry && hookFailure(have) != "":
		if err = t.deleteForGood(ctx, have); err == nil {
			have, err = t.createHook(ctx, h, serial)
		}
	}
	if err != nil {
		return err
	}

	if why := hookFailure(have); why != "" {
		return t.endFailedHook(ctx, have, h, event, why)
	}
	if text, runs := hookProgress(have); runs {
		return newHookRuns(event, h, t.explain(ctx, have, text))
	}
	return nil
}

func (t *Target) createHook(ctx context.Context, h hook, serial int) (*unstructured.Unstructured, error) {
	o := h.object.DeepCopy()
	notes := o.GetAnnotations()
	notes[annotationOperation] = strconv.Itoa(serial)
	o.SetAnnotations(notes)
	if err := t.client.Create(ctx, o, client.FieldOwner(FieldManager)); err != nil {
		return nil, explainRefusal(h.object, err, false)
	}
	return o, nil
}

// endFailedHook is the sentence of a hook that failed. What its policy deletes has no logs afterwards; that of a removal
// stays, since it would run again at once.
func (t *Target) endFailedHook(
	ctx context.Context, have *unstructured.Unstructured, h hook, event helm.HookEvent, why string,
) error {
	text := fmt.Sprintf("hook %s: %s failed: %s", event, describe(have), t.explain(ctx, have, why))
	switch {
	case event == helm.HookPreDelete || event == helm.HookPostDelete:
		text += fmt.Sprintf(
			"; see its logs, delete it to have it run again, or go on without hooks by the annotation %s=true",
			v1alpha1.AnnotationNoHooks,
		)
	case h.has(helm.HookFailed):
		text += "; it is deleted, as its policy says"
		err := t.client.Delete(ctx, have, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", describe(have), err)
		}
	default:
		text += "; see its logs"
	}
	return newFault(v1alpha1.PhaseFailed, plan.ReasonHookFailed, "%s", text)
}

func newHookRuns(event helm.HookEvent, h hook, text string) error {
	return newFault(
		v1alpha1.PhaseApplying, plan.ReasonHookRuns, "hook %s: %s: %s", event, describe(h.object), text,
	)
}

// hookFailure is why a Job or a Pod has failed; "" if it has not.
func hookFailure(o *unstructured.Unstructured) string {
	switch o.GroupVersionKind().GroupKind().String() {
	case "Job.batch":
		if c := findCondition(o, "Failed"); c != nil {
			return fmt.Sprintf("%v", cmp.Or(c["message"], c["reason"], any("it does not say why")))
		}
	case "Pod":
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase == "Failed" {
			message, _, _ := unstructured.NestedString(o.Object, "status", "message")
			return cmp.Or(message, "it has ended with an error")
		}
	}
	return ""
}

// hookProgress reports whether a Job or a Pod still runs, and what it says. Of other kinds it is enough that they are
// there.
func hookProgress(o *unstructured.Unstructured) (text string, runs bool) {
	switch o.GroupVersionKind().GroupKind().String() {
	case "Job.batch":
		return "runs", findCondition(o, "Complete") == nil
	case "Pod":
		phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		return cmp.Or(explainPod(*o), "runs"), phase != "Succeeded"
	}
	return "", false
}

// findCondition is a condition of an object that is True; nil if there is none.
func findCondition(o *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if condition, ok := c.(map[string]any); ok && condition["type"] == kind && condition["status"] == "True" {
			return condition
		}
	}
	return nil
}
