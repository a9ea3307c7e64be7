package operator

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// mapToCluster requests the objects of the list's kind that name the cluster whose Provisioning changed.
func mapToCluster(c client.Reader, list client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		all, _ := list.DeepCopyObject().(client.ObjectList)
		if err := c.List(ctx, all, client.InNamespace(o.GetNamespace())); err != nil {
			return nil
		}

		cluster := v1alpha1.ClusterOf(o)
		var out []reconcile.Request
		_ = meta.EachListItem(all, func(item runtime.Object) error {
			if of, ok := item.(client.Object); ok && v1alpha1.ClusterOf(of) == cluster {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(of)})
			}
			return nil
		})
		return out
	}
}
