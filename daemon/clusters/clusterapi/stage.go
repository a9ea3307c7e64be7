package clusterapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const owner = "firstlight-cluster-api" // field manager

// Stage is the fact that Cluster API's managers run as they ought to.
func Stage(authority func() (*ca.Authority, error), api func() (client.Client, error)) bringup.Stage {
	s := &stage{repository: Repository, authority: authority, api: api, cache: &apply.Cache{}}
	return bringup.Stage{
		Name:  "cluster-api-ready",
		Title: "Cluster API starts",
		Fact:  "Cluster API's managers run, and the API server has their kinds and webhooks",
		Why:   "It follows Ready: no node needs it, and its managers' start would take the processors from the first nodes.",
		Done:  s.check,
		Do:    s.apply,

		AfterReady: true,
		Recheck:    30 * time.Second,
	}
}

type stage struct {
	repository string
	authority  func() (*ca.Authority, error)
	api        func() (client.Client, error)
	cache      *apply.Cache

	mu     sync.Mutex
	of     string    // digest of what the outline was made with
	wanted apply.Set // the outline of all objects: what CheckCurrent compares
}

func (s *stage) check(ctx context.Context) error {
	c, err := s.api()
	if err != nil {
		return err
	}

	outline, err := s.outline(c)
	if err != nil {
		return err
	}
	if err := s.cache.CheckCurrent(ctx, outline, c); err != nil {
		return err
	}

	for _, p := range Providers() {
		key := client.ObjectKey{Namespace: p.Namespace, Name: p.Deployment()}
		if err := apply.CheckRolledOut(ctx, c, key, "the pod of "+p.Deployment()); err != nil {
			return err
		}
	}

	return nil
}

// apply writes what is not as wanted. Interrupted anywhere, the next run finds what is left: objects are compared one by
// one.
func (s *stage) apply(ctx context.Context, report bringup.Report) error {
	a, err := s.appliance()
	if err != nil {
		return err
	}

	set, err := a.set()
	if err != nil {
		return err
	}

	c, err := s.api()
	if err != nil {
		return err
	}

	if set, err = set.PlaceFor(c); err != nil {
		return err
	}
	if set = set.StaleSubset(ctx, c); len(set.Objects) == 0 {
		return nil
	}

	report(fmt.Sprintf("applying %d objects of Cluster API", len(set.Objects)))
	return set.Apply(ctx, c)
}

// outline is the set of all objects by their names and digests alone. The objects themselves are megabytes of
// definitions, which nobody needs while all is well.
func (s *stage) outline(c client.Reader) (apply.Set, error) {
	a, err := s.appliance()
	if err != nil {
		return apply.Set{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if of := a.digest(); of != s.of {
		set, err := a.set()
		if err != nil {
			return apply.Set{}, err
		}
		if set, err = set.PlaceFor(c); err != nil {
			return apply.Set{}, err
		}

		s.of, s.wanted = of, set.Outline()
	}

	return s.wanted, nil
}

// appliance has a certificate for each webhook. The authority renews one in time; its pod sees the new Secret, and
// reads it without a restart.
func (s *stage) appliance() (Appliance, error) {
	authority, err := s.authority()
	if err != nil {
		return Appliance{}, err
	}

	a := Appliance{Repository: s.repository, CA: authority.PEM(), Certs: map[string]ca.Pair{}}
	for _, p := range Providers() {
		pair, _, err := authority.Issue(p.service(), p.names())
		if err != nil {
			return Appliance{}, err
		}
		a.Certs[p.Name] = pair
	}

	return a, nil
}

func (a Appliance) set() (apply.Set, error) {
	objects, err := a.Objects()
	if err != nil {
		return apply.Set{}, err
	}
	return apply.New(owner, objects...)
}

// digest tells one set of certificates from another; the manifests are on the stick's read-only root.
func (a Appliance) digest() string {
	h := sha256.New()
	h.Write(a.CA)
	for _, p := range Providers() {
		h.Write(a.Certs[p.Name].Cert)
	}
	return hex.EncodeToString(h.Sum(nil))
}
