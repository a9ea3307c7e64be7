package metal3provider

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/render"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// endpointPort is that of an endpoint of which only a pool is named.
const endpointPort = 6443

// claimEndpoint writes an address of the pool that a Metal3Cluster names as its endpoint. It is claimed once: the claim
// goes with the Metal3Cluster. why says what keeps the pool from giving one.
func (r *Clusters) claimEndpoint(ctx context.Context, c *v1beta2.Metal3Cluster) (why string, err error) {
	from := c.Spec.ControlPlaneEndpointFromPool
	if from == nil || c.Spec.ControlPlaneEndpoint.Host != "" {
		return "", nil
	}

	claim := newEndpointClaim(c)
	err = r.Reader.Get(ctx, key(claim), claim)
	if apierrors.IsNotFound(err) {
		if err := r.Client.Create(ctx, claim); err != nil {
			return "", fmt.Errorf("create IPAddressClaim %s: %w", claim.Name, err)
		}
	} else if err != nil {
		return "", fmt.Errorf("read IPAddressClaim %s: %w", claim.Name, err)
	}

	switch {
	case !metav1.IsControlledBy(claim, c) || !claim.DeletionTimestamp.IsZero():
		return fmt.Sprintf("IPAddressClaim %s is another's, or is being deleted", claim.Name), nil
	case claim.Status.AddressRef.Name == "":
		return fmt.Sprintf("an address of pool %s is not there yet%s", from.Name, claimMessage(claim)), nil
	}

	address := &ipamv1.IPAddress{}
	at := types.NamespacedName{Namespace: c.Namespace, Name: claim.Status.AddressRef.Name}
	if err := r.Reader.Get(ctx, at, address); err != nil {
		return "", fmt.Errorf("read IPAddress %s: %w", at.Name, err)
	}

	after, err := writeObject(ctx, r.Client, c, func(c *v1beta2.Metal3Cluster) {
		c.Spec.ControlPlaneEndpoint = v1beta2.APIEndpoint{Host: address.Spec.Address, Port: endpointPort}
	})
	if err != nil {
		return "", err
	}
	c.ObjectMeta, c.Spec = after.ObjectMeta, after.Spec

	return "", nil
}

// newEndpointClaim asks for the address of an endpoint.
func newEndpointClaim(c *v1beta2.Metal3Cluster) *ipamv1.IPAddressClaim {
	from := c.Spec.ControlPlaneEndpointFromPool
	return &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace,
			Name:      c.Name + "-endpoint",
			Labels:    map[string]string{labelCluster: c.Labels[labelCluster]},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(c, v1beta2.GroupVersion.WithKind("Metal3Cluster")),
			},
		},
		Spec: ipamv1.IPAddressClaimSpec{
			ClusterName: ownerName(c, "Cluster"),
			PoolRef: ipamv1.IPPoolReference{
				APIGroup: cmp.Or(from.APIGroup, render.PoolGroup),
				Kind:     cmp.Or(from.Kind, render.PoolKind),
				Name:     from.Name,
			},
		},
	}
}
