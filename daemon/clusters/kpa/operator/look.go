package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/clusters/kpa/engine"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// ignoreRace passes over errors that only say that someone else was quicker: all is looked at again.
func ignoreRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// load reads a Component's source.
func (r *Components) load(_ context.Context, c *v1alpha1.Component) (engine.Content, error) {
	if err := engine.CheckSyntax(c.Spec.HealthExpr); err != nil {
		return engine.Content{}, err
	}

	switch s := c.Spec.Source; {
	case s.Inline != "":
		return engine.NewContent([]byte(s.Inline))
	case s.Folder != "":
		return r.loadFolder(s.Folder)
	case s.Bundle != nil:
		owner := cmp.Or(s.Bundle.Owner, c.Namespace)
		if owner != c.Namespace && c.Namespace != siteNamespace {
			return engine.Content{}, refuseSource(
				"spec.source.bundle.owner: only Components of the namespace %s may name another owner", siteNamespace,
			)
		}
		return engine.ReadBundle(r.Config.Bundles, owner, *s.Bundle)
	}
	return engine.Content{}, refuseSource("spec.source is empty")
}

// loadFolder reads a folder that was brought to the appliance, else the stick's add-on of that name.
func (r *Components) loadFolder(name string) (engine.Content, error) {
	text, ok, err := builtin.Read(name)
	if err != nil {
		return engine.Content{}, err
	}
	if !ok || engine.HasFolder(r.Config.Folder, name) {
		return engine.ReadFolder(r.Config.Folder, name)
	}
	return engine.NewContent(text)
}

func refuseSource(format string, args ...any) error {
	return &engine.Fault{Verdict: plan.Verdict{
		Phase: v1alpha1.PhaseRefused, Reason: plan.ReasonSourceRefused, Message: fmt.Sprintf(format, args...),
	}}
}

// look takes a Component one step further on one cluster.
func (r *Components) look(
	ctx context.Context, c *v1alpha1.Component, all []v1alpha1.Component, content engine.Content,
	before v1alpha1.ClusterStatus,
) v1alpha1.ClusterStatus {
	settings := plan.NewSettings(c.Spec)
	now := r.Now()
	edited := c.Status.ObservedGeneration != c.Generation
	s, ok := plan.Begin(before, settings, content.Revision, edited, now)
	if !ok {
		return s
	}

	isNew := s.Applied != content.Revision
	if isNew || edited {
		if v := plan.CheckDependencies(dependenciesOf(c, all, s.Name)); v != nil {
			return plan.Conclude(s, settings, *v, now)
		}
	}
	if isNew && content.Bundle != nil {
		owner, err := r.findOwner(ctx, c.Namespace, s.Name)
		if err != nil {
			return conclude(s, settings, engine.VerdictOf(err), now)
		}
		if v := content.CheckImages(s.Name, owner); v != nil {
			return plan.Conclude(s, settings, *v, now)
		}
	}

	target, _, err := r.connect(ctx, c.Namespace, s.Name)
	if err != nil {
		return conclude(s, settings, engine.VerdictOf(err), r.Now())
	}

	step := step{
		Components: r,
		c:          c,
		id:         engine.ID{Namespace: c.Namespace, Name: c.Name},
		target:     target,
		content:    content,
		settings:   settings,
		status:     &s,
		due:        isNew || edited || isDue(s, settings, now),
	}
	v, err := step.run(ctx)
	if err != nil {
		v = engine.VerdictOf(err)
	}

	return conclude(s, settings, v, r.Now())
}

// conclude keeps what was ready Ready, or Degraded, while its cluster does not answer: the cluster is to blame.
func conclude(s v1alpha1.ClusterStatus, settings plan.Settings, v plan.Verdict, now time.Time) v1alpha1.ClusterStatus {
	wasReady := s.Phase == v1alpha1.PhaseReady || s.Phase == v1alpha1.PhaseDegraded
	if wasReady && v.Reason == plan.ReasonClusterSilent {
		v.Phase = v1alpha1.PhaseDegraded
	}
	return plan.Conclude(s, settings, v, now)
}

// isDue reports whether all is applied again: at the start of an attempt, and each interval against drift.
func isDue(s v1alpha1.ClusterStatus, settings plan.Settings, now time.Time) bool {
	switch s.Phase {
	case v1alpha1.PhaseHealth, v1alpha1.PhaseTesting, v1alpha1.PhaseReady, v1alpha1.PhaseDegraded:
		return s.Checked == nil || now.Sub(s.Checked.Time) >= settings.Interval-time.Second
	}
	return true
}

// dependenciesOf is how those that a Component depends on stand on a cluster.
func dependenciesOf(c *v1alpha1.Component, all []v1alpha1.Component, cluster string) []plan.Dependency {
	var out []plan.Dependency
	for _, d := range c.Spec.DependsOn {
		i := slices.IndexFunc(all, func(o v1alpha1.Component) bool { return o.Name == d.Name })
		if i < 0 {
			out = append(out, plan.Dependency{Name: d.Name})
			continue
		}

		o := &all[i]
		dependency := plan.Dependency{
			Name:      d.Name,
			Exists:    true,
			Current:   o.Status.ObservedGeneration == o.Generation && o.DeletionTimestamp.IsZero(),
			Phase:     o.Status.Phase,
			OrSkipped: d.OrSkipped,
		}
		for _, s := range o.Status.Clusters {
			if s.Name == cluster {
				dependency.Phase = s.Phase
			}
		}
		out = append(out, dependency)
	}

	return out
}

// step is one look at one cluster.
type step struct {
	*Components
	c        *v1alpha1.Component
	id       engine.ID
	target   *engine.Target
	content  engine.Content
	settings plan.Settings
	status   *v1alpha1.ClusterStatus
	due      bool // all is applied
}

func (s *step) namespace() string {
	switch {
	case s.c.Spec.TargetNamespace != "":
		return s.c.Spec.TargetNamespace
	case s.content.Bundle != nil:
		return s.content.Bundle.Namespace
	}
	return metav1.NamespaceDefault
}

// run applies what is due, then looks whether it is healthy, then tests it.
func (s *step) run(ctx context.Context) (plan.Verdict, error) {
	if q := s.c.Spec.Requires; q != nil && s.due {
		there, err := s.target.HasNode(ctx, q.NodeLabels)
		if err != nil {
			return plan.Verdict{}, err
		}
		if !there {
			return skipOrWait(q), nil
		}
	}

	if s.due {
		if err := s.apply(ctx); err != nil {
			return plan.Verdict{}, err
		}
	}

	health, err := s.target.Check(ctx, s.id)
	if err != nil {
		return plan.Verdict{}, err
	}
	if len(health.Missing) > 0 && !s.due {
		if err := s.apply(ctx); err != nil { // drift that cannot wait
			return plan.Verdict{}, err
		}
		if health, err = s.target.Check(ctx, s.id); err != nil {
			return plan.Verdict{}, err
		}
	}

	s.status.Objects = health.Objects()
	if v := health.Verdict(); v != nil {
		return *v, nil
	}
	if v, err := s.target.CheckExprs(ctx, s.c.Spec.HealthExpr); v != nil || err != nil {
		return valueOf(v), err
	}
	if err := s.target.Finish(ctx, s.id, s.namespace(), s.content, s.options()); err != nil {
		return plan.Verdict{}, err
	}
	if v, err := s.test(ctx); v != nil || err != nil {
		return valueOf(v), err
	}

	return plan.Verdict{
		Phase: v1alpha1.PhaseReady, Reason: plan.ReasonReady,
		Message: fmt.Sprintf("installed and healthy, %s objects", health.Objects()),
	}, nil
}

func valueOf(v *plan.Verdict) plan.Verdict {
	if v == nil {
		return plan.Verdict{}
	}
	return *v
}

func skipOrWait(q *v1alpha1.Requires) plan.Verdict {
	labels := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: q.NodeLabels})
	v := plan.Verdict{
		Phase: v1alpha1.PhaseSkipped, Reason: plan.ReasonRequirements,
		Message: "no node has the labels " + labels,
	}
	if q.OnMissing == v1alpha1.OnMissingWait {
		v.Phase = v1alpha1.PhaseWaiting
	}
	return v
}

func (s *step) options() engine.Options {
	return engine.Options{
		Prune:     s.c.Spec.Prune == nil || *s.c.Spec.Prune,
		Force:     s.c.Spec.Force,
		NoHooks:   s.c.Annotations[v1alpha1.AnnotationNoHooks] == "true",
		RetryHook: s.status.Reason == plan.ReasonHookFailed, // which ended the attempt before
	}
}

// apply writes the objects, and notes in the status that it did.
func (s *step) apply(ctx context.Context) error {
	if s.c.Spec.SelfTest != nil && s.status.Reason == plan.ReasonTestFailed {
		if err := s.target.ForgetTest(ctx, s.id, s.namespace()); err != nil {
			return err
		}
	}

	err := s.target.Apply(ctx, s.id, s.namespace(), s.content, s.options())
	var fault *engine.Fault
	if err != nil && !(errors.As(err, &fault) && fault.Reason == plan.ReasonPruning) {
		return err
	}
	checked := metav1.NewTime(s.Now().Truncate(time.Second))
	s.status.Applied, s.status.Checked = s.content.Revision, &checked
	return err
}

// test runs the Component's own test, once for each revision. It is nil if it has passed.
func (s *step) test(ctx context.Context) (*plan.Verdict, error) {
	if s.c.Spec.SelfTest == nil || s.status.Tested == s.content.Revision {
		return nil, nil
	}

	v, err := s.target.SelfTest(ctx, s.id, s.namespace(), s.content.Revision, *s.c.Spec.SelfTest)
	if v == nil && err == nil {
		s.status.Tested = s.content.Revision
	}
	return v, err
}
