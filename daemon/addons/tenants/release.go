package tenants

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// releaser takes namespaces from tenants. It reads without a cache: what it does not see is left behind.
type releaser struct {
	client client.Client
	reader client.Reader
}

// listNamespaces are those with a tenant's label; tenant "" is any of them.
func (r releaser) listNamespaces(ctx context.Context, tenant string) ([]corev1.Namespace, error) {
	var list corev1.NamespaceList
	var option client.ListOption = client.HasLabels{v1alpha1.LabelTenant}
	if tenant != "" {
		option = client.MatchingLabels{v1alpha1.LabelTenant: tenant}
	}
	if err := r.reader.List(ctx, &list, option); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return list.Items, nil
}

// reclaim does with a namespace what its Tenant says. It is true when the namespace is the Tenant's no longer.
func (r releaser) reclaim(ctx context.Context, n *corev1.Namespace, policy v1alpha1.Reclaim) (bool, error) {
	switch {
	case !n.DeletionTimestamp.IsZero():
		return false, nil
	case policy != v1alpha1.Delete:
		return true, r.retain(ctx, n, nil)
	}

	uid, version := n.UID, n.ResourceVersion
	err := r.client.Delete(ctx, n, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete namespace %s: %w", n.Name, err)
	}
	return false, nil // it is gone when its contents are
}

// retain takes from a namespace what a tenant has in it, then the label, which is the record of that: whatever is
// interrupted is found again. The level of Pod Security stays, as no level would allow more. Annotations are set with the
// last step.
func (r releaser) retain(ctx context.Context, n *corev1.Namespace, annotations map[string]string) error {
	all, err := listOwn(ctx, r.reader, n.Name)
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := deleteObject(ctx, r.client, o); err != nil {
			return err
		}
	}

	change := map[string]any{
		"resourceVersion": n.ResourceVersion, // the very namespace that was read
		"labels":          map[string]any{v1alpha1.LabelTenant: nil, v1alpha1.LabelIsolated: nil},
	}
	if len(annotations) > 0 {
		change["annotations"] = annotations
	}
	text, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode namespace %s: %w", n.Name, err)
	}
	err = r.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, text), client.FieldOwner(FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("release namespace %s: %w", n.Name, err)
	}
	return nil
}
