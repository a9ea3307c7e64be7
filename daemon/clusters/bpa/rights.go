package bpa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// ownersRole is what the operator may do in namespaces that have Provisionings.
const ownersRole = Name + "-owners"

// hostsRole is what the operator may do in namespaces that have hosts.
const hostsRole = Name + "-hosts"

// rights are the operator's rights as objects.
func (o Operator) rights() []client.Object {
	r := operator.NewRights()
	objects := []client.Object{
		newClusterRole(Name, r.Everywhere),
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   typeMeta("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: Name},
			RoleRef:    roleRef("ClusterRole", Name),
			Subjects:   subjects(),
		},
		newRole(Namespace, r.Own), newBinding(Namespace, Name, "Role", Name),
		newRole(v1alpha1.SiteNamespace, r.Site), newBinding(v1alpha1.SiteNamespace, Name, "Role", Name),
		newClusterRole(ownersRole, r.Owners), newBinding(v1alpha1.SiteNamespace, ownersRole, "ClusterRole", ownersRole),
	}
	return objects
}

// HostRights are the operator's rights to read what hosts' installed systems were given, as a set of its own: they change
// whenever a host comes or goes.
func HostRights(hosts []metal3api.BareMetalHost) (apply.Set, error) {
	var objects []client.Object
	secrets := hostSecrets(hosts)
	for _, namespace := range slices.Sorted(maps.Keys(secrets)) {
		rules := operator.NewRights().Hosts
		for i := range rules {
			rules[i].ResourceNames = secrets[namespace]
		}
		role := newRole(namespace, rules)
		role.Name = hostsRole
		objects = append(objects, role, newBinding(namespace, hostsRole, "Role", hostsRole))
	}
	return apply.New(owner, objects...)
}

// GrantNamespaces gives the operator its rights in each namespace that has a Provisioning. One where that fails, such as
// one that is being deleted, keeps no other waiting.
func GrantNamespaces(ctx context.Context, c client.Client, provisionings []v1alpha1.Provisioning) error {
	var failed []error
	done := map[string]bool{v1alpha1.SiteNamespace: true}
	for i := range provisionings {
		namespace := provisionings[i].Namespace
		if done[namespace] {
			continue
		}

		done[namespace] = true
		set, err := apply.New(owner, newBinding(namespace, ownersRole, "ClusterRole", ownersRole))
		if err != nil {
			return err
		}
		if set.Recheck(ctx, c) != nil {
			failed = append(failed, set.Apply(ctx, c))
		}
	}

	return errors.Join(failed...)
}

// RemoveFormerKeys removes the copies of the appliance's log-in to nodes that operators of before put next to
// Provisionings, and the one that they had themselves: it is in the daemon alone (vault.Keys.ServeAgent).
func RemoveFormerKeys(ctx context.Context, c client.Client) error {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.MatchingFields{"metadata.name": kud.SSHSecret}); err != nil {
		return fmt.Errorf("list former log-ins: %w", err)
	}

	for i := range list.Items {
		s := &list.Items[i]
		if s.Namespace != Namespace && s.Labels[operator.LabelManaged] != operator.FieldManager {
			continue // somebody's own
		}
		if err := c.Delete(ctx, s); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove former log-in %s/%s: %w", s.Namespace, s.Name, err)
		}
	}

	return nil
}

// hostSecrets are the Secrets with what hosts' installed systems were given: addresses and host keys. By namespace, sorted.
func hostSecrets(hosts []metal3api.BareMetalHost) map[string][]string {
	names := map[string][]string{}
	for i := range hosts {
		for _, ref := range []*corev1.SecretReference{hosts[i].Spec.UserData, hosts[i].Spec.NetworkData} {
			if ref == nil || ref.Name == "" || ref.Namespace != "" && ref.Namespace != hosts[i].Namespace {
				continue // a host lends nobody rights in another namespace
			}
			names[hosts[i].Namespace] = append(names[hosts[i].Namespace], ref.Name)
		}
	}
	for namespace, all := range names {
		slices.Sort(all)
		names[namespace] = slices.Compact(all)
	}
	return names
}

func subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: Name}}
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: kind, Name: name}
}

func newClusterRole(name string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   typeMeta("rbac.authorization.k8s.io/v1", "ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	}
}

func newRole(namespace string, rules []rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   typeMeta("rbac.authorization.k8s.io/v1", "Role"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name},
		Rules:      rules,
	}
}

func newBinding(namespace, name, kind, of string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   typeMeta("rbac.authorization.k8s.io/v1", "RoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    roleRef(kind, of),
		Subjects:   subjects(),
	}
}
