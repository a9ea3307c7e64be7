package tenants

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// Deployment is where the controller runs; its pods have the label k8s-app with the same name.
var Deployment = client.ObjectKey{Namespace: "kube-system", Name: "firstlight-tenants"}

// stopInterval is the time between two checks whether the controller has ended.
const stopInterval = time.Second

// Remove undoes the add-on, while its definition is still there: it stops the controller, releases the namespaces of all
// Tenants, whatever spec.reclaim says, and lets the Tenants go when their kind goes. No namespace is deleted. Each keeps
// the consent to its Tenant, so that the same Tenants have them again if the add-on is installed again. It may be
// repeated.
func Remove(ctx context.Context, api *rest.Config, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	c, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return remove(ctx, c, log)
}

func remove(ctx context.Context, c client.Client, log *slog.Logger) error {
	if err := stopController(ctx, c); err != nil {
		return err
	}

	by := releaser{c, c}
	namespaces, err := by.listNamespaces(ctx, "")
	if err != nil {
		return err
	}
	for _, n := range namespaces {
		tenant := n.Labels[v1alpha1.LabelTenant]
		if err := by.retain(ctx, &n, map[string]string{v1alpha1.AnnotationAdopt: tenant}); err != nil {
			return err
		}
		log.Info("namespace was released", "tenant", tenant, "namespace", n.Name)
	}

	var all v1alpha1.TenantList
	if err := c.List(ctx, &all); meta.IsNoMatchError(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("list Tenants: %w", err)
	}
	for i := range all.Items {
		if err := patchFinalizers(ctx, c, &all.Items[i], controllerutil.RemoveFinalizer); err != nil {
			return err
		}
	}
	return nil
}

// stopController waits until no pod of the controller is there, which would take the namespaces again.
func stopController(ctx context.Context, c client.Client) error {
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = Deployment.Namespace, Deployment.Name
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := client.IgnoreNotFound(c.SubResource("scale").Patch(ctx, d, none)); err != nil {
		return fmt.Errorf("stop the controller: %w", err)
	}

	for {
		var pods corev1.PodList
		err := c.List(
			ctx, &pods, client.InNamespace(Deployment.Namespace), client.MatchingLabels{"k8s-app": Deployment.Name},
		)
		if err != nil {
			return fmt.Errorf("list pods of the controller: %w", err)
		}
		if len(pods.Items) == 0 {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the controller has ended: %w", ctx.Err())
		case <-time.After(stopInterval):
		}
	}
}
