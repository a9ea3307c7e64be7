package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Tenants is the controller. It waits for nothing, and remembers nothing but labels on the cluster: it may be killed
// anywhere.
type Tenants struct {
	Client   client.Client
	Reader   client.Reader // without a cache
	Recorder events.EventRecorder
	Log      *slog.Logger
}

// checkInterval is the time between two checks of a Tenant that is not ready.
const checkInterval = time.Minute

// problem is why a Tenant is not ready.
type problem struct{ reason, message string }

// Reconcile makes one Tenant's namespaces what it asks for.
func (r *Tenants) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	t := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, request.NamespacedName, t); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !t.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.finalize(ctx, t)
	}
	if !controllerutil.ContainsFinalizer(t, v1alpha1.Finalizer) {
		if err := patchFinalizers(ctx, r.Client, t, controllerutil.AddFinalizer); err != nil {
			return reconcile.Result{}, err
		}
	}

	problems, err := r.release(ctx, t)
	if err != nil {
		return reconcile.Result{}, err
	}
	held, more, err := r.provide(ctx, t)
	if isTransient(err) {
		return reconcile.Result{}, err
	}
	problems = append(more, problems...)
	result := reconcile.Result{}
	if len(problems) > 0 {
		result.RequeueAfter = checkInterval // what others have to change is not watched
	}
	return result, errors.Join(err, r.writeStatus(ctx, t, held, problems))
}

// finalize releases or deletes all namespaces of a Tenant that is being deleted, then lets it go.
func (r *Tenants) finalize(ctx context.Context, t *v1alpha1.Tenant) error {
	if !controllerutil.ContainsFinalizer(t, v1alpha1.Finalizer) {
		return nil
	}
	problems, err := r.release(ctx, t)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return r.writeStatus(ctx, t, nil, problems)
	}
	return patchFinalizers(ctx, r.Client, t, controllerutil.RemoveFinalizer)
}

// release takes from a Tenant what it no longer asks for. The problems are namespaces that are not gone yet.
func (r *Tenants) release(ctx context.Context, t *v1alpha1.Tenant) (problems []problem, err error) {
	by := releaser{r.Client, r.Reader}
	all, err := by.listNamespaces(ctx, t.Name)
	if err != nil {
		return nil, err
	}

	for _, n := range listReleases(t, all) {
		done, err := by.reclaim(ctx, &n, t.Spec.Reclaim)
		if err != nil {
			return nil, err
		}
		if !done {
			problems = append(problems, problem{
				v1alpha1.ReasonReleasing, fmt.Sprintf("waits until namespace %s is deleted", n.Name),
			})
			continue
		}
		r.Log.Info("namespace was released", "tenant", t.Name, "namespace", n.Name)
	}
	return problems, nil
}

// provide gives a Tenant the namespaces that it asks for, each whatever becomes of the others.
func (r *Tenants) provide(ctx context.Context, t *v1alpha1.Tenant) (held []string, problems []problem, err error) {
	var all v1alpha1.TenantList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("list Tenants: %w", err)
	}

	var failed []error
	for _, name := range t.Spec.Namespaces {
		is := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, is); apierrors.IsNotFound(err) {
			is = nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("read namespace %s: %w", name, err)
		}

		claim := DecideClaim(t, name, is, all.Items)
		if claim.Verdict == Refuse || claim.Verdict == Await {
			problems = append(problems, problem{claim.Reason, claim.Message})
			continue
		}
		held = append(held, name)
		wrong, err := r.furnish(ctx, t, claim, is)
		if err != nil {
			failed = append(failed, err)
			wrong = &problem{v1alpha1.ReasonFailed, err.Error()}
		}
		if wrong != nil {
			problems = append(problems, *wrong)
		}
	}
	return held, problems, errors.Join(failed...)
}

// furnish makes one namespace what its Tenant says: it takes away what the Tenant no longer gives, then gives the rest. Who
// may use it comes last, and only if all before it is there.
func (r *Tenants) furnish(ctx context.Context, t *v1alpha1.Tenant, c Claim, is *corev1.Namespace) (*problem, error) {
	if err := r.ensureNamespace(ctx, t, c, is); err != nil {
		return nil, err
	}
	have, err := listOwn(ctx, r.Client, c.Namespace)
	if err != nil {
		return nil, err
	}

	want := Render(t, c.Namespace)
	for _, o := range have {
		if !contains(want, o) {
			if err := deleteObject(ctx, r.Client, o); err != nil {
				return nil, err
			}
		}
	}
	for _, o := range want {
		if !contains(have, o) {
			foreign, err := isForeign(ctx, r.Reader, o)
			if err != nil {
				return nil, err
			}
			if foreign {
				return &problem{
					v1alpha1.ReasonObject,
					describe(o) + " exists and was not made for this Tenant; delete it or give it another name",
				}, nil
			}
		}
		if err := apply(ctx, r.Client, o); err != nil {
			return nil, fmt.Errorf("apply %s: %w", describe(o), err)
		}
	}
	if t.Spec.IsIsolated() {
		return r.checkIsolation(ctx, c.Namespace)
	}
	return nil, nil
}

// checkIsolation finds what was there before a namespace was isolated; nobody adds to it afterwards.
func (r *Tenants) checkIsolation(ctx context.Context, namespace string) (*problem, error) {
	names, err := listOpenings(ctx, r.Reader, namespace)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	return &problem{v1alpha1.ReasonOpen, fmt.Sprintf(
		"namespace %s has other NetworkPolicies, which may open what isolation closes: %s; delete them",
		namespace, strings.Join(names, ", "),
	)}, nil
}

// ensureNamespace creates a namespace, or gives the one that was read the labels of its Tenant.
func (r *Tenants) ensureNamespace(ctx context.Context, t *v1alpha1.Tenant, c Claim, is *corev1.Namespace) error {
	labels := NamespaceLabels(t)
	if c.Verdict == Create {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: labels}}
		if err := r.Client.Create(ctx, n, client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("create namespace %s: %w", c.Namespace, err)
		}
		r.Log.Info("namespace was created", "tenant", t.Name, "namespace", c.Namespace)
		return nil
	}

	differs := false
	for name, value := range labels {
		differs = differs || is.Labels[name] != value
	}
	if !differs {
		return nil
	}
	n := &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Namespace, UID: is.UID, ResourceVersion: is.ResourceVersion, // the one that was decided about
			Labels: labels,
		},
	}
	if err := apply(ctx, r.Client, n); err != nil {
		return fmt.Errorf("label namespace %s: %w", c.Namespace, err)
	}
	r.Log.Info("namespace has its tenant's labels", "tenant", t.Name, "namespace", c.Namespace)
	return nil
}

// isTransient reports whether an error only says that what was read is out of date.
func isTransient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, context.Canceled)
}

// patchFinalizers adds or removes the controller's finalizer of the very Tenant that was read.
func patchFinalizers(
	ctx context.Context, c client.Client, t *v1alpha1.Tenant, change func(client.Object, string) bool,
) error {
	before := t.DeepCopy()
	if !change(t, v1alpha1.Finalizer) {
		return nil
	}

	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(c.Patch(ctx, t, patch, client.FieldOwner(FieldManager))); err != nil {
		return fmt.Errorf("write finalizers of Tenant %s: %w", t.Name, err)
	}
	return nil
}

// writeStatus says what there is. A change of it is an Event.
func (r *Tenants) writeStatus(ctx context.Context, t *v1alpha1.Tenant, held []string, problems []problem) error {
	before := t.DeepCopy()
	c := condition(held, problems)
	c.ObservedGeneration = t.Generation
	t.Status.ObservedGeneration, t.Status.Namespaces, t.Status.Message = t.Generation, held, c.Message
	old := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady)
	meta.SetStatusCondition(&t.Status.Conditions, c)
	if equality.Semantic.DeepEqual(before.Status, t.Status) {
		return nil
	}

	err := r.Client.Status().Patch(ctx, t, client.MergeFrom(before), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Tenant %s: %w", t.Name, err)
	}
	if old == nil || old.Reason != c.Reason || old.Message != c.Message {
		kind := corev1.EventTypeWarning
		if c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonReleasing {
			kind = corev1.EventTypeNormal
		}
		r.Recorder.Eventf(t, nil, kind, c.Reason, "Reconcile", "%s", ctrlmanager.TruncateNote(c.Message))
	}
	return nil
}

// condition sums up: the reason is that of the first problem, the sentence has them all.
func condition(held []string, problems []problem) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady}
	if len(problems) == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		c.Message = fmt.Sprintf("has %d of %d namespaces", len(held), len(held))
		return c
	}

	var sentences []string
	for _, p := range problems {
		if !slices.Contains(sentences, p.message) {
			sentences = append(sentences, p.message)
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, problems[0].reason, strings.Join(sentences, "; ")
	return c
}
