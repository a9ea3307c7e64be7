package metal3provider

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Clusters reconciles Metal3Clusters: nothing is set up for a cluster, so it is ready once it has an endpoint.
type Clusters struct{ *Provider }

// Reasons of BaremetalInfrastructureReady.
const reasonEndpoint = "ControlPlaneEndpointFailed"

// Reconcile looks, decides, and writes the status last.
func (r *Clusters) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	c := &v1beta2.Metal3Cluster{}
	if err := r.Reader.Get(ctx, q.NamespacedName, c); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, external := c.Annotations[clusterv1.ManagedByAnnotation]; external {
		return reconcile.Result{}, nil
	}

	before := c.DeepCopy()
	result, err := r.step(ctx, c)
	if writing := r.writeStatus(ctx, before, c); err == nil {
		err = writing
	}
	return afterRace(result, err)
}

func (r *Clusters) step(ctx context.Context, c *v1beta2.Metal3Cluster) (reconcile.Result, error) {
	owner, err := r.ownerCluster(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}

	c.Status.FailureDomains = c.Spec.FailureDomains
	if owner == nil && c.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // Cluster API sets the reference, which is seen
	}

	paused := isPaused(owner, c)
	setCondition(&c.Status.Conditions, c.Generation, pausedVerdict(paused))
	if paused {
		return reconcile.Result{}, nil
	}
	if !c.DeletionTimestamp.IsZero() {
		return r.remove(ctx, c)
	}

	after, err := writeObject(ctx, r.Client, c, func(c *v1beta2.Metal3Cluster) {
		controllerutil.AddFinalizer(c, v1beta2.ClusterFinalizer)
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	c.ObjectMeta = after.ObjectMeta

	why, err := r.claimEndpoint(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}

	v := endpointVerdict(c.Spec.ControlPlaneEndpoint, why)
	setCondition(&c.Status.Conditions, c.Generation, v)
	c.Status.Initialization.Provisioned = ptr.To(v.Holds)
	summarize(&c.Status.Conditions, c.Generation, v1beta2.ConditionInfrastructureReady)

	return reconcile.Result{}, nil
}

// endpointVerdict is all that a Metal3Cluster can lack. why says what keeps its pool from giving an address; "" without
// a pool.
func endpointVerdict(e v1beta2.APIEndpoint, why string) verdict {
	v := verdict{Type: v1beta2.ConditionInfrastructureReady, Holds: true, Reason: v1beta2.ReasonReady}
	if e.Host != "" && e.Port != 0 {
		return v
	}

	v.Holds, v.Reason, v.Message = false, reasonEndpoint, why
	if why == "" {
		v.Message = "spec.controlPlaneEndpoint has no host or no port: name the address at which the nodes of the control " +
			"plane will serve, and that they set up themselves"
	}
	return v
}

// remove waits for the cluster's machines: their hosts are released with what the Metal3Cluster says.
func (r *Clusters) remove(ctx context.Context, c *v1beta2.Metal3Cluster) (reconcile.Result, error) {
	var machines clusterv1.MachineList
	if name := c.Labels[clusterv1.ClusterNameLabel]; name != "" {
		err := r.Client.List(ctx, &machines, client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: name})
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("list Machines of cluster %s: %w", name, err)
		}
	}

	if n := len(machines.Items); n > 0 {
		setCondition(&c.Status.Conditions, c.Generation, verdict{
			Type:    v1beta2.ConditionReady,
			Reason:  v1beta2.ReasonDeleting,
			Message: fmt.Sprintf("it waits for %d Machines to be deleted", n),
		})
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}

	after, err := writeObject(ctx, r.Client, c, func(c *v1beta2.Metal3Cluster) {
		controllerutil.RemoveFinalizer(c, v1beta2.ClusterFinalizer)
	})
	c.ObjectMeta = after.ObjectMeta
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// ownerCluster is the Cluster that a Metal3Cluster belongs to; nil if it has none yet.
func (r *Clusters) ownerCluster(ctx context.Context, c *v1beta2.Metal3Cluster) (*clusterv1.Cluster, error) {
	name := ownerName(c, "Cluster")
	if name == "" {
		return nil, nil
	}
	return r.readCluster(ctx, c.Namespace, name)
}

// readCluster is a Cluster; nil if there is none.
func (p *Provider) readCluster(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", name, err)
	}
	return cluster, nil
}

// ownerName is the name of an object's owner of a kind of Cluster API's core group; "" if it has none.
func ownerName(o metav1.Object, kind string) string {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == kind && groupOf(ref.APIVersion) == clusterv1.GroupVersion.Group {
			return ref.Name
		}
	}
	return ""
}

// isPaused reports whether an object is to be left alone; the Cluster may be nil.
func isPaused(cluster *clusterv1.Cluster, o metav1.Object) bool {
	_, paused := o.GetAnnotations()[clusterv1.PausedAnnotation]
	return paused || cluster != nil && ptr.Deref(cluster.Spec.Paused, false)
}

func (r *Clusters) writeStatus(ctx context.Context, before, c *v1beta2.Metal3Cluster) error {
	if reflect.DeepEqual(before.Status, c.Status) {
		return nil
	}

	base := c.DeepCopy()
	base.Status = before.Status
	now := metav1.NewTime(r.Now())
	c.Status.LastUpdated = &now
	if err := r.Client.Status().Patch(ctx, c, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Metal3Cluster %s: %w", c.Name, err)
	}

	return nil
}
