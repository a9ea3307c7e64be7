package metal3provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/pool"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/render"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Pools reconciles IPPools: each IPAddressClaim of Cluster API that names one gets an IPAddress of its own name. What is
// in use is found again from the IPAddresses each time.
type Pools struct{ *Provider }

// Reconcile serves the claims of a pool one after another. A pool that is gone still gives back.
func (r *Pools) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.IPPool{}
	err := r.Reader.Get(ctx, q.NamespacedName, p)
	if apierrors.IsNotFound(err) {
		p = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("read IPPool %s: %w", q.Name, err)
	}
	if p != nil {
		cluster, err := r.readCluster(ctx, q.Namespace, ptr.Deref(p.Spec.ClusterName, ""))
		if err != nil || isPaused(cluster, p) {
			return reconcile.Result{RequeueAfter: lookAgain}, err
		}
	}

	var claims ipamv1.IPAddressClaimList
	var addresses ipamv1.IPAddressList
	for _, list := range []client.ObjectList{&claims, &addresses} {
		if err := r.Reader.List(ctx, list, client.InNamespace(q.Namespace)); err != nil {
			return reconcile.Result{}, fmt.Errorf("list claims and addresses of pool %s: %w", q.Name, err)
		}
	}
	claims.Items = slices.DeleteFunc(claims.Items, func(c ipamv1.IPAddressClaim) bool { return !isOfPool(c.Spec.PoolRef, q.Name) })
	addresses.Items = slices.DeleteFunc(addresses.Items, func(a ipamv1.IPAddress) bool { return !isOfPool(a.Spec.PoolRef, q.Name) })

	exhausted, err := r.serve(ctx, p, claims.Items, addresses.Items)
	if exhausted {
		return afterRace(reconcile.Result{RequeueAfter: lookAgain}, err)
	}
	return afterRace(reconcile.Result{}, err)
}

func isOfPool(ref ipamv1.IPPoolReference, name string) bool {
	return ref.APIGroup == render.PoolGroup && ref.Kind == render.PoolKind && ref.Name == name
}

// serve reports whether a claim got no address.
func (r *Pools) serve(
	ctx context.Context, p *v1alpha1.IPPool, claims []ipamv1.IPAddressClaim, addresses []ipamv1.IPAddress,
) (failed bool, err error) {
	used := map[string]netip.Addr{}
	for i := range addresses {
		if a, err := netip.ParseAddr(addresses[i].Spec.Address); err == nil {
			used[addresses[i].Spec.ClaimRef.Name] = a
		}
	}
	if p != nil {
		inUse := len(used)+len(claims) > 0
		after, err := writeObject(ctx, r.Client, p, func(p *v1alpha1.IPPool) {
			if inUse && p.DeletionTimestamp.IsZero() {
				controllerutil.AddFinalizer(p, v1alpha1.PoolFinalizer)
			}
			if !inUse {
				controllerutil.RemoveFinalizer(p, v1alpha1.PoolFinalizer)
			}
		})
		if err != nil || !inUse && !p.DeletionTimestamp.IsZero() {
			return false, client.IgnoreNotFound(err)
		}
		p.ObjectMeta = after.ObjectMeta
	}

	slices.SortFunc(claims, func(a, b ipamv1.IPAddressClaim) int { return strings.Compare(a.Name, b.Name) })
	for i := range claims {
		c := &claims[i]
		switch {
		case !c.DeletionTimestamp.IsZero():
			if err := r.release(ctx, c); err != nil {
				return failed, err
			}
			delete(used, c.Name)
		case p != nil && p.DeletionTimestamp.IsZero():
			got, err := r.fulfil(ctx, p, c, used)
			if err != nil {
				return failed, err
			}
			failed = failed || !got
		}
	}
	if p == nil {
		return failed, nil
	}

	return failed, r.writeAllocations(ctx, p, used)
}

// fulfil gives a claim its address; false if there is none, which the claim's condition says. One bad claim keeps no
// other waiting.
func (r *Pools) fulfil(
	ctx context.Context, p *v1alpha1.IPPool, c *ipamv1.IPAddressClaim, used map[string]netip.Addr,
) (bool, error) {
	got, err := pool.Allocate(p.Spec, c.Name, c.Annotations[v1alpha1.AnnotationAddress], used)
	if err != nil {
		reason := "Invalid"
		if errors.Is(err, pool.ErrExhausted) {
			reason = "PoolExhausted"
		}
		return false, r.writeClaim(ctx, c, "", verdict{Type: v1beta2.ConditionReady, Reason: reason, Message: err.Error()})
	}

	after, err := writeObject(ctx, r.Client, c, func(c *ipamv1.IPAddressClaim) {
		controllerutil.AddFinalizer(c, v1alpha1.ClaimFinalizer)
	})
	if err != nil {
		return false, err
	}
	c.ObjectMeta = after.ObjectMeta
	if _, had := used[c.Name]; !had {
		if err := r.Client.Create(ctx, newAddress(p, c, got)); err != nil {
			return false, fmt.Errorf("create IPAddress %s: %w", c.Name, err)
		}
		used[c.Name] = got.Address
	}

	return true, r.writeClaim(ctx, c, c.Name, verdict{Type: v1beta2.ConditionReady, Holds: true, Reason: "Allocated"})
}

func (r *Pools) writeClaim(ctx context.Context, c *ipamv1.IPAddressClaim, address string, v verdict) error {
	before := c.DeepCopy()
	setCondition(&c.Status.Conditions, c.Generation, v)
	c.Status.AddressRef.Name = address
	patch := client.MergeFrom(before)
	if text, err := patch.Data(c); err != nil || string(text) == "{}" {
		return err
	}
	if err := r.Client.Status().Patch(ctx, c, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of IPAddressClaim %s: %w", c.Name, err)
	}
	return nil
}

func newAddress(p *v1alpha1.IPPool, c *ipamv1.IPAddressClaim, got pool.Address) *ipamv1.IPAddress {
	claim := metav1.NewControllerRef(c, ipamv1.GroupVersion.WithKind("IPAddressClaim"))
	of := metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind(render.PoolKind))
	of.Controller = ptr.To(false)
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       c.Namespace,
			Name:            c.Name,
			Labels:          c.Labels,
			Finalizers:      []string{v1alpha1.AddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{*claim, *of},
		},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: c.Name},
			PoolRef:  c.Spec.PoolRef,
			Address:  got.Address.String(),
			Prefix:   ptr.To(got.Prefix),
			Gateway:  got.Gateway,
		},
	}
}

// release deletes the address of a claim that is deleted, and lets the claim go.
func (r *Pools) release(ctx context.Context, c *ipamv1.IPAddressClaim) error {
	a := &ipamv1.IPAddress{}
	err := r.Reader.Get(ctx, key(c), a)
	if err == nil {
		var after *ipamv1.IPAddress
		after, err = writeObject(ctx, r.Client, a, func(a *ipamv1.IPAddress) {
			controllerutil.RemoveFinalizer(a, v1alpha1.AddressFinalizer)
		})
		if err == nil && after.DeletionTimestamp.IsZero() {
			err = r.Client.Delete(ctx, after)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release IPAddress %s: %w", c.Name, err)
	}

	_, err = writeObject(ctx, r.Client, c, func(c *ipamv1.IPAddressClaim) {
		controllerutil.RemoveFinalizer(c, v1alpha1.ClaimFinalizer)
	})
	return client.IgnoreNotFound(err)
}

func (r *Pools) writeAllocations(ctx context.Context, p *v1alpha1.IPPool, used map[string]netip.Addr) error {
	all := map[string]string{}
	for claim, a := range used {
		all[claim] = a.String()
	}
	if maps.Equal(all, p.Status.Allocations) {
		return nil
	}

	before := p.DeepCopy()
	now := metav1.NewTime(r.Now())
	p.Status.Allocations, p.Status.LastUpdated = all, &now
	if err := r.Client.Status().Patch(ctx, p, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of IPPool %s: %w", p.Name, err)
	}
	return nil
}
