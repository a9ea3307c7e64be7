package metal3provider

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/pool"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/providerid"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/render"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Datas reconciles Metal3Data: each gets an address of every pool that its template names, and becomes Secrets.
type Datas struct{ *Provider }

// secretType of what is rendered.
const secretType = "infrastructure.cluster.x-k8s.io/secret"

// errNotYet says that something is waited for that comes without anybody's doing.
var errNotYet = errors.New("not there yet")

// Reconcile renders, and writes the status last.
func (r *Datas) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	d := &v1beta2.Metal3Data{}
	if err := r.Reader.Get(ctx, q.NamespacedName, d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	cluster, err := r.readCluster(ctx, d.Namespace, d.Labels[labelCluster])
	if err != nil || isPaused(cluster, d) {
		return reconcile.Result{RequeueAfter: lookAgain}, err
	}
	if !d.DeletionTimestamp.IsZero() {
		return afterRace(reconcile.Result{RequeueAfter: lookAgain}, r.remove(ctx, d))
	}
	if ptr.Deref(d.Status.Ready, false) {
		return reconcile.Result{}, nil // it stays as it was rendered: a machine that is installed again gets the same
	}

	before := d.DeepCopy()
	err = r.make(ctx, d)
	d.Status.Ready, d.Status.ErrorMessage = ptr.To(err == nil), ""
	var refused renderError
	switch {
	case errors.As(err, &refused):
		d.Status.ErrorMessage, err = refused.Error(), nil
	case errors.Is(err, errNotYet):
		d.Status.ErrorMessage, err = err.Error(), nil
	}
	if !reflect.DeepEqual(before.Status, d.Status) {
		base := d.DeepCopy()
		base.Status = before.Status
		if writing := r.Client.Status().Patch(ctx, d, client.MergeFrom(base)); err == nil {
			err = writing
		}
	}
	if ptr.Deref(d.Status.Ready, false) {
		return afterRace(reconcile.Result{}, err)
	}
	return afterRace(reconcile.Result{RequeueAfter: lookAgain}, err)
}

// renderError is what is wrong with a template, or with what it refers to.
type renderError struct{ error }

func (r *Datas) make(ctx context.Context, d *v1beta2.Metal3Data) error {
	t := &v1beta2.Metal3DataTemplate{}
	if err := r.find(ctx, "Metal3DataTemplate", d.Namespace, d.Spec.Template.Name, t); err != nil {
		return err
	}
	in, err := r.input(ctx, d)
	if err != nil {
		return err
	}
	pools, err := render.Pools(t.Spec, in)
	if err != nil {
		return renderError{err}
	}
	if in.Addresses, err = r.addresses(ctx, d, pools); err != nil {
		return err
	}

	var metaData, networkData *corev1.SecretReference
	if t.Spec.MetaData != nil {
		text, err := render.MetaData(t.Spec.MetaData, in)
		if err != nil {
			return renderError{err}
		}
		if metaData, err = r.makeSecret(ctx, d, suffixMetaData, "metaData", text); err != nil {
			return err
		}
	}
	if t.Spec.NetworkData != nil {
		text, err := render.NetworkData(t.Spec.NetworkData, in)
		if err != nil {
			return renderError{err}
		}
		if networkData, err = r.makeSecret(ctx, d, suffixNetworkData, "networkData", text); err != nil {
			return err
		}
	}

	status := d.Status
	after, err := writeObject(ctx, r.Client, d, func(d *v1beta2.Metal3Data) {
		d.Spec.MetaData, d.Spec.NetworkData = metaData, networkData
	})
	if err != nil {
		return err
	}
	*d = *after
	d.Status = status
	return nil
}

// find reads an object that data depends on.
func (r *Datas) find(ctx context.Context, kind, namespace, name string, o client.Object) error {
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %s is %w", kind, name, errNotYet)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return nil
}

// input are the objects that data is rendered from, without its addresses.
func (r *Datas) input(ctx context.Context, d *v1beta2.Metal3Data) (render.Input, error) {
	m, owner, h := &machine{}, &clusterv1.Machine{}, &host{}
	if err := r.find(ctx, "Metal3Machine", d.Namespace, d.Spec.Claim.Name, m); err != nil {
		return render.Input{}, err
	}
	if err := r.find(ctx, "Machine", d.Namespace, ownerName(m, "Machine"), owner); err != nil {
		return render.Input{}, err
	}
	if err := r.find(ctx, "host", d.Namespace, hostName(m), h); err != nil {
		return render.Input{}, err
	}

	id := providerid.Machine{Namespace: m.Namespace, Host: h.Name, Name: m.Name}
	return render.Input{
		Namespace:  d.Namespace,
		Index:      d.Spec.Index,
		Machine:    owner,
		Metal3:     m,
		Host:       h,
		ProviderID: id.MetaData(),
	}, nil
}

// addresses are what the data has from its pools. What is missing is asked for; then the error is errNotYet.
func (r *Datas) addresses(ctx context.Context, d *v1beta2.Metal3Data, pools []render.Pool) (map[render.Pool]render.Address, error) {
	all := map[render.Pool]render.Address{}
	var waiting error
	for _, p := range pools {
		a, err := r.address(ctx, d, p)
		if errors.Is(err, errNotYet) {
			waiting = err
			continue
		}
		if err != nil {
			return nil, err
		}
		all[p] = a
	}
	return all, waiting
}

func (r *Datas) address(ctx context.Context, d *v1beta2.Metal3Data, p render.Pool) (render.Address, error) {
	claim := &ipamv1.IPAddressClaim{}
	name := d.Name + "-" + p.Name
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: name}, claim)
	if apierrors.IsNotFound(err) {
		claim = newAddressClaim(d, p, name)
		if err := r.Client.Create(ctx, claim); err != nil {
			return render.Address{}, fmt.Errorf("create IPAddressClaim %s: %w", name, err)
		}
	} else if err != nil {
		return render.Address{}, fmt.Errorf("read IPAddressClaim %s: %w", name, err)
	}
	if !metav1.IsControlledBy(claim, d) || !claim.DeletionTimestamp.IsZero() {
		return render.Address{}, fmt.Errorf("IPAddressClaim %s is another's; this one's is %w", name, errNotYet)
	}
	if claim.Status.AddressRef.Name == "" {
		return render.Address{}, fmt.Errorf("an address of %s %s is %w%s", p.Kind, p.Name, errNotYet, claimMessage(claim))
	}

	address := &ipamv1.IPAddress{}
	if err := r.find(ctx, "IPAddress", d.Namespace, claim.Status.AddressRef.Name, address); err != nil {
		return render.Address{}, err
	}
	out := render.Address{
		Address: address.Spec.Address,
		Prefix:  ptr.Deref(address.Spec.Prefix, 0),
		Gateway: address.Spec.Gateway,
	}
	if p.APIGroup == render.PoolGroup && p.Kind == render.PoolKind {
		of := &v1alpha1.IPPool{}
		if err := r.find(ctx, "IPPool", d.Namespace, p.Name, of); err != nil {
			return render.Address{}, err
		}
		out.DNSServers = pool.DNSServers(of.Spec, out.Address)
	}
	return out, nil
}

// claimMessage is why a claim has no address, if whoever has the pool says so.
func claimMessage(c *ipamv1.IPAddressClaim) string {
	for _, condition := range c.Status.Conditions {
		if condition.Type == v1beta2.ConditionReady && condition.Message != "" {
			return ": " + condition.Message
		}
	}
	return ""
}

func newAddressClaim(d *v1beta2.Metal3Data, p render.Pool, name string) *ipamv1.IPAddressClaim {
	return &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace,
			Name:      name,
			Labels:    d.Labels,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, v1beta2.GroupVersion.WithKind("Metal3Data")),
			},
		},
		Spec: ipamv1.IPAddressClaimSpec{
			ClusterName: d.Labels[labelCluster],
			PoolRef:     ipamv1.IPPoolReference{APIGroup: p.APIGroup, Kind: p.Kind, Name: p.Name},
		},
	}
}

// makeSecret writes what was rendered. A Secret that this data made before stays as it is.
func (r *Datas) makeSecret(
	ctx context.Context, d *v1beta2.Metal3Data, suffix, dataKey string, text []byte,
) (*corev1.SecretReference, error) {
	name := d.Spec.Claim.Name + suffix
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace,
			Name:      name,
			Labels:    map[string]string{labelCluster: d.Labels[labelCluster]},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, v1beta2.GroupVersion.WithKind("Metal3Data")),
			},
		},
		Type: secretType,
		Data: map[string][]byte{dataKey: text},
	}
	err := r.Client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		had := &corev1.Secret{}
		if err := r.Reader.Get(ctx, key(secret), had); err != nil {
			return nil, fmt.Errorf("read Secret %s: %w", name, err)
		}
		if !metav1.IsControlledBy(had, d) {
			return nil, fmt.Errorf("Secret %s is of an earlier machine; this one's is %w", name, errNotYet)
		}
	} else if err != nil {
		return nil, fmt.Errorf("create Secret %s: %w", name, err)
	}
	return secretRef(d.Namespace, name), nil
}

// remove waits until the claim is gone, and gives the addresses back.
func (r *Datas) remove(ctx context.Context, d *v1beta2.Metal3Data) error {
	claim := &v1beta2.Metal3DataClaim{}
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: d.Namespace, Name: d.Spec.Claim.Name}, claim)
	if err == nil && metav1.IsControlledBy(d, claim) {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Metal3DataClaim %s: %w", d.Spec.Claim.Name, err)
	}

	var claims ipamv1.IPAddressClaimList
	if err := r.Reader.List(ctx, &claims, client.InNamespace(d.Namespace)); err != nil {
		return fmt.Errorf("list IPAddressClaims: %w", err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		if !metav1.IsControlledBy(c, d) || !c.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, c); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete IPAddressClaim %s: %w", c.Name, err)
		}
	}

	_, err = writeObject(ctx, r.Client, d, func(d *v1beta2.Metal3Data) {
		controllerutil.RemoveFinalizer(d, v1beta2.DataFinalizer)
	})
	return client.IgnoreNotFound(err)
}
