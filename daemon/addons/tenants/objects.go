package tenants

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// FieldManager has the fields that the controller writes.
const FieldManager = "firstlight-tenants"

// newKinds is an empty object of each kind that a tenant has in its namespaces, in the order of release: who may use
// them first.
func newKinds() []client.Object {
	return []client.Object{
		&rbacv1.RoleBinding{},
		&corev1.LimitRange{},
		&corev1.ResourceQuota{},
		&networkingv1.NetworkPolicy{},
	}
}

func newLists() []client.ObjectList {
	return []client.ObjectList{
		&rbacv1.RoleBindingList{},
		&corev1.LimitRangeList{},
		&corev1.ResourceQuotaList{},
		&networkingv1.NetworkPolicyList{},
	}
}

// listOwn are the objects of tenants in a namespace.
func listOwn(ctx context.Context, c client.Reader, namespace string) ([]client.Object, error) {
	var all []client.Object
	for _, list := range newLists() {
		err := c.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelTenant})
		if err != nil {
			return nil, fmt.Errorf("list objects of namespace %s: %w", namespace, err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// listOpenings are the names of the NetworkPolicies of a namespace that are not the Tenant's. What they allow is allowed,
// whatever isolation says.
func listOpenings(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	var list networkingv1.NetworkPolicyList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list NetworkPolicies of namespace %s: %w", namespace, err)
	}

	var names []string
	for _, p := range list.Items {
		if _, labeled := p.Labels[v1alpha1.LabelTenant]; !labeled {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

// isSame reports whether two objects are of one kind and have one name.
func isSame(a, b client.Object) bool {
	return fmt.Sprintf("%T", a) == fmt.Sprintf("%T", b) && client.ObjectKeyFromObject(a) == client.ObjectKeyFromObject(b)
}

func contains(all []client.Object, o client.Object) bool {
	return slices.ContainsFunc(all, func(other client.Object) bool { return isSame(other, o) })
}

// apply writes an object by server-side apply. What of its fields others have is taken from them.
func apply(ctx context.Context, c client.Client, o client.Object) error {
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(o), err)
	}

	u := &unstructured.Unstructured{Object: text}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
}

// deleteObject deletes the very object that was read. One that is gone is no error.
func deleteObject(ctx context.Context, c client.Client, o client.Object) error {
	uid := o.GetUID()
	err := c.Delete(ctx, o, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", describe(o), err)
	}
	return nil
}

// isForeign reports whether an object of that name is somebody else's: it has no tenant's label, and the controller never
// wrote it.
func isForeign(ctx context.Context, c client.Reader, o client.Object) (bool, error) {
	have, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("%s is no object", describe(o))
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(o), have)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", describe(o), err)
	}

	_, labeled := have.GetLabels()[v1alpha1.LabelTenant]
	written := slices.ContainsFunc(have.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == FieldManager
	})
	return !labeled && !written, nil
}

// describe is an object as a person names it.
func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	switch o.(type) {
	case *rbacv1.RoleBinding:
		kind = "RoleBinding"
	case *corev1.LimitRange:
		kind = "LimitRange"
	case *corev1.ResourceQuota:
		kind = "ResourceQuota"
	case *networkingv1.NetworkPolicy:
		kind = "NetworkPolicy"
	}
	return fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName())
}
