// Package metal3provider is the infrastructure provider of Cluster API for the hosts of this appliance: controllers of
// the kinds in v1beta2 and of IPPool, in the process of the operator of clusters. docs/metal3-provider.md walks through
// it. Nothing is remembered but which host a machine is about to claim; what is decided is decided by the pure packages
// below.
package metal3provider

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

type (
	host    = metal3api.BareMetalHost
	machine = v1beta2.Metal3Machine
)

// Provider is what its controllers share.
type Provider struct {
	Client client.Client // reads from a cache
	Reader client.Reader // the API server itself
	// Workload is the API of a cluster's own, by namespace and name of the Cluster.
	Workload func(ctx context.Context, cluster types.NamespacedName) (client.Client, error)
	Now      func() time.Time
	Log      *slog.Logger

	mu       sync.Mutex
	reserved map[types.NamespacedName]types.NamespacedName // hosts by whose annotation is being written
}

// lookAgain is when something is looked at again if nothing that is watched changes.
const lookAgain = 30 * time.Second

// AddToScheme makes every kind known that the controllers read or write, besides Kubernetes' own.
func AddToScheme(s *runtime.Scheme) error {
	kinds := runtime.NewSchemeBuilder(
		metal3api.AddToScheme, clusterv1.AddToScheme, ipamv1.AddToScheme, v1beta2.AddToScheme, v1alpha1.AddToScheme,
	)
	return kinds.AddToScheme(s)
}

// writeObject writes what change does to the metadata and the spec of o, unless somebody wrote it since o was read:
// then the error is a conflict. The status of o stays as it is in memory.
func writeObject[T client.Object](ctx context.Context, c client.Client, o T, change func(T)) (T, error) {
	after, ok := o.DeepCopyObject().(T)
	if !ok {
		return o, fmt.Errorf("copy %T", o)
	}
	change(after)
	if reflect.DeepEqual(o, after) {
		return o, nil
	}

	patch := client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, after, patch); err != nil {
		return o, fmt.Errorf("write %s: %w", o.GetName(), err)
	}

	return after, nil
}

// writeHost is writeObject for a host.
func (p *Provider) writeHost(ctx context.Context, h *host, change func(*host)) (*host, error) {
	after, err := writeObject(ctx, p.Client, h, change)
	if err != nil {
		return h, fmt.Errorf("host %s: %w", h.Name, err)
	}
	return after, nil
}

// readHost reads a host from the API server itself; nil if there is none.
func (p *Provider) readHost(ctx context.Context, namespace, name string) (*host, error) {
	h := &host{}
	err := p.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, h)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read host %s: %w", name, err)
	}
	return h, nil
}

// isRace reports whether an error only says that somebody else was quicker: all is looked at again.
func isRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// afterRace is the answer of a controller to an error: a race is no failure.
func afterRace(result reconcile.Result, err error) (reconcile.Result, error) {
	if err != nil && isRace(err) {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return result, err
}
