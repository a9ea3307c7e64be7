package tenants

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Scheme knows every kind that the controller reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme)
	return s, kinds.AddToScheme(s)
}

// Run runs the controller until ctx ends. Its Deployment starts no second one before the first has ended, and two would
// write the same.
func Run(ctx context.Context, api *rest.Config, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	own, err := newOwnCache()
	if err != nil {
		return err
	}
	m, err := ctrlmanager.New(api, ctrlmanager.Options{
		Name:   FieldManager,
		Health: "0",
		Scheme: scheme,
		Cache:  own,
	}, log)
	if err != nil {
		return err
	}

	r := &Tenants{
		Client:   m.GetClient(),
		Reader:   m.GetAPIReader(),
		Recorder: m.GetEventRecorder(FieldManager),
		Log:      log,
	}
	b := builder.ControllerManagedBy(m).Named("tenant").
		For(&v1alpha1.Tenant{}, builder.WithPredicates(ctrlmanager.IgnoreOwnWrites())).
		Watches(
			&v1alpha1.Tenant{}, handler.EnqueueRequestsFromMapFunc(r.listRivals),
			builder.WithPredicates(ctrlmanager.IgnoreOwnWrites()),
		).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.listConcerned))
	for _, kind := range newKinds() {
		b = b.Watches(
			kind, handler.EnqueueRequestsFromMapFunc(listOwner), builder.WithPredicates(ignoreStatus()),
		)
	}
	err = b.WithOptions(controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
	}).Complete(r)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	return m.Start(ctx)
}

// newOwnCache has, of the kinds in namespaces, what the controller made and nothing of anybody else.
func newOwnCache() (cache.Options, error) {
	labeled, err := labels.NewRequirement(v1alpha1.LabelTenant, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("make selector: %w", err)
	}

	o := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	for _, kind := range newKinds() {
		o.ByObject[kind] = cache.ByObject{Label: labels.NewSelector().Add(*labeled)}
	}
	return o, nil
}

// ignoreStatus passes over changes of a quota's use, which follow every pod.
func ignoreStatus() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*corev1.ResourceQuota)
		now, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
		if !ok1 || !ok2 {
			return true
		}
		return !equality.Semantic.DeepEqual(old.Spec, now.Spec) || !equality.Semantic.DeepEqual(old.Labels, now.Labels)
	}}
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

// listOwner is the Tenant whose label an object has.
func listOwner(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetLabels()[v1alpha1.LabelTenant]; name != "" {
		return []reconcile.Request{requestFor(name)}
	}
	return nil
}

// listConcerned are the Tenant that has a namespace, and those that name it.
func (r *Tenants) listConcerned(ctx context.Context, o client.Object) []reconcile.Request {
	return append(listOwner(ctx, o), r.listNaming(ctx, func(t *v1alpha1.Tenant) bool {
		return slices.Contains(t.Spec.Namespaces, o.GetName())
	})...)
}

// listRivals are the other Tenants that name a namespace that one names.
func (r *Tenants) listRivals(ctx context.Context, o client.Object) []reconcile.Request {
	one, ok := o.(*v1alpha1.Tenant)
	if !ok {
		return nil
	}
	return r.listNaming(ctx, func(t *v1alpha1.Tenant) bool {
		return t.Name != one.Name && slices.ContainsFunc(t.Spec.Namespaces, func(name string) bool {
			return slices.Contains(one.Spec.Namespaces, name)
		})
	})
}

func (r *Tenants) listNaming(ctx context.Context, fits func(*v1alpha1.Tenant) bool) []reconcile.Request {
	var all v1alpha1.TenantList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("Tenants were not listed", "error", err)
		return nil
	}

	var requests []reconcile.Request
	for i := range all.Items {
		if fits(&all.Items[i]) {
			requests = append(requests, requestFor(all.Items[i].Name))
		}
	}
	return requests
}
