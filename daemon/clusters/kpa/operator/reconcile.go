package operator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/kpa/engine"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// How soon something is looked at again, by its phase.
const (
	soon        = 2 * time.Second  // in progress
	whileSick   = 10 * time.Second // degraded
	whileWaits  = 15 * time.Second // for what is not watched: kubeconfigs, sources, nodes, clusters that are silent
	lookTimeout = time.Minute
	parallel    = 16 // clusters of one Component
)

// Reconcile takes a Component one step further on each of its clusters.
func (r *Components) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// What the last look wrote may not be in the cache yet, and attempts are counted in it.
	c := &v1alpha1.Component{}
	if err := r.Reader.Get(ctx, req.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	var all v1alpha1.ComponentList
	if err := r.Client.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return reconcile.Result{}, err
	}

	if !c.DeletionTimestamp.IsZero() {
		return r.finish(ctx, c, all.Items)
	}
	if controllerutil.AddFinalizer(c, v1alpha1.Finalizer) {
		if err := r.Client.Update(ctx, c); err != nil {
			return reconcile.Result{}, ignoreRace(err)
		}
	}

	status, err := r.observe(ctx, c, all.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.writeStatus(ctx, c, status); err != nil {
		return reconcile.Result{}, ignoreRace(err)
	}

	return reconcile.Result{RequeueAfter: r.nextLook(c, status)}, nil
}

// observe looks at all clusters, acts, and returns the status that follows.
func (r *Components) observe(
	ctx context.Context, c *v1alpha1.Component, all []v1alpha1.Component,
) (v1alpha1.ComponentStatus, error) {
	names, err := r.listTargets(ctx, c)
	var fault *engine.Fault
	if errors.As(err, &fault) {
		return r.refuse(c, fault.Verdict), nil
	}
	if err != nil {
		return v1alpha1.ComponentStatus{}, err
	}

	before := clustersOf(c, names)
	cycle := plan.FindCycles(nodesOf(all))[c.Name]
	switch {
	case cycle != nil:
		return r.setAll(c, before, plan.RefuseCycle(cycle)), nil
	case c.Spec.Suspend:
		return r.setAll(c, before, plan.Verdict{
			Phase: v1alpha1.PhaseSuspended, Reason: plan.ReasonSuspended,
			Message: "nothing is changed while spec.suspend is true",
		}), nil
	}

	content, err := r.load(ctx, c)
	if err != nil {
		return r.setAll(c, before, engine.VerdictOf(err)), nil
	}

	status := v1alpha1.ComponentStatus{Revision: content.Revision, Clusters: make([]v1alpha1.ClusterStatus, len(before))}
	room, running := make(chan struct{}, parallel), sync.WaitGroup{}
	for i := range before {
		running.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			if !slices.Contains(names, before[i].Name) {
				status.Clusters[i] = r.uninstall(ctx, c, before[i])
				return
			}
			status.Clusters[i] = r.look(ctx, c, all, content, before[i])
		})
	}
	running.Wait()

	status.Clusters = slices.DeleteFunc(status.Clusters, func(s v1alpha1.ClusterStatus) bool { return s.Phase == "" })
	return r.complete(c, status), ctx.Err()
}

// clustersOf are the clusters that a Component asks for, and those that it had and no longer asks for, as they stood.
func clustersOf(c *v1alpha1.Component, names []string) []v1alpha1.ClusterStatus {
	all := slices.Clone(c.Status.Clusters)
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s v1alpha1.ClusterStatus) bool { return s.Name == name }) {
			all = append(all, v1alpha1.ClusterStatus{Name: name, Phase: v1alpha1.PhaseWaiting})
		}
	}
	return all
}

func nodesOf(all []v1alpha1.Component) []plan.Node {
	var nodes []plan.Node
	for _, c := range all {
		n := plan.Node{Name: c.Name}
		for _, d := range c.Spec.DependsOn {
			n.DependsOn = append(n.DependsOn, d.Name)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// setAll gives every cluster one verdict; what is there stays as it is.
func (r *Components) setAll(
	c *v1alpha1.Component, before []v1alpha1.ClusterStatus, v plan.Verdict,
) v1alpha1.ComponentStatus {
	s := v1alpha1.ComponentStatus{Revision: c.Status.Revision}
	for _, b := range before {
		b.Phase, b.Reason, b.Message, b.Since = v.Phase, v.Reason, v.Message, nil
		s.Clusters = append(s.Clusters, b)
	}
	if len(before) == 0 {
		return r.refuse(c, v)
	}
	return r.complete(c, s)
}

// refuse is a status without clusters.
func (r *Components) refuse(c *v1alpha1.Component, v plan.Verdict) v1alpha1.ComponentStatus {
	s := v1alpha1.ComponentStatus{Revision: c.Status.Revision, Clusters: c.Status.Clusters}
	return r.render(c, s, plan.Summary{Verdict: v, Ready: fmt.Sprintf("0/%d", len(s.Clusters))})
}

func (r *Components) complete(c *v1alpha1.Component, s v1alpha1.ComponentStatus) v1alpha1.ComponentStatus {
	return r.render(c, s, plan.Summarize(s.Clusters))
}

// render writes what the clusters add up to into a status.
func (r *Components) render(
	c *v1alpha1.Component, s v1alpha1.ComponentStatus, sum plan.Summary,
) v1alpha1.ComponentStatus {
	s.ObservedGeneration = c.Generation
	s.Phase, s.Message, s.Ready = sum.Phase, sum.Message, sum.Ready
	s.Conditions = slices.Clone(c.Status.Conditions)
	ready := metav1.ConditionFalse
	if sum.Phase == v1alpha1.PhaseReady || sum.Phase == v1alpha1.PhaseSkipped {
		ready = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type:               v1alpha1.ConditionReady,
		Status:             ready,
		ObservedGeneration: c.Generation,
		LastTransitionTime: metav1.NewTime(r.Now().Truncate(time.Second)),
		Reason:             sum.Reason,
		Message:            sum.Message,
	})
	return s
}

// writeStatus writes a status that says something else than before, and an Event for every change of its reason.
func (r *Components) writeStatus(ctx context.Context, c *v1alpha1.Component, s v1alpha1.ComponentStatus) error {
	if reflect.DeepEqual(c.Status, s) {
		return nil
	}

	old := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	now := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	changed := old == nil || old.Reason != now.Reason || c.Status.Phase != s.Phase
	c.Status = s
	if err := r.Client.Status().Update(ctx, c); err != nil {
		return err
	}
	if changed {
		kind := corev1.EventTypeNormal
		switch s.Phase {
		case v1alpha1.PhaseFailed, v1alpha1.PhaseRefused, v1alpha1.PhaseDegraded:
			kind = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(c, nil, kind, now.Reason, s.Phase, "%s", ctrlmanager.TruncateNote(s.Phase+": "+s.Message))
	}

	return nil
}

// nextLook is how soon a Component is looked at again: when the first of its clusters needs it.
func (r *Components) nextLook(c *v1alpha1.Component, s v1alpha1.ComponentStatus) time.Duration {
	settings, now := plan.NewSettings(c.Spec), r.Now()
	next := settings.Interval
	if len(s.Clusters) == 0 {
		next = whileWaits
	}
	for _, k := range s.Clusters {
		next = min(next, nextOf(k, settings, now))
	}
	return max(next, time.Second)
}

func nextOf(k v1alpha1.ClusterStatus, s plan.Settings, now time.Time) time.Duration {
	switch {
	case plan.IsInProgress(k.Phase), k.Phase == v1alpha1.PhaseDeleting:
		return soon
	case k.Phase == v1alpha1.PhaseFailed && k.Next != nil:
		return k.Next.Sub(now)
	case k.Phase == v1alpha1.PhaseDegraded:
		return whileSick
	case k.Phase == v1alpha1.PhaseWaiting, k.Phase == v1alpha1.PhaseSkipped:
		return whileWaits
	case k.Checked != nil:
		return k.Checked.Add(s.Interval).Sub(now)
	}
	return s.Interval
}
