// Package rights makes ServiceAccounts and the objects that give them their rights. A binding has the name of its role.
package rights

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Account is a ServiceAccount.
type Account types.NamespacedName

// Object is the account itself.
func (a Account) Object() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: rbacv1.ServiceAccountKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name},
	}
}

// NewClusterRole has rules for all namespaces, or for those in which it is bound.
func NewClusterRole(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   typeMeta("ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

// NewRole has rules for a namespace.
func NewRole(namespace, name string, rules []rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   typeMeta("Role"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Rules:      rules,
	}
}

// BindEverywhere gives the account a ClusterRole in all namespaces.
func (a Account) BindEverywhere(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   typeMeta("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   a.subjects(),
	}
}

// Bind gives the account a role in a namespace; kind is Role or ClusterRole.
func (a Account) Bind(namespace, kind, role string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   typeMeta("RoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   a.subjects(),
	}
}

// Grant binds a ClusterRole in namespaces where it is not bound, in the name of an owner of fields. A namespace where
// that fails, such as one that is being deleted, keeps no other waiting.
func (a Account) Grant(ctx context.Context, c client.Client, owner, role string, namespaces []string) error {
	var failed []error
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
		set, err := apply.New(owner, a.Bind(namespace, "ClusterRole", role))
		if err != nil {
			return err
		}
		if set.Recheck(ctx, c) != nil {
			failed = append(failed, set.Apply(ctx, c))
		}
	}

	return errors.Join(failed...)
}

func (a Account) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name}}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}
