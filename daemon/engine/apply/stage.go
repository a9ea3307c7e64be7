package apply

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// Stage is the fact that objects are in the API as they are wanted, and that what they ask for runs.
type Stage struct {
	Name, Title, Fact, Why string // as of bringup.Stage

	Owner   string                          // field manager
	Objects func() ([]client.Object, error) // asked at every look: an edited site is a difference like any other
	API     func() (client.Client, error)

	Doing     string                                           // what is reported while they are applied
	StaleOnly bool                                             // leave those alone that are current: people may change them
	Prepare   func() error                                     // done before they are applied; nil: nothing
	Ready     func(ctx context.Context, c client.Client) error // nil if what they ask for runs; nil: not asked
}

// Bringup returns the stage as a part of a plan. It looks at the objects again after CacheTTL only, at Ready every
// half minute.
func (s Stage) Bringup() bringup.Stage {
	cache := &Cache{}
	return bringup.Stage{
		Name:    s.Name,
		Title:   s.Title,
		Fact:    s.Fact,
		Why:     s.Why,
		Done:    func(ctx context.Context) error { return s.check(ctx, cache) },
		Do:      s.apply,
		Recheck: 30 * time.Second,
	}
}

func (s Stage) check(ctx context.Context, cache *Cache) error {
	set, c, err := s.setAndClient()
	if err != nil {
		return err
	}
	if err := cache.CheckCurrent(ctx, set, c); err != nil || s.Ready == nil {
		return err
	}

	return s.Ready(ctx, c)
}

func (s Stage) apply(ctx context.Context, report bringup.Report) error {
	set, c, err := s.setAndClient()
	if err != nil {
		return err
	}

	if s.StaleOnly {
		set = set.StaleSubset(ctx, c)
	}

	if len(set.Objects) == 0 {
		return nil
	}

	if s.Prepare != nil {
		if err := s.Prepare(); err != nil {
			return err
		}
	}

	report(s.Doing)
	return set.Apply(ctx, c)
}

func (s Stage) setAndClient() (Set, client.Client, error) {
	objects, err := s.Objects()
	if err != nil {
		return Set{}, nil, err
	}

	set, err := New(s.Owner, objects...)
	if err != nil {
		return Set{}, nil, err
	}

	c, err := s.API()
	if err != nil {
		return Set{}, nil, err
	}

	set, err = set.PlaceFor(c)
	return set, c, err
}

// CheckRolledOut is nil if a deployment's pods are those that it describes now, and one of them is ready. what is it,
// for people.
func CheckRolledOut(ctx context.Context, c client.Reader, deployment client.ObjectKey, what string) error {
	var d appsv1.Deployment
	if err := c.Get(ctx, deployment, &d); err != nil {
		return fmt.Errorf("read deployment %s: %w", deployment.Name, err)
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas == 0 || d.Status.AvailableReplicas == 0 {
		return bringup.Wait("%s to be ready", what)
	}

	return nil
}
