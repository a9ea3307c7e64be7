package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/kpa/engine"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// finish removes what a Component installed, after all that depend on it are gone, and lets it go.
func (r *Components) finish(
	ctx context.Context, c *v1alpha1.Component, all []v1alpha1.Component,
) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(c, v1alpha1.Finalizer) {
		return reconcile.Result{}, nil
	}

	nodes := nodesOf(all)
	cycles := plan.FindCycles(nodes)
	dependents := slices.DeleteFunc(plan.ListDependents(c.Name, nodes), func(name string) bool {
		return cycles[c.Name] != nil && cycles[name] != nil // none of a cycle was ever installed after the others
	})
	if len(dependents) > 0 {
		v := plan.Verdict{
			Phase: v1alpha1.PhaseDeleting, Reason: plan.ReasonDependents,
			Message: fmt.Sprintf("is removed after what depends on it: %s; delete that too", strings.Join(dependents, ", ")),
		}
		status := r.setAll(c, c.Status.Clusters, v)
		return reconcile.Result{RequeueAfter: whileWaits}, ignoreRace(r.writeStatus(ctx, c, status))
	}

	status := v1alpha1.ComponentStatus{Revision: c.Status.Revision, Clusters: slices.Clone(c.Status.Clusters)}
	var running sync.WaitGroup
	for i := range status.Clusters {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			status.Clusters[i] = r.uninstall(ctx, c, status.Clusters[i])
		})
	}
	running.Wait()

	status.Clusters = slices.DeleteFunc(status.Clusters, func(s v1alpha1.ClusterStatus) bool { return s.Phase == "" })
	if len(status.Clusters) > 0 {
		if err := r.writeStatus(ctx, c, r.complete(c, status)); err != nil {
			return reconcile.Result{}, ignoreRace(err)
		}
		return reconcile.Result{RequeueAfter: soon}, nil
	}

	controllerutil.RemoveFinalizer(c, v1alpha1.Finalizer)
	return reconcile.Result{}, client.IgnoreNotFound(ignoreRace(r.Client.Update(ctx, c)))
}

// uninstall removes what a Component has on a cluster. The phase of what it returns is empty when nothing is left, or the
// cluster is no more.
func (r *Components) uninstall(
	ctx context.Context, c *v1alpha1.Component, before v1alpha1.ClusterStatus,
) v1alpha1.ClusterStatus {
	s := before
	s.Since, s.Next = nil, nil
	if c.Spec.Prune != nil && !*c.Spec.Prune {
		return v1alpha1.ClusterStatus{Name: s.Name}
	}

	target, gone, err := r.connect(ctx, c.Namespace, s.Name)
	if gone {
		return v1alpha1.ClusterStatus{Name: s.Name}
	}

	var done bool
	v := plan.Verdict{}
	if err == nil {
		done, v, err = target.Remove(
			ctx, engine.ID{Namespace: c.Namespace, Name: c.Name},
			engine.Options{NoHooks: c.Annotations[v1alpha1.AnnotationNoHooks] == "true"},
		)
	}
	switch {
	case err == nil && done, err != nil && c.Annotations[v1alpha1.AnnotationAbandon] == "true":
		return v1alpha1.ClusterStatus{Name: s.Name}
	case err != nil:
		v = engine.VerdictOf(err)
		v.Phase = v1alpha1.PhaseDeleting
		v.Message += fmt.Sprintf(
			"; to let it go without removing what it installed: annotation %s=true", v1alpha1.AnnotationAbandon,
		)
	}

	s.Phase, s.Reason, s.Message = v.Phase, v.Reason, v.Message
	return s
}
