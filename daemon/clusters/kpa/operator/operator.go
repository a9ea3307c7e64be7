// Package operator is the controller of Components. It looks at what a Component asks for, at its source and at each
// of its clusters, decides by package plan, and acts by package engine. It waits for nothing: what is in progress is
// looked at again. Each cluster is looked at by itself, so that one that does not answer holds up no other.
package operator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Config is what the operator is given.
type Config struct {
	Namespace string // the operator's own: its lock is there
	Folder    string // of sources that are folders; may be missing
	Bundles   string // that were uploaded, OWNER/NAME/VERSION; may be missing
	Elect     bool   // wait until no other operator runs
	Health    string // address of /readyz; "0" for none
	Own       bool   // clusters may be on this very machine, as those of tests and measurements are
}

// FieldManager is the operator's name; it has the fields of Components that the operator writes.
const FieldManager = "kpa-operator"

// Kinds of which clusters are: a Provisioning is BPA's, a Cluster is of Cluster API. Only their labels are read.
var (
	provisionings = schema.GroupVersionKind{Group: "bpa.akraino.org", Version: "v1alpha1", Kind: "Provisioning"}
	capiClusters  = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
)

// Scheme knows every kind that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1alpha1.AddToScheme)
	return s, kinds.AddToScheme(s)
}

// Components is the controller.
type Components struct {
	Config   Config
	Client   client.Client
	Reader   client.Reader // without a cache
	Recorder events.EventRecorder
	API      *rest.Config // the appliance's
	Now      func() time.Time
	Log      *slog.Logger

	targets targets
}

// Run runs the controller until ctx ends.
func Run(ctx context.Context, api *rest.Config, c Config, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}

	m, err := ctrlmanager.New(api, ctrlmanager.Options{
		Name:      FieldManager,
		Namespace: c.Namespace,
		Elect:     c.Elect,
		Health:    c.Health,
		Scheme:    scheme,
	}, log)
	if err != nil {
		return err
	}

	r := &Components{
		Config:   c,
		Client:   m.GetClient(),
		Reader:   m.GetAPIReader(),
		Recorder: m.GetEventRecorder(FieldManager),
		API:      api,
		Now:      time.Now,
		Log:      log,
	}
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(provisionings)
	asked := ctrlmanager.IgnoreOwnWrites(predicate.AnnotationChangedPredicate{})
	err = builder.ControllerManagedBy(m).Named("component").
		For(&v1alpha1.Component{}, builder.WithPredicates(asked)).
		Watches(
			&v1alpha1.Component{}, handler.EnqueueRequestsFromMapFunc(r.listNeighbours),
			builder.WithPredicates(matterToOthers()),
		).
		WatchesMetadata(
			cluster, handler.EnqueueRequestsFromMapFunc(r.listNeighbours),
			builder.WithPredicates(predicate.LabelChangedPredicate{}),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).Complete(r)
	if err != nil {
		return fmt.Errorf("make controller: %w", err)
	}
	return m.Start(ctx)
}

// matterToOthers passes over changes of a Component that none that depends on it, or that it depends on, would see.
func matterToOthers() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*v1alpha1.Component)
		now, ok2 := e.ObjectNew.(*v1alpha1.Component)
		return !ok1 || !ok2 || old.Generation != now.Generation || phasesOf(old) != phasesOf(now)
	}}
}

// phasesOf is all that others see of a status.
func phasesOf(c *v1alpha1.Component) string {
	text := fmt.Sprintf("%d %s", c.Status.ObservedGeneration, c.Status.Phase)
	for _, s := range c.Status.Clusters {
		text += " " + s.Name + "=" + s.Phase
	}
	return text
}

// listNeighbours are the Components of a namespace: an edge of the graph may close a cycle anywhere in it.
func (r *Components) listNeighbours(ctx context.Context, o client.Object) []reconcile.Request {
	var all v1alpha1.ComponentList
	if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("Components not listed", "error", err)
		return nil
	}

	var out []reconcile.Request
	for i := range all.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
	}
	return out
}
